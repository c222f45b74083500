/** However the messages come, shuffled, repeated, among snapshots and records, the state is the queue's own. */

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Message } from "../api/events";
import { COMMANDS, MiniatureQueue } from "../testing/queue";
import { type Action, EMPTY, type Fields, reduceAll, type State } from "./reducer";

const JOBS = ["a", "b", "c"];
/** Often to work, so that lives are long; often away and back, since that is where it is hard. */
const OFTEN = [...COMMANDS, "add", "add", "claim", "claim", "claim", "progress", "remove"] as const;

/** A history of the queue, with photographs taken on the way. */
const history = fc
  .array(
    fc.record({
      command: fc.constantFrom(...OFTEN),
      job: fc.constantFrom(...JOBS),
      pauseMs: fc.constantFrom(0, 0, 1, 40),
      isPhotographed: fc.constantFrom(true, false, false, false, false),
    }),
    { minLength: 1, maxLength: 80, size: "max" },
  )
  .map((commands) => {
    const queue = new MiniatureQueue();
    const photographs: Message[] = [];
    for (const { command, job, pauseMs, isPhotographed } of commands) {
      queue.command(command, job, pauseMs);
      if (isPhotographed) photographs.push(queue.photograph());
    }
    return { queue, photographs };
  });

/** All of them at least once, some twice, in any order. */
function shuffled(actions: readonly Action[]): fc.Arbitrary<Action[]> {
  return fc.subarray([...actions]).chain((again) => {
    const all = [...actions, ...again];
    return fc.shuffledSubarray(all, { minLength: all.length });
  });
}

describe("the reducer", () => {
  test("in order, says at every moment what the queue says", () => {
    fc.assert(
      fc.property(history, ({ queue, photographs }) => {
        for (const photograph of photographs) {
          const state = reduceAll(EMPTY, queue.events.slice(0, queue.eventsBefore(photograph)));
          expect(told(state)).toEqual(told(reduceAll(EMPTY, [photograph])));
        }
        expect(told(reduceAll(EMPTY, queue.events))).toEqual(truth(queue));
      }),
    );
  });

  test("shuffled and repeated among snapshots, says the same, to the last field", () => {
    const cases = history.chain(({ queue, photographs }) => {
      const all = [...queue.events, ...photographs];
      return shuffled(all).map((actions) => ({ queue, straight: reduceAll(EMPTY, all), actions }));
    });
    fc.assert(
      fc.property(cases, ({ queue, straight, actions }) => {
        const state = reduceAll(EMPTY, actions);
        expect(jobsOf(state)).toEqual(jobsOf(straight));
        expect(state.removed).toEqual(straight.removed);
        expect(told(state)).toEqual(truth(queue));
      }),
      { numRuns: 500 },
    );
  });

  test("from one snapshot, with all events around it in any order, arrives at the queue's present", () => {
    const cases = history
      .filter(({ photographs }) => photographs.length > 0)
      .chain(({ queue, photographs }) =>
        fc
          .tuple(fc.constantFrom(...photographs), shuffled(queue.events))
          .chain(([photograph, events]) => shuffled([photograph, ...events]).map((actions) => ({ queue, actions }))),
      );
    fc.assert(
      fc.property(cases, ({ queue, actions }) => {
        expect(told(reduceAll(EMPTY, actions))).toEqual(truth(queue));
      }),
    );
  });

  test("from a snapshot and only the events after it, arrives there too, inputs included", () => {
    fc.assert(
      fc.property(history, ({ queue, photographs }) => {
        for (const photograph of photographs) {
          const state = reduceAll(EMPTY, [photograph, ...queue.events.slice(queue.eventsBefore(photograph))]);
          expect(told(state)).toEqual(truth(queue));
        }
        const last = reduceAll(EMPTY, [queue.photograph()]);
        for (const [id, { now }] of last.jobs) expect({ id, ...now }).toEqual(queue.jobs.get(id));
      }),
    );
  });

  test("hears nothing new in what it has heard, and then keeps the very same state", () => {
    fc.assert(
      fc.property(history, ({ queue, photographs }) => {
        const all = [...queue.events, ...photographs];
        const once = reduceAll(EMPTY, all);
        const twice = reduceAll(once, all);
        expect(twice.removed).toBe(once.removed);
        expect(twice.jobs).toBe(once.jobs);
      }),
    );
  });

  test("never changes the state it is given", () => {
    fc.assert(
      fc.property(history, ({ queue, photographs }) => {
        const before = reduceAll(EMPTY, photographs.slice(0, 1));
        const copy = structuredClone(before);
        reduceAll(before, [...queue.events, ...photographs]);
        expect(before).toEqual(copy);
      }),
    );
  });
});

function jobsOf({ jobs }: State) {
  return Object.fromEntries([...jobs].map(([id, { now }]) => [id, now]));
}

/** The part of the state that events tell: all but what only a record knows. */
function told(state: State) {
  return Object.fromEntries([...state.jobs].map(([id, { now }]) => [id, changing(now)]));
}

function truth({ jobs }: MiniatureQueue) {
  return Object.fromEntries([...jobs].map(([id, { id: _, ...fields }]) => [id, changing(fields)]));
}

function changing({ input: _, attempts: __, created_at: ___, ...rest }: Fields) {
  return rest;
}
