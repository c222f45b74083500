import { describe, expect, test } from "vitest";
import { event, generation, PICTURE, snapshot } from "../testing/fakes";
import { announcements } from "./announcements";
import { EMPTY, reduce, reduceAll } from "./reducer";

const active = reduce(EMPTY, snapshot([generation({ status: "active" })]));

describe("what is announced", () => {
  test("is an ending, once", () => {
    const done = reduce(active, event("completed", 1, { images: [PICTURE] }));
    expect(announcements(active, done)).toEqual([{ kind: "completed", prompt: "a red circle" }]);
    expect(announcements(done, reduce(done, event("priority", 2, { priority: 3 })))).toEqual([]);
  });

  test("is not what was already over when the page was opened", () => {
    expect(announcements(EMPTY, reduce(EMPTY, snapshot([generation({ status: "completed" })])))).toEqual([]);
  });

  test("is not progress", () => {
    expect(announcements(active, reduce(active, event("progress", 1)))).toEqual([]);
  });

  test("is the ending of a second run, too, even when both are heard of at once", () => {
    const failed = reduce(active, event("failed", 1));
    const again = reduceAll(failed, [event("retried", 2, { run: 2 }), event("failed", 3, { run: 2 })]);
    expect(announcements(failed, again)).toEqual([{ kind: "failed", prompt: "a red circle" }]);
  });
});
