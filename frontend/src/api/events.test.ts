// @vitest-environment jsdom
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { generation } from "../testing/fakes";
import { type ConnectionStatus, EventConnection, type Message, SILENCE_MS } from "./events";

/** The server's side of one request to /v1/events. */
class Call {
  readonly lastEventId: string | null;
  readonly signal: AbortSignal | null | undefined;
  #stream: ReadableStreamDefaultController<Uint8Array> | undefined;
  #answer!: (response: Response) => void;
  #refuse!: (reason: unknown) => void;
  readonly response = new Promise<Response>((answer, refuse) => {
    this.#answer = answer;
    this.#refuse = refuse;
  });

  constructor(init: RequestInit | undefined) {
    this.lastEventId = new Headers(init?.headers).get("Last-Event-ID");
    this.signal = init?.signal;
    this.signal?.addEventListener("abort", () => {
      this.#refuse(new DOMException("aborted", "AbortError"));
      this.#stream?.error(new DOMException("aborted", "AbortError"));
    });
  }

  async accept(): Promise<this> {
    const body = new ReadableStream<Uint8Array>({
      start: (stream) => {
        this.#stream = stream;
      },
    });
    this.#answer(new Response(body));
    await settle();
    return this;
  }

  async reject(status: number, headers: Record<string, string> = {}): Promise<void> {
    this.#answer(new Response("{}", { status, headers }));
    await settle();
  }

  async say(text: string): Promise<void> {
    this.#stream?.enqueue(new TextEncoder().encode(text));
    await settle();
  }

  async end(): Promise<void> {
    this.#stream?.close();
    await settle();
  }
}

const settle = () => vi.advanceTimersByTimeAsync(0);
const SNAPSHOT = `event: snapshot\ndata: ${JSON.stringify({ generation: generation() })}\n\n`;
const READY = "event: ready\nid: 100-3\ndata: {}\n\n";
const added = (id: string) =>
  `id: ${id}\nevent: added\ndata: ${JSON.stringify({ type: "added", job: "a", at: 1, id })}\n\n`;

let calls: Call[];
let messages: Message[];
let statuses: ConnectionStatus[];
let connection: EventConnection;

const call = (n: number) => {
  const found = calls[n];
  if (found === undefined) throw new Error(`there was no call ${n}`);
  return found;
};

beforeEach(() => {
  vi.useFakeTimers();
  [calls, messages, statuses] = [[], [], []];
  connection = new EventConnection({
    onMessages: (told) => void messages.push(...told),
    onStatus: (status) => void statuses.push(status),
    random: () => 1,
    fetch: (_, init) => {
      calls.push(new Call(init));
      return call(calls.length - 1).response;
    },
  });
  connection.open();
});

afterEach(() => {
  connection.close();
  vi.useRealTimers();
});

