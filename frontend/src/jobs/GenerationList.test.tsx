import { act, screen, within } from "@testing-library/react";
import { describe, expect, test, vi } from "vitest";
import { Problem } from "../api/problem";
import type { Generation } from "../api/types";
import { event, fakeClient, fakeLine, generation, PICTURE, snapshot } from "../testing/fakes";
import { expectAccessible, show, user } from "../testing/show";
import { GenerationList } from "./GenerationList";
import { SessionProvider } from "./SessionContext";

function list(generations: readonly Generation[] | null, client = fakeClient()) {
  const line = fakeLine(client);
  const onReuse = vi.fn();
  const view = show(
    <SessionProvider session={line.session}>
      <GenerationList onReuse={onReuse} />
    </SessionProvider>,
  );
  if (generations !== null) act(() => line.say(snapshot(generations)));
  return { ...view, ...line, client, onReuse };
}

const active = generation({ status: "active", attempt: 1 });
const drawing = event("progress", 1, {
  progress: { phase: "denoising", step: 12, steps: 30, fraction: 0.4, ms_per_step: 80, eta_ms: 1500 },
});

describe("the list", () => {
  test("says that it is loading until it knows, and then that it is empty", () => {
    const { say } = list(null);
    expect(screen.getByText("Loading your pictures…")).toBeTruthy();
    act(() => say(snapshot([])));
    expect(screen.getByText("Nothing here yet")).toBeTruthy();
  });

  test("shows the newest first", () => {
    list([generation({ id: "old", created_at: 1 }), generation({ id: "new", created_at: 2 })]);
    expect(screen.getAllByRole("article").map((card) => card.dataset.id)).toEqual(["new", "old"]);
  });

  test("leaves out what the server has let expire by itself", () => {
    list([generation({ status: "completed", expires_at: Date.now() - 1 })]);
    expect(screen.queryByRole("article")).toBeNull();
  });

  test("announces a finished picture and nothing before", () => {
    const { say } = list([active]);
    act(() => say(drawing));
    expect(screen.getByRole("status").textContent).toBe("");
    act(() => say(event("completed", 2, { images: [PICTURE] })));
    expect(screen.getByRole("status").textContent).toBe("Picture ready: a red circle");
  });

  test("asks for older ones when there may be any, page by page", async () => {
    const page = (id: string, next_cursor: string | null) => ({
      data: [generation({ id, created_at: 0 })],
      next_cursor,
    });
    const listGenerations = vi
      .fn()
      .mockResolvedValueOnce(page("j0", "c1"))
      .mockResolvedValueOnce(page("older", "c2"))
      .mockResolvedValueOnce(page("oldest", null));
    const { container } = list(
      Array.from({ length: 50 }, (_, n) => generation({ id: `j${n}` })),
      fakeClient({ listGenerations }),
    );
    await user.click(screen.getByText("Show older ones"));
    await vi.waitFor(() => expect(container.querySelectorAll("article")).toHaveLength(51));
    await user.click(await screen.findByText("Show older ones"));
    await vi.waitFor(() => expect(container.querySelectorAll("article")).toHaveLength(52));
    expect(screen.queryByText("Show older ones")).toBeNull();
    expect(listGenerations.mock.calls.map(([cursor]) => cursor)).toEqual([null, "c1", "c2"]);
  });
});

