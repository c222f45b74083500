import { describe, expect, test, vi } from "vitest";
import { event, fakeClient, fakeLine, generation, snapshot } from "../testing/fakes";
import { createSession } from "./session";

describe("a session", () => {
  test("fetches the record of a job it hears of for the first time, once", async () => {
    const getGeneration = vi.fn(async (id: string) => generation({ id }));
    const { session, say } = fakeLine(fakeClient({ getGeneration }));
    session.open();
    say(snapshot([]), event("added", 1, { job: "new", state: "waiting" }));
    say(event("active", 2, { job: "new" }));
    await vi.waitFor(() => expect(session.getSnapshot().state.jobs.get("new")?.now.input).toBeTruthy());
    expect(getGeneration).toHaveBeenCalledTimes(1);
    expect(session.getSnapshot().state.jobs.get("new")?.now.status).toBe("active");
  });

  test("forgets a job that is gone by the time it asks", async () => {
    const { session, say } = fakeLine(fakeClient({ getGeneration: async () => null }));
    session.open();
    say(snapshot([]), event("progress", 1, { job: "old" }));
    await vi.waitFor(() => expect(session.getSnapshot().state.jobs.size).toBe(0));
  });

  test("tries again at the next message when the record could not be read", async () => {
    const getGeneration = vi.fn().mockRejectedValueOnce(new Error("503")).mockResolvedValue(generation());
    const { session, say } = fakeLine(fakeClient({ getGeneration }));
    session.open();
    say(snapshot([]), event("added", 1, { state: "waiting" }));
    await vi.waitFor(() => expect(getGeneration).toHaveBeenCalledTimes(1));
    await vi.waitFor(() => {
      say(event("progress", 2));
      expect(session.getSnapshot().state.jobs.get("a")?.now.input).toBeTruthy();
    });
  });

  test("wakes its listeners once for a burst of messages, and not at all for what it knew", () => {
    const { session, say } = fakeLine();
    session.open();
    const listener = vi.fn();
    session.subscribe(listener);
    say(snapshot([generation()]), event("active", 1), event("progress", 2));
    expect(listener).toHaveBeenCalledTimes(1);
    say(event("active", 1), event("progress", 2));
    expect(listener).toHaveBeenCalledTimes(1);
  });

  test("opens one connection and closes it", () => {
    const [open, close] = [vi.fn(), vi.fn()];
    const session = createSession(fakeClient(), () => ({ open, close }));
    session.open()();
    expect(open).toHaveBeenCalledTimes(1);
    expect(close).toHaveBeenCalledTimes(1);
  });
});
