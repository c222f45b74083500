/** The page's one connection to `GET /v1/events`: resumes by event id, through restarts, sleep and lost networks. */

import { pauseMs } from "./backoff";
import { retryAfterMs } from "./problem";
import { createSseParser, type ServerSentEvent } from "./sse";
import type { Generation, QueueEvent } from "./types";

export type Message =
  /** The state at the instant of `lastId`. `reset`: forget everything known, it is of another life of the queue. */
  | {
      readonly kind: "snapshot";
      readonly generations: readonly Generation[];
      readonly lastId: string;
      readonly reset: boolean;
    }
  | { readonly kind: "event"; readonly event: QueueEvent };

export type ConnectionStatus = "connecting" | "live" | "reconnecting" | "closed";

export interface ConnectionOptions {
  /** What one piece of the stream said, in order; called once per piece, so that a burst is one render. */
  readonly onMessages: (messages: readonly Message[]) => void;
  readonly onStatus: (status: ConnectionStatus) => void;
  readonly url?: string;
  readonly fetch?: typeof globalThis.fetch;
  readonly random?: () => number;
}

/** The server says something every 15 s, if only a heartbeat; after this long a connection is dead. */
export const SILENCE_MS = 40_000;
/** A page that comes back from sleep trusts a connection only if it spoke this recently. */
const FRESH_MS = 20_000;
/** A connection that held this long was a good one: the next pause is the first, short one again. */
const STEADY_MS = 5_000;

export class EventConnection {
  readonly #options: Required<ConnectionOptions>;
  #status: ConnectionStatus = "closed";
  #lastId: string | null = null;
  #pending: Generation[] = [];
  #reset = false;
  #heardAt = 0;
  #liveSince = Number.POSITIVE_INFINITY;
  #failures = 0;
  #current: AbortController | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #listening: AbortController | null = null;

  constructor(options: ConnectionOptions) {
    this.#options = {
      url: "/v1/events",
      fetch: (...call) => globalThis.fetch(...call),
      random: Math.random,
      ...options,
    };
  }

  /** Connect, and stay connected until `close`. */
  open(): void {
    if (this.#listening !== null) return;
    this.#listening = this.#listen();
    this.#connect("connecting");
  }

  close(): void {
    this.#listening?.abort();
    this.#listening = null;
    this.#hangUp();
    this.#say("closed");
  }

  #listen(): AbortController {
    const listening = new AbortController();
    const on = (target: EventTarget, type: string, listener: (event: Event) => void) =>
      target.addEventListener(type, listener, { signal: listening.signal });
    // "offline" is not listened to: a Kargah on this very machine stays within reach.
    on(window, "online", () => this.#wake());
    // A page put aside (back/forward cache) must not hold a connection; when it is shown again it resumes.
    on(window, "pagehide", () => this.#hangUp());
    on(window, "pageshow", (event) => {
      if ((event as PageTransitionEvent).persisted) this.#connect("reconnecting");
    });
    on(document, "visibilitychange", () => {
      if (!document.hidden) this.#wake();
    });
    return listening;
  }

  /** The tab is looked at again: do not sit out a long pause, nor trust a connection that slept. */
  #wake(): void {
    const isWaiting = this.#current === null;
    const isStale = this.#status === "live" && Date.now() - this.#heardAt > FRESH_MS;
    if (isWaiting || isStale) this.#connect("reconnecting");
  }

  #connect(status: ConnectionStatus): void {
    this.#hangUp();
    const current = new AbortController();
    this.#current = current;
    this.#say(status);
    this.#follow(current)
      .catch(() => null) // why a connection ended does not matter: the next one resumes after the last id
      .then((askedMs) => {
        if (this.#current === current) this.#retry(askedMs ?? 0);
      });
  }

  /** Read the stream to its end. Answers how long the server asked to stay away. */
  async #follow(current: AbortController): Promise<number> {
    this.#watch(current);
    const response = await this.#options.fetch(this.#options.url, {
      headers: {
        Accept: "text/event-stream",
        ...(this.#lastId === null ? {} : { "Last-Event-ID": this.#lastId }),
      },
      cache: "no-store",
      signal: current.signal,
    });
    if (!response.ok || response.body === null) return retryAfterMs(response.headers) ?? 0;
    this.#pending = [];
    this.#reset = false;
    this.#liveSince = Date.now();
    this.#say("live");
    const parser = createSseParser();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done || current.signal.aborted) return parser.retryMs ?? 0;
      this.#watch(current);
      const messages = parser.push(value).flatMap((event) => this.#interpret(event));
      if (messages.length > 0) this.#options.onMessages(messages);
    }
  }

  /** Snapshots are gathered until `ready` names the instant they are of, then told as one message. */
  #interpret(event: ServerSentEvent): Message[] {
    const body = parse(event.data);
    switch (event.type) {
      case "reset":
        this.#pending = [];
        this.#reset = true;
        return [];
      case "snapshot":
        if (isSnapshot(body)) this.#pending.push(body.generation);
        return [];
      case "ready": {
        const lastId = event.id ?? this.#lastId ?? "0-0";
        const message: Message = { kind: "snapshot", generations: this.#pending, lastId, reset: this.#reset };
        this.#pending = [];
        this.#reset = false;
        this.#lastId = lastId;
        return [message];
      }
      default:
        if (event.id === null || !isEvent(body)) return [];
        this.#lastId = event.id;
        return [{ kind: "event", event: { ...body, id: event.id } }];
    }
  }

  /** End a connection that says nothing for too long: its other end may be gone without a word. */
  #watch(current: AbortController): void {
    this.#heardAt = Date.now();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      if (this.#current !== current) return;
      current.abort();
      this.#retry(0);
    }, SILENCE_MS);
  }

  #retry(askedMs: number): void {
    this.#hangUp();
    const wasSteady = Date.now() - this.#liveSince > STEADY_MS;
    this.#failures = wasSteady ? 1 : this.#failures + 1;
    this.#liveSince = Number.POSITIVE_INFINITY;
    this.#say("reconnecting");
    const pause = Math.max(pauseMs(this.#failures, this.#options.random), askedMs);
    this.#timer = setTimeout(() => this.#connect("reconnecting"), pause);
  }

  #hangUp(): void {
    clearTimeout(this.#timer);
    this.#current?.abort();
    this.#current = null;
  }

  #say(status: ConnectionStatus): void {
    if (status === this.#status) return;
    this.#status = status;
    this.#options.onStatus(status);
  }
}

function parse(data: string): unknown {
  try {
    return JSON.parse(data);
  } catch {
    return null;
  }
}

function isSnapshot(body: unknown): body is { generation: Generation } {
  return typeof body === "object" && body !== null && "generation" in body;
}

function isEvent(body: unknown): body is QueueEvent {
  return typeof body === "object" && body !== null && "type" in body && "at" in body;
}
