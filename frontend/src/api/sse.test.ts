import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createSseParser } from "./sse";

function parse(text: string) {
  return createSseParser().push(text);
}

describe("the parser of server-sent events", () => {
  test("reads type, data and id", () => {
    expect(parse('id: 7-1\nevent: progress\ndata: {"a":1}\n\n')).toEqual([
      { type: "progress", data: '{"a":1}', id: "7-1" },
    ]);
  });

  test("keeps the last id for events that name none", () => {
    expect(parse("id: 1\ndata: a\n\ndata: b\n\n").map(({ id }) => id)).toEqual(["1", "1"]);
  });

  test("joins lines of data and ignores comments and unknown fields", () => {
    expect(parse(":\n: hello\nodd: x\ndata: a\ndata: b\n\n")).toEqual([{ type: "message", data: "a\nb", id: null }]);
  });

  test("tells a named event that has no data, for the sake of its id", () => {
    expect(parse("event: ready\nid: 5-0\n\n")).toEqual([{ type: "ready", data: "", id: "5-0" }]);
  });

  test("does not tell an event before its empty line", () => {
    expect(parse("data: half\n")).toEqual([]);
  });

  test("takes a byte order mark and a retry time", () => {
    const parser = createSseParser();
    expect(parser.push("\uFEFFretry: 3000\ndata: a\n\n")).toHaveLength(1);
    expect(parser.retryMs).toBe(3000);
  });

  test("understands the same however the text is cut and whatever ends its lines", () => {
    const stream = 'event: snapshot\ndata: {"x":"é"}\n\n:\n\nid: 3-1\nevent: added\ndata: 1\ndata: 2\n\n';
    const whole = parse(stream);
    fc.assert(
      fc.property(
        fc.constantFrom("\n", "\r\n", "\r"),
        fc.array(fc.nat({ max: stream.length * 2 }), { maxLength: 12 }),
        (ending, places) => {
          const text = stream.replaceAll("\n", ending);
          const cuts = [...new Set(places.filter((place) => place < text.length))].sort((a, b) => a - b);
          const parser = createSseParser();
          const pieces = [0, ...cuts].map((from, n) => text.slice(from, cuts[n] ?? text.length));
          const events = pieces.flatMap((piece) => parser.push(piece));
          // A final "\r" may be half of "\r\n": only what follows, here a heartbeat, tells.
          expect([...events, ...parser.push(":")]).toEqual(whole);
        },
      ),
    );
  });
});
