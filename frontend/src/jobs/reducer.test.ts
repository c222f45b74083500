import { describe, expect, test } from "vitest";
import { event, generation, PICTURE, snapshot } from "../testing/fakes";
import { EMPTY, MAX_JOBS, MAX_REMOVED, missing, reduce, reduceAll } from "./reducer";

const known = reduce(EMPTY, snapshot([generation()]));
const jobA = (state: typeof EMPTY) => state.jobs.get("a");

describe("a generation's life", () => {
  test("goes from the queue through steps and previews to its pictures", () => {
    const drawing = reduceAll(known, [
      event("active", 1),
      event("progress", 2, { progress: { phase: "denoising", step: 12, steps: 30, fraction: 0.4, eta_ms: 900 } }),
      event("milestone", 3, { name: "preview_ready", data: { number: 2, step: 10, bytes: 700 }, url: "/p?n=2" }),
    ]);
    expect(jobA(drawing)?.now).toMatchObject({
      status: "active",
      attempt: 1,
      progress: { step: 12 },
      preview: { url: "/p?n=2" },
    });

    const done = reduce(drawing, event("completed", 4, { images: [PICTURE], result: { denoise_ms: 5 } }));
    expect(jobA(done)?.now).toMatchObject({
      status: "completed",
      images: [PICTURE],
      timings: { load_ms: 0, denoise_ms: 5, decode_ms: 0 },
    });
  });

  test("remembers the error of an attempt until the next one begins", () => {
    const error = { kind: "transient", message: "lost" };
    const delayed = reduceAll(known, [event("active", 1), event("delayed", 2, { due_at: 99, error })]);
    expect(jobA(delayed)?.now).toMatchObject({ status: "delayed", due_at: 99, error, progress: null });
    expect(jobA(reduce(delayed, event("active", 3, { attempt: 2 })))?.now).toMatchObject({ attempt: 2, error: null });
  });

  test("says at which step it was stopped", () => {
    const details = { phase: "denoising", step: 9, steps: 30 };
    const state = reduceAll(known, [event("active", 1), event("canceling", 2), event("canceled", 3, { details })]);
    expect(jobA(state)?.now).toMatchObject({ status: "canceled", canceling: false, progress: { step: 9, steps: 30 } });
  });

  test("begins anew with a manual retry", () => {
    const state = reduceAll(known, [
      event("failed", 1, { reason: "timeout", error: { kind: "timeout", message: "slow" } }),
      event("retried", 2, { run: 2, state: "waiting" }),
    ]);
    expect(jobA(state)?.now).toMatchObject({ status: "waiting", run: 2, error: null, reason: null, finished_at: null });
  });
});

describe("what is said out of turn", () => {
  test("an older event does not undo a newer one", () => {
    const state = reduceAll(known, [
      event("completed", 9, { images: [PICTURE] }),
      event("progress", 4),
      event("active", 3),
    ]);
    expect(jobA(state)?.now.status).toBe("completed");
  });

  test("an event that a snapshot already contains changes nothing", () => {
    const state = reduce(EMPTY, snapshot([generation({ status: "active", run: 3 })], 5));
    expect(reduce(state, event("waiting", 5)).jobs).toBe(state.jobs);
  });

  test("an id counts by its numbers, not by its letters", () => {
    const state = reduceAll(known, [event("priority", 10, { priority: 2 }), event("priority", 9, { priority: 1 })]);
    expect(jobA(state)?.now.priority).toBe(2);
  });

  test("a removed job stays gone, whatever is heard of it late", () => {
    const state = reduceAll(known, [event("removed", 8), event("progress", 7), event("completed", 6)]);
    expect(state.jobs.size).toBe(0);
    expect(reduce(state, { kind: "record", generation: generation() }).jobs.size).toBe(0);
  });

  test("events of the queue itself, and of kinds not known, change nothing", () => {
    expect(reduceAll(known, [event("paused", 1, { job: null }), event("celebrated", 2)])).toBe(known);
  });
});

describe("records answered by calls", () => {
  test("give a job its input without undoing what events said", () => {
    const heard = reduce({ ...EMPTY, lastId: "0-0" }, event("completed", 5, { images: [PICTURE] }));
    expect(missing(heard)).toEqual(["a"]);
    const state = reduce(heard, { kind: "record", generation: generation({ status: "waiting" }) });
    expect(missing(state)).toEqual([]);
    expect(jobA(state)).toMatchObject({ now: { attempts: 3, status: "completed" } });
  });

  test("give its input also to a job that was removed and added again", () => {
    const again = reduceAll(known, [event("removed", 1), event("added", 2, { state: "waiting" })]);
    expect(missing(again)).toEqual(["a"]);
    expect(missing(reduce(again, { kind: "record", generation: generation() }))).toEqual([]);
  });

  test("that say a job is gone, remove it until something newer is heard", () => {
    const heard = reduce(known, event("active", 5));
    const gone = reduce(heard, { kind: "gone", id: "a" });
    expect(gone.jobs.size).toBe(0);
    expect(reduce(gone, event("progress", 4)).jobs.size).toBe(0);
    expect(reduce(gone, event("added", 6, { state: "waiting" })).jobs.size).toBe(1);
  });
});

describe("a reset", () => {
  test("forgets the other life of the queue, even where its ids were greater", () => {
    const state = reduceAll(known, [
      event("active", 9),
      { kind: "snapshot", reset: true, lastId: "5-0", generations: [generation({ id: "b" })] },
    ]);
    expect([...state.jobs.keys()]).toEqual(["b"]);
    expect(state.lastId).toBe("5-0");
  });
});

describe("memory", () => {
  test("is bounded, and the unfinished and the newest are what is kept", () => {
    const many = Array.from({ length: MAX_JOBS + 20 }, (_, n) =>
      generation({
        id: `j${n}`,
        created_at: n,
        finished_at: n === 0 ? null : 1,
        status: n === 0 ? "waiting" : "completed",
      }),
    );
    const { jobs } = reduce(EMPTY, snapshot(many));
    expect(jobs.size).toBe(MAX_JOBS);
    expect(jobs.has("j0")).toBe(true);
    expect(jobs.has("j1")).toBe(false);
    expect(jobs.has(`j${MAX_JOBS + 19}`)).toBe(true);
  });

  test("of removed jobs is bounded too", () => {
    const removals = Array.from({ length: MAX_REMOVED + 5 }, (_, n) => event("removed", n, { job: `j${n}` }));
    expect(reduceAll(EMPTY, removals).removed.size).toBe(MAX_REMOVED);
  });
});
