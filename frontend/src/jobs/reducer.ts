/**
 * What the page knows of the generations: a pure, immutable function of the messages heard so far, in any order.
 *
 * Every field of a job is a register that keeps the id of the event that wrote it last. An event only ever *assigns*
 * fields, and a newer id wins; so a message may come late, twice, or after a snapshot that already contains it, and the
 * outcome is the same (reducer.property.test.ts shuffles them). A snapshot assigns every field, as of its `lastId`.
 */

import type { Message } from "../api/events";
import type { Generation, Input } from "../api/types";
import { assignments } from "./assignments";
import { blank, forget, newest, type Registers, write } from "./registers";
import { HINT, isAfter, of, type Version } from "./version";

/** A generation's fields. No event tells the input: null = it is not known yet, and `missing` lists the job. */
export type Fields = Omit<Generation, "id" | "input"> & { readonly input: Input | null };

export interface Job extends Registers<Fields> {
  readonly id: string;
}

export interface State {
  /** null = nothing heard yet: the list is loading, not empty. */
  readonly lastId: string | null;
  readonly jobs: ReadonlyMap<string, Job>;
  /** Jobs that are gone, and when they went, so that a late event does not bring them back. */
  readonly removed: ReadonlyMap<string, Version>;
}

export type Action =
  | Message
  /** A record answered by a call: it names no instant, so it only fills what no message has said. */
  | { readonly kind: "record"; readonly generation: Generation }
  /** A call said that there is no such job. */
  | { readonly kind: "gone"; readonly id: string };

export const EMPTY: State = { lastId: null, jobs: new Map(), removed: new Map() };

/** Jobs kept in memory; beyond it the oldest finished ones are forgotten. */
export const MAX_JOBS = 500;
export const MAX_REMOVED = 1000;

const UNKNOWN: Fields = {
  status: "waiting",
  run: 1,
  attempt: 0,
  attempts: 1,
  priority: 0,
  input: null,
  progress: null,
  preview: null,
  images: [],
  error: null,
  reason: null,
  cancel: null,
  canceling: false,
  timings: null,
  created_at: 0,
  due_at: null,
  started_at: null,
  finished_at: null,
  expires_at: null,
};
const NAMES = Object.keys(UNKNOWN) as (keyof Fields)[];

export function reduce(state: State, action: Action): State {
  switch (action.kind) {
    case "snapshot": {
      const version = of(action.lastId);
      let next: State = { ...(action.reset ? EMPTY : state), lastId: action.lastId };
      for (const generation of action.generations) next = assign(next, generation.id, version, fieldsOf(generation));
      return bounded(next);
    }
    case "event": {
      const { event } = action;
      if (!event.job) return state;
      const version = of(event.id);
      if (event.type === "removed") return remove(state, event.job, version);
      const fields = assignments(event);
      return fields === null ? state : bounded(assign(state, event.job, version, fields));
    }
    case "record":
      return bounded(assign(state, action.generation.id, HINT, fieldsOf(action.generation)));
    case "gone": {
      const known = state.jobs.get(action.id);
      return remove(state, action.id, known === undefined ? HINT : newest(known));
    }
  }
}

export function reduceAll(state: State, actions: readonly Action[]): State {
  return actions.reduce(reduce, state);
}

/** Ids whose events were heard but whose record is not known yet. */
export function missing({ jobs }: State): string[] {
  return [...jobs.values()].filter(({ now }) => now.input === null).map(({ id }) => id);
}

function assign(state: State, id: string, version: Version, fields: Partial<Fields>): State {
  const known = state.jobs.get(id);
  const grave = state.removed.get(id);
  const isOfTheDead = grave !== undefined && !isAfter(version, grave);
  if (isOfTheDead && (version !== HINT || known === undefined)) return state;
  const job: Job = write(known ?? { id, ...blank(UNKNOWN) }, version, fields);
  return job === known ? state : { ...state, jobs: new Map(state.jobs).set(id, job) };
}

/** What was written up to the removal goes; a job that was added again under its id keeps what came after. */
function remove(state: State, id: string, version: Version): State {
  const grave = state.removed.get(id);
  if (grave !== undefined && !isAfter(version, grave)) return state;
  const removed = trimmed(new Map(state.removed).set(id, version));
  const known = state.jobs.get(id);
  if (known === undefined) return { ...state, removed };
  const jobs = new Map(state.jobs);
  if (isAfter(newest(known), version)) jobs.set(id, forget(known, version, UNKNOWN));
  else jobs.delete(id);
  return { ...state, jobs, removed };
}

function bounded(state: State): State {
  if (state.jobs.size <= MAX_JOBS) return state;
  const isUnfinished = ({ now }: Job) => Number(now.finished_at === null);
  const ranked = [...state.jobs.values()].sort(
    (a, b) => isUnfinished(b) - isUnfinished(a) || b.now.created_at - a.now.created_at || (a.id < b.id ? -1 : 1),
  );
  return { ...state, jobs: new Map(ranked.slice(0, MAX_JOBS).map((job) => [job.id, job])) };
}

function trimmed(removed: Map<string, Version>): ReadonlyMap<string, Version> {
  const oldest = removed.size > MAX_REMOVED ? removed.keys().next().value : undefined;
  if (oldest !== undefined) removed.delete(oldest);
  return removed;
}

function fieldsOf(generation: Generation): Fields {
  const entries = NAMES.map((name) => [name, generation[name] ?? UNKNOWN[name]]);
  return Object.fromEntries(entries) as Fields;
}
