/** Server-sent events out of a byte stream. Source: WHATWG HTML, "Interpreting an event stream". */

export interface ServerSentEvent {
  readonly type: string;
  readonly data: string;
  /** The last id the stream has named, in this event or before it; null = none yet. */
  readonly id: string | null;
}

export interface SseParser {
  /** Feed the next piece of text, cut anywhere; returns the events it completed. */
  push(chunk: string): ServerSentEvent[];
  /** The reconnection time the server asked for, in ms. */
  readonly retryMs: number | null;
}

const LINE_END = /\r\n|\r|\n/;

export function createSseParser(): SseParser {
  let rest = "";
  let type = "";
  let data: string[] = [];
  let id: string | null = null;
  let retryMs: number | null = null;
  let started = false;

  function field(line: string): void {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") data.push(value);
    else if (name === "event") type = value;
    else if (name === "id" && !value.includes("\0")) id = value;
    else if (name === "retry" && /^\d+$/.test(value)) retryMs = Number(value);
  }

  function dispatch(events: ServerSentEvent[]): void {
    // Unlike EventSource, an event that has a name but no data counts: `ready` may carry its id alone.
    if (data.length > 0 || type !== "") events.push({ type: type || "message", data: data.join("\n"), id });
    type = "";
    data = [];
  }

  return {
    get retryMs() {
      return retryMs;
    },
    push(chunk) {
      const events: ServerSentEvent[] = [];
      rest += started ? chunk : chunk.replace(/^\uFEFF/, "");
      started ||= chunk !== "";
      // A "\r" at the very end may be half of "\r\n": it waits for the next piece.
      const held = rest.endsWith("\r") ? "\r" : "";
      const lines = (held ? rest.slice(0, -1) : rest).split(LINE_END);
      rest = (lines.pop() ?? "") + held;
      for (const line of lines) {
        if (line === "") dispatch(events);
        else field(line);
      }
      return events;
    },
  };
}