describe("the event connection", () => {
  test("tells the snapshots as one message, of the instant that `ready` names", async () => {
    await call(0).accept();
    await call(0).say(SNAPSHOT + SNAPSHOT);
    expect(messages).toEqual([]);
    await call(0).say(READY);
    expect(messages).toEqual([
      { kind: "snapshot", generations: [generation(), generation()], lastId: "100-3", reset: false },
    ]);
    expect(statuses).toEqual(["connecting", "live"]);
  });

  test("tells events with their ids, whatever pieces they come in", async () => {
    await call(0).accept();
    const text = READY + added("101-0");
    await call(0).say(text.slice(0, 50));
    await call(0).say(text.slice(50));
    expect(messages.at(-1)).toMatchObject({ kind: "event", event: { id: "101-0", type: "added", job: "a" } });
  });

  test("resumes after the last id it heard", async () => {
    await call(0).accept();
    await call(0).say(READY + added("101-0"));
    await call(0).end();
    expect(statuses.at(-1)).toBe("reconnecting");
    await vi.advanceTimersByTimeAsync(250);
    expect(call(1).lastEventId).toBe("101-0");
    await call(1).accept();
    await call(1).say(added("102-0"));
    expect(messages.at(-1)).toMatchObject({ event: { id: "102-0" } });
    expect(statuses.at(-1)).toBe("live");
  });

  test("forgets everything at the instant that follows a reset", async () => {
    await call(0).accept();
    await call(0).say(`${READY}event: reset\ndata: {}\n\n${SNAPSHOT}event: ready\nid: 5-0\ndata: {}\n\n`);
    expect(messages.at(-1)).toEqual({ kind: "snapshot", generations: [generation()], lastId: "5-0", reset: true });
  });

  test("does not keep snapshots of a connection that broke before `ready`", async () => {
    await call(0).accept();
    await call(0).say(SNAPSHOT);
    await call(0).end();
    await vi.advanceTimersByTimeAsync(250);
    expect(call(1).lastEventId).toBeNull();
    await call(1).accept();
    await call(1).say(READY);
    expect(messages).toEqual([{ kind: "snapshot", generations: [], lastId: "100-3", reset: false }]);
  });

  test("waits twice as long after each failure, and at least as long as the server asks", async () => {
    await call(0).reject(503);
    await vi.advanceTimersByTimeAsync(249);
    expect(calls).toHaveLength(1);
    await vi.advanceTimersByTimeAsync(1);
    await call(1).reject(503);
    await vi.advanceTimersByTimeAsync(499);
    expect(calls).toHaveLength(2);
    await vi.advanceTimersByTimeAsync(1);
    await call(2).reject(503, { "Retry-After": "8" });
    await vi.advanceTimersByTimeAsync(7_999);
    expect(calls).toHaveLength(3);
    await vi.advanceTimersByTimeAsync(1);
    expect(calls).toHaveLength(4);
  });

  test("is soon back after a connection that had held", async () => {
    for (const n of [0, 1, 2]) {
      await call(n).reject(503);
      await vi.advanceTimersByTimeAsync(1000);
    }
    await call(3).accept();
    await call(3).say(READY);
    await vi.advanceTimersByTimeAsync(6_000);
    await call(3).end();
    await vi.advanceTimersByTimeAsync(250);
    expect(calls).toHaveLength(5);
  });

  test("gives up a connection that has gone silent", async () => {
    await call(0).accept();
    await vi.advanceTimersByTimeAsync(SILENCE_MS - 1);
    await call(0).say(":\n\n");
    await vi.advanceTimersByTimeAsync(SILENCE_MS - 1);
    expect(statuses.at(-1)).toBe("live");
    await vi.advanceTimersByTimeAsync(1);
    expect(call(0).signal?.aborted).toBe(true);
    expect(statuses.at(-1)).toBe("reconnecting");
  });

  test("does not sit out its pause when the tab is looked at again", async () => {
    await call(0).reject(503, { "Retry-After": "60" });
    document.dispatchEvent(new Event("visibilitychange"));
    expect(calls).toHaveLength(2);
  });

  test("leaves a fresh connection alone when the tab is looked at again, but not one that slept", async () => {
    await call(0).accept();
    document.dispatchEvent(new Event("visibilitychange"));
    expect(calls).toHaveLength(1);
    await vi.advanceTimersByTimeAsync(30_000);
    document.dispatchEvent(new Event("visibilitychange"));
    expect(call(0).signal?.aborted).toBe(true);
    expect(calls).toHaveLength(2);
  });

  test("lets go when the page is put aside and resumes when it is shown again", async () => {
    await call(0).accept();
    await call(0).say(READY);
    window.dispatchEvent(new Event("pagehide"));
    expect(call(0).signal?.aborted).toBe(true);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(calls).toHaveLength(1);
    window.dispatchEvent(Object.assign(new Event("pageshow"), { persisted: true }));
    expect(call(1).lastEventId).toBe("100-3");
  });

  test("never holds two connections, and none after it is closed", async () => {
    connection.open();
    expect(calls).toHaveLength(1);
    await call(0).accept();
    connection.close();
    expect(call(0).signal?.aborted).toBe(true);
    await vi.advanceTimersByTimeAsync(60_000);
    window.dispatchEvent(new Event("online"));
    expect(calls).toHaveLength(1);
    expect(statuses.at(-1)).toBe("closed");
  });

  test("is not upset by events it does not understand", async () => {
    await call(0).accept();
    await call(0).say(`${READY}id: 101-0\nevent: odd\ndata: {broken\n\n${added("102-0")}`);
    expect(messages.at(-1)).toMatchObject({ event: { id: "102-0" } });
  });
});
