import { describe, expect, test } from "vitest";
import { Problem, retryAfterMs } from "./problem";

function response(status: number, body: unknown, headers: Record<string, string> = {}) {
  return new Response(typeof body === "string" ? body : JSON.stringify(body), { status, headers });
}

describe("a problem", () => {
  test("carries the errors of all fields", async () => {
    const errors = [{ field: "steps", problem: "must be at most 150" }];
    const problem = await Problem.from(
      response(422, { title: "Invalid", detail: "steps: no", field: "steps", errors }),
    );
    expect(problem).toMatchObject({ status: 422, message: "steps: no", errors, isTemporary: false });
  });

  test("makes an error out of a single named field", async () => {
    const problem = await Problem.from(response(422, { detail: "is too long", field: "prompt" }));
    expect(problem.errors).toEqual([{ field: "prompt", problem: "is too long" }]);
  });

  test("survives an answer that is no problem+json", async () => {
    const problem = await Problem.from(response(502, "<html>"));
    expect(problem).toMatchObject({ status: 502, message: "HTTP 502", errors: [], isTemporary: true });
  });

  test("knows how long the server asked to wait", async () => {
    expect((await Problem.from(response(429, {}, { "Retry-After": "5" }))).retryAfterMs).toBe(5000);
  });
});

describe("Retry-After", () => {
  const now = Date.parse("Sun, 29 Nov 2026 20:00:00 GMT");
  test.each([
    ["7", 7000],
    ["0", 0],
    ["Sun, 29 Nov 2026 20:00:09 GMT", 9000],
    ["Sun, 29 Nov 2026 19:00:00 GMT", 0],
    ["soon", null],
    ["", null],
  ])("%j is %j ms", (value, ms) => {
    expect(retryAfterMs(new Headers({ "Retry-After": value }), now)).toBe(ms);
  });
});
