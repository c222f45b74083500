import { describe, expect, test, vi } from "vitest";
import { generation } from "../testing/fakes";
import { createClient } from "./client";
import { Problem } from "./problem";

function client(answer: () => Response | Promise<Response>) {
  const fetch = vi.fn<typeof globalThis.fetch>(async () => answer());
  return { client: createClient(fetch), fetch };
}

describe("the client", () => {
  test("posts a generation with its idempotency key", async () => {
    const made = client(() => Response.json(generation({ id: "x" }), { status: 202 }));
    expect((await made.client.createGeneration({ prompt: "a red circle" }, "k1")).id).toBe("x");
    const [path, init] = made.fetch.mock.calls[0] ?? [];
    expect(path).toBe("/v1/generations");
    expect(init).toMatchObject({
      method: "POST",
      body: '{"prompt":"a red circle"}',
      headers: { "Idempotency-Key": "k1" },
    });
  });

  test("answers null for a generation that is not there", async () => {
    expect(await client(() => new Response("{}", { status: 404 })).client.getGeneration("x")).toBeNull();
  });

  test("throws the server's problem", async () => {
    const made = client(() => new Response('{"detail":"is finished"}', { status: 409 }));
    await expect(made.client.cancelGeneration("x")).rejects.toMatchObject({ status: 409, message: "is finished" });
  });

  test("turns a lost connection into a problem of status 0", async () => {
    const made = client(() => Promise.reject(new TypeError("Failed to fetch")));
    const failure = await made.client.listModels().catch((problem: unknown) => problem);
    expect(failure).toBeInstanceOf(Problem);
    expect(failure).toMatchObject({ status: 0, isTemporary: true });
  });

  test("asks for the next page by its cursor", async () => {
    const made = client(() => Response.json({ data: [], next_cursor: null }));
    await made.client.listGenerations("c 1");
    expect(made.fetch.mock.calls[0]?.[0]).toBe("/v1/generations?limit=50&cursor=c+1");
  });
});
