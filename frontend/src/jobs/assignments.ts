/** What each event of a job assigns. Values only, never "one more": that is what lets events come in any order. */

import type { Cancel, JobError, Picture, Progress, QueueEvent, Status, Timings } from "../api/types";
import type { Fields } from "./reducer";

/** A run begins: nothing of an earlier one is left. */
const FRESH: Partial<Fields> = {
  attempt: 0,
  progress: null,
  preview: null,
  images: [],
  error: null,
  reason: null,
  cancel: null,
  canceling: false,
  timings: null,
  started_at: null,
  finished_at: null,
  expires_at: null,
};
/** The attempt is over, whatever comes next. */
const IDLE: Partial<Fields> = { progress: null, preview: null };

/** The fields that this event sets; null = it says nothing about the job's record. */
export function assignments(event: QueueEvent): Partial<Fields> | null {
  switch (event.type) {
    case "added":
      return {
        ...FRESH,
        ...run(event),
        status: status(event),
        due_at: instant(event.due_at),
        ...priority(event),
      };
    case "retried":
      return { ...FRESH, ...run(event), status: status(event), due_at: instant(event.due_at) };
    case "active":
      return {
        ...IDLE,
        ...run(event),
        status: "active",
        attempt: event.attempt ?? 1,
        started_at: event.at,
        due_at: null,
        error: null,
      };
    case "progress":
      return { progress: (event.progress as Progress | null) ?? null };
    case "milestone":
      return event.name === "preview_ready" ? preview(event) : null;
    case "delayed":
      return { ...IDLE, status: "delayed", due_at: instant(event.due_at), ...error(event) };
    case "waiting":
      return { ...IDLE, status: "waiting", due_at: null, ...error(event) };
    case "canceling":
      return { canceling: true, cancel: (event.cancel as Cancel | undefined) ?? {} };
    case "completed":
      return {
        ...ended(event),
        status: "completed",
        images: (event.images as Picture[] | undefined) ?? [],
        timings: timings(event.result),
        error: null,
      };
    case "failed":
      return {
        ...ended(event),
        status: "failed",
        reason: (event.reason as Fields["reason"] | undefined) ?? "error",
        error: (event.error as JobError | undefined) ?? null,
      };
    case "canceled":
      return {
        ...ended(event),
        status: "canceled",
        cancel: (event.cancel as Cancel | undefined) ?? {},
        ...stoppedAt(event),
      };
    case "priority":
      return priority(event);
    default:
      return null;
  }
}

function run(event: QueueEvent): Partial<Fields> {
  return { run: event.run ?? 1 };
}

function status(event: QueueEvent): Status {
  return event.state === "delayed" ? "delayed" : "waiting";
}

function priority(event: QueueEvent): Partial<Fields> {
  return typeof event.priority === "number" ? { priority: event.priority } : {};
}

function error(event: QueueEvent): Partial<Fields> {
  return { error: (event.error as JobError | undefined) ?? null };
}

function ended(event: QueueEvent): Partial<Fields> {
  return { finished_at: event.at, canceling: false, due_at: null };
}

function preview(event: QueueEvent): Partial<Fields> | null {
  const data = event.data as { number?: number; step?: number } | undefined;
  if (typeof event.url !== "string" || data?.number === undefined) return null;
  return { preview: { number: data.number, step: data.step ?? 0, url: event.url } };
}

function timings(result: unknown): Timings | null {
  if (typeof result !== "object" || result === null || !("denoise_ms" in result)) return null;
  const { load_ms = 0, denoise_ms = 0, decode_ms = 0 } = result as Partial<Timings>;
  return { load_ms, denoise_ms, decode_ms };
}

/** Where a canceled attempt stopped; a job that never ran says nothing. */
function stoppedAt(event: QueueEvent): Partial<Fields> {
  const { phase, step, steps } = (event.details ?? {}) as Partial<Progress>;
  if (phase === undefined) return {};
  const fraction = step !== undefined && steps ? step / steps : 0;
  return { progress: { phase, step: step ?? 0, steps: steps ?? 0, fraction } };
}

function instant(value: unknown): number | null {
  return typeof value === "number" ? value : null;
}