describe("a card", () => {
  test("shows progress as a bar with values and words", () => {
    const { say } = list([active]);
    const bar = screen.getByRole("progressbar", { name: "Progress of “a red circle”" });
    expect(bar.getAttribute("aria-valuenow")).toBeNull();
    act(() => say(drawing));
    expect(bar.getAttribute("aria-valuenow")).toBe("40");
    expect([bar.getAttribute("aria-valuemin"), bar.getAttribute("aria-valuemax")]).toEqual(["0", "100"]);
    expect(bar.getAttribute("aria-valuetext")).toBe("Drawing, step 12 of 30, about 1.5 sec left");
  });

  test("shows the newest preview, then the pictures with their downloads", () => {
    const { say } = list([active]);
    act(() => say(event("milestone", 1, { name: "preview_ready", data: { number: 1, step: 5 }, url: "/p?n=1" })));
    expect(screen.getByAltText("Preview: a red circle").getAttribute("src")).toBe("/p?n=1");
    act(() => say(event("completed", 2, { images: [PICTURE] })));
    expect(screen.getByAltText("a red circle").getAttribute("src")).toBe(PICTURE.url);
    const link = screen.getByRole("link", { name: "Download" });
    expect([link.getAttribute("href"), link.getAttribute("download")]).toEqual([PICTURE.url, ""]);
  });

  test("cancels once, however often it is clicked, and says that it is stopping", async () => {
    const cancelGeneration = vi.fn(() => new Promise<void>(() => undefined));
    const { say } = list([active], fakeClient({ cancelGeneration }));
    await user.dblClick(screen.getByRole("button", { name: "Cancel" }));
    expect(cancelGeneration.mock.calls).toEqual([["a"]]);
    act(() => say(event("canceling", 1, { cancel: {} })));
    expect(screen.getByRole("button", { name: "Stopping…" }).getAttribute("aria-disabled")).toBe("true");
    act(() => say(event("canceled", 2, { details: { phase: "denoising", step: 9, steps: 30 } })));
    expect(screen.getByRole("article").textContent).toContain("Stopped at step 9 of 30.");
  });

  test("says why it failed and what to do, and tries again", async () => {
    const { client } = list([
      generation({
        status: "failed",
        reason: "error",
        error: { kind: "out_of_memory", message: "CUDA out of memory" },
      }),
    ]);
    const card = within(screen.getByRole("article"));
    expect(card.getByText(/Choose a smaller size or fewer pictures/)).toBeTruthy();
    expect(card.getByText("CUDA out of memory")).toBeTruthy();
    await user.click(card.getByRole("button", { name: "Try again" }));
    expect(client.retryGeneration).toHaveBeenCalledWith("a");
  });

  test("tells when the next attempt begins, and why there is one", () => {
    const error = { kind: "transient", message: "the process was killed" };
    list([generation({ status: "delayed", attempt: 1, due_at: Date.now() + 4000, error })]);
    expect(screen.getByText(/Attempt 1 of 3 · next attempt in 4 sec/)).toBeTruthy();
    expect(screen.getByText(error.message)).toBeTruthy();
  });

  test("asks before it deletes, with the focus on the harmless answer", async () => {
    const { client } = list([generation({ status: "completed", images: [PICTURE] })]);
    await user.click(screen.getByRole("button", { name: "Delete" }));
    expect(document.activeElement).toBe(screen.getByRole("button", { name: "Keep" }));
    await user.keyboard("{Escape}");
    expect(client.deleteGeneration).not.toHaveBeenCalled();
    await user.click(screen.getByRole("button", { name: "Delete" }));
    await user.click(screen.getByRole("button", { name: "Delete" }));
    expect(client.deleteGeneration).toHaveBeenCalledWith("a");
    expect(screen.queryByRole("article")).toBeNull();
    expect(document.activeElement).toBe(screen.getByRole("heading", { name: /Pictures/ }));
  });

  test("says when a call did not work", async () => {
    const cancelGeneration = vi.fn(async () => {
      throw new Problem(409, "Job a is completed.");
    });
    list([active], fakeClient({ cancelGeneration }));
    await user.click(screen.getByRole("button", { name: "Cancel" }));
    expect((await screen.findByRole("alert")).textContent).toContain("Job a is completed.");
  });

  test("hands its settings to the form", async () => {
    const { onReuse } = list([generation({ status: "completed", images: [PICTURE] })]);
    await user.click(screen.getByRole("button", { name: "Use these settings" }));
    expect(onReuse).toHaveBeenCalledWith(generation().input);
  });

  test("opens a picture large, turns through them with the arrow keys, and closes", async () => {
    const second = { ...PICTURE, index: 1, seed: 8, url: "/v1/generations/a/images/1" };
    list([generation({ status: "completed", images: [PICTURE, second] })]);
    await user.click(screen.getByRole("button", { name: "Look at picture 1 of “a red circle”" }));
    const dialog = screen.getByRole("dialog", { name: "a red circle" });
    expect(within(dialog).getByRole("img").getAttribute("src")).toBe(PICTURE.url);
    within(dialog).getByRole("button", { name: "Close" }).focus();
    await user.keyboard("{ArrowRight}");
    expect(within(dialog).getByRole("img").getAttribute("src")).toBe(second.url);
    await user.click(within(dialog).getByRole("button", { name: "Close" }));
    expect(screen.queryByRole("dialog")).toBeNull();
  });

  test("says when a picture is no longer there", () => {
    list([generation({ status: "completed", images: [PICTURE] })]);
    act(() => screen.getByRole("img").dispatchEvent(new Event("error")));
    expect(screen.getByText("This picture is no longer kept.")).toBeTruthy();
  });

  test.each<[string, Partial<Generation>]>([
    ["waiting", {}],
    ["active", { status: "active", progress: { phase: "denoising", step: 3, steps: 30, fraction: 0.1 } }],
    ["completed", { status: "completed", images: [PICTURE] }],
    ["failed", { status: "failed", reason: "timeout", error: { kind: "timeout", message: "slow" } }],
    ["canceled", { status: "canceled", cancel: { reason: "changed my mind" } }],
  ])("breaks no rule of accessibility when %s", async (_, part) => {
    const { container } = list([generation(part)]);
    await expectAccessible(container);
  });
});
