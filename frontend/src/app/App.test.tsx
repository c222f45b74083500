import { act, render, screen, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { changePreferences } from "../preferences/preferences";
import { render as prerender } from "../prerender/render";
import { fakeClient, fakeLine, generation, PICTURE, snapshot } from "../testing/fakes";
import { expectAccessible, user } from "../testing/show";
import { App } from "./App";

beforeEach(() => act(() => changePreferences({ locale: "en", theme: "auto" })));
afterEach(() => vi.useRealTimers());

function app() {
  const line = fakeLine(fakeClient());
  return { ...render(<App session={line.session} />), ...line };
}

describe("the page", () => {
  test("is rendered ahead without anything that its policy forbids", () => {
    const html = prerender();
    expect(html).toContain("New picture");
    expect(html).not.toMatch(/style=|<script|<style|\son\w+=/);
  });

  test("wakes from its prerendered form without a mismatch", async () => {
    const container = document.createElement("div");
    document.body.append(container);
    container.innerHTML = prerender();
    const onRecoverableError = vi.fn();
    const { session } = fakeLine();
    render(<App session={session} />, { container, hydrate: true, onRecoverableError });
    await screen.findByRole("button", { name: "a red circle" });
    expect(onRecoverableError).not.toHaveBeenCalled();
  });

  test("speaks Persian from right to left when asked to, and remembers", async () => {
    const { container, say } = app();
    await user.click(screen.getByRole("radio", { name: "فارسی" }));
    expect([document.documentElement.lang, document.documentElement.dir]).toEqual(["fa", "rtl"]);
    expect(screen.getByRole("button", { name: "بساز" })).toBeTruthy();
    expect(await screen.findByRole("button", { name: "یک دایره قرمز" })).toBeTruthy();
    expect(localStorage.getItem("kargah.preferences")).toContain('"fa"');
    act(() =>
      say(
        snapshot([
          generation({ status: "active", progress: { phase: "denoising", step: 3, steps: 30, fraction: 0.1 } }),
        ]),
      ),
    );
    expect(screen.getByRole("progressbar").getAttribute("aria-valuetext")).toBe("در حال کشیدن, گام ۳ از ۳۰");
    await expectAccessible(container);
  });

  test("turns dark or light when told, and else follows the system", async () => {
    app();
    await user.click(screen.getByRole("radio", { name: "Dark" }));
    expect(document.documentElement.dataset.theme).toBe("dark");
    await user.click(screen.getByRole("radio", { name: "As the system" }));
    expect(document.documentElement.dataset.theme).toBeUndefined();
  });

  test("says when the connection is lost for more than a moment, and when it is back", async () => {
    vi.useFakeTimers();
    const { become } = app();
    act(() => become("live"));
    act(() => become("reconnecting"));
    expect(screen.queryByRole("alert")).toBeNull();
    await act(() => vi.advanceTimersByTimeAsync(1500));
    expect(screen.getByRole("alert").textContent).toContain("The connection is lost.");
    act(() => become("live"));
    expect(screen.queryByRole("alert")).toBeNull();
    expect(screen.getByRole("status").textContent).toBe("Connected again.");
  });

  test("shows a new generation at once, before any event of it", async () => {
    const { say } = app();
    act(() => say(snapshot([])));
    await user.type(screen.getByRole("textbox", { name: "Prompt" }), "a red circle");
    await user.click(screen.getByRole("button", { name: "Create" }));
    await waitFor(() => expect(screen.getByRole("article")).toBeTruthy());
  });

  test("brings a picture's settings back into the form", async () => {
    const { say } = app();
    act(() => say(snapshot([generation({ status: "completed", images: [PICTURE] })])));
    await user.click(screen.getByRole("button", { name: "Use these settings" }));
    const prompt = screen.getByRole<HTMLTextAreaElement>("textbox", { name: "Prompt" });
    expect(prompt.value).toBe("a red circle");
    expect(document.activeElement).toBe(prompt);
  });

  test("holds one connection and lets it go when it is left", () => {
    const { isOpen, unmount } = app();
    expect(isOpen()).toBe(true);
    unmount();
    expect(isOpen()).toBe(false);
  });

  test("breaks no rule of accessibility", async () => {
    const { container, say } = app();
    act(() => say(snapshot([generation(), generation({ id: "b", status: "completed", images: [PICTURE] })])));
    await screen.findByRole("button", { name: "a red circle" });
    await expectAccessible(container);
  });
});
