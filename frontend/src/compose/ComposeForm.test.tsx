import { act, screen, waitFor } from "@testing-library/react";
import { type ComponentProps, useState } from "react";
import { afterEach, describe, expect, test, vi } from "vitest";
import type { Client } from "../api/client";
import { Problem } from "../api/problem";
import { CARD, fakeClient, generation } from "../testing/fakes";
import { expectAccessible, show, user } from "../testing/show";
import { ComposeForm } from "./ComposeForm";
import { type Draft, draftOf, EMPTY_DRAFT } from "./draft";
import type { Models } from "./useModels";

const READY: Models = { status: "ready", cards: [CARD, { ...CARD, id: "big/model", width: 512, prompts: {} }] };

function form({
  client = fakeClient(),
  models = READY,
  start = EMPTY_DRAFT,
}: {
  client?: Client;
  models?: Models;
  start?: Draft;
} = {}) {
  const onCreated = vi.fn();
  const view = show(<StatefulForm client={client} models={models} start={start} onCreated={onCreated} />);
  return { ...view, client, onCreated };
}

function StatefulForm({
  start,
  ...rest
}: Omit<ComponentProps<typeof ComposeForm>, "draft" | "onDraft"> & { start: Draft }) {
  const [draft, setDraft] = useState(start);
  return <ComposeForm {...rest} draft={draft} onDraft={setDraft} />;
}

const prompt = () => screen.getByRole<HTMLTextAreaElement>("textbox", { name: "Prompt" });
const create = () => screen.getByRole("button", { name: /^Create/ });
const field = (name: string) => screen.getByRole<HTMLInputElement>("spinbutton", { name });

afterEach(() => vi.useRealTimers());

describe("the form", () => {
  test("sends the prompt alone when nothing else was chosen", async () => {
    const { client, onCreated } = form();
    await user.type(prompt(), "a red circle");
    await user.click(create());
    expect(client.createGeneration).toHaveBeenCalledWith({ prompt: "a red circle" }, expect.stringMatching(/^\w{32}$/));
    await waitFor(() => expect(screen.getByRole("status").textContent).toBe("Added to the queue."));
    expect(onCreated).toHaveBeenCalledWith(generation());
  });

  test("sends once, however often it is clicked", async () => {
    const createGeneration = vi.fn(() => new Promise<never>(() => undefined));
    form({ client: fakeClient({ createGeneration }) });
    await user.type(prompt(), "a red circle");
    await user.dblClick(create());
    await user.click(screen.getByRole("button", { name: "Sending…" }));
    await user.type(prompt(), "{Control>}{Enter}{/Control}");
    expect(createGeneration).toHaveBeenCalledTimes(1);
  });

  test("sends with Ctrl+Enter", async () => {
    const { client } = form();
    await user.type(prompt(), "a star{Control>}{Enter}{/Control}");
    expect(client.createGeneration).toHaveBeenCalledTimes(1);
  });

  test("uses the same key again when there was no answer, and a new one after an answer", async () => {
    const createGeneration = vi
      .fn<Client["createGeneration"]>()
      .mockRejectedValueOnce(new Problem(0, "gone"))
      .mockResolvedValue(generation());
    form({ client: fakeClient({ createGeneration }) });
    await user.type(prompt(), "a star");
    await user.click(create());
    expect((await screen.findByRole("alert")).textContent).toContain("it will not be made twice");
    await user.click(create());
    await waitFor(() => expect(screen.getByRole("status").textContent).toBe("Added to the queue."));
    await user.click(create());
    await waitFor(() => expect(createGeneration).toHaveBeenCalledTimes(3));
    const [first, second, third] = createGeneration.mock.calls.map(([, key]) => key);
    expect(second).toBe(first);
    expect(third).not.toBe(first);
  });

  test("asks for a prompt without asking the server", async () => {
    const { client } = form();
    await user.click(create());
    expect(client.createGeneration).not.toHaveBeenCalled();
    expect(prompt().getAttribute("aria-invalid")).toBe("true");
    expect(document.activeElement).toBe(prompt());
    await user.type(prompt(), "a");
    expect(prompt().getAttribute("aria-invalid")).toBeNull();
  });

  test("takes a suggestion, and offers others", async () => {
    form({ models: { status: "ready", cards: [{ ...CARD, prompts: { en: ["one", "two", "three", "four"] } }] } });
    await user.click(screen.getByRole("button", { name: "two" }));
    expect(prompt().value).toBe("two");
    await user.click(screen.getByRole("button", { name: "Other examples" }));
    expect(screen.getByRole("button", { name: "four" })).toBeTruthy();
  });

  test("shows the model's own numbers and follows another model", async () => {
    form();
    expect(field("Width").value).toBe("128");
    await user.selectOptions(screen.getByRole("combobox", { name: "Model", hidden: true }), "big/model");
    expect(field("Width").value).toBe("512");
  });

  test("sends what was changed, in whatever digits it was typed", async () => {
    const { client } = form();
    await user.type(prompt(), "a star");
    await user.clear(field("Steps"));
    await user.type(field("Steps"), "۱۲");
    await user.type(field("Seed"), "7");
    await user.click(screen.getByRole("radio", { name: "3" }));
    await user.click(create());
    expect(client.createGeneration).toHaveBeenCalledWith(
      { prompt: "a star", steps: 12, seed: 7, num_images: 3 },
      expect.anything(),
    );
  });

  test("steps a number with the arrow keys within its range", async () => {
    form();
    await user.type(field("Width"), "{ArrowUp}");
    expect(field("Width").value).toBe("136");
    await user.type(field("Guidance"), "{ArrowDown}{ArrowDown}{ArrowDown}{ArrowDown}{ArrowDown}");
    expect(field("Guidance").value).toBe("0");
  });

  test("does not send a word for a number", async () => {
    const { client } = form();
    await user.type(prompt(), "a star");
    await user.clear(field("Steps"));
    await user.type(field("Steps"), "many");
    await user.click(create());
    expect(client.createGeneration).not.toHaveBeenCalled();
    expect(screen.getByText("Must be a number.")).toBeTruthy();
  });

  test("shows the server's errors at their fields, also in the closed part", async () => {
    const createGeneration = vi.fn(async () => {
      throw new Problem(422, "invalid", [{ field: "width", problem: "must be a multiple of 8" }]);
    });
    const { container } = form({ client: fakeClient({ createGeneration }) });
    await user.type(prompt(), "a star");
    await user.click(create());
    await screen.findByText("must be a multiple of 8");
    expect(container.querySelector("details")?.open).toBe(true);
    const width = field("Width");
    expect(document.activeElement).toBe(width);
    const described = width
      .getAttribute("aria-describedby")
      ?.split(" ")
      .map((id) => document.getElementById(id)?.textContent);
    expect(described).toContain("must be a multiple of 8");
    await user.type(width, "{ArrowUp}");
    expect(width.getAttribute("aria-invalid")).toBeNull();
  });

  test("counts down when the queue is full", async () => {
    const createGeneration = vi.fn(async () => {
      throw new Problem(429, "full", [], 3000);
    });
    form({ client: fakeClient({ createGeneration }), start: { ...EMPTY_DRAFT, prompt: "a star" } });
    vi.useFakeTimers();
    await act(async () => create().click());
    expect(screen.getByRole("alert").textContent).toContain("The queue is full for now.");
    expect(screen.getByText("You can try again in 3 sec.")).toBeTruthy();
    await act(() => vi.advanceTimersByTimeAsync(2000));
    expect(screen.getByText("You can try again in 1 sec.")).toBeTruthy();
    await act(() => vi.advanceTimersByTimeAsync(1000));
    expect(screen.queryByText(/You can try again/)).toBeNull();
  });

  test("takes over a generation's settings, and gives them up again", async () => {
    const { input } = generation();
    const { client } = form({ start: draftOf({ ...input, steps: 9, num_images: 2 }, String) });
    await user.click(create());
    const { negative_prompt: _, ...asked } = { ...input, steps: 9, num_images: 2 };
    expect(client.createGeneration).toHaveBeenCalledWith(asked, expect.anything());
    await user.click(screen.getByRole("button", { name: "Back to the model's defaults", hidden: true }));
    expect(field("Steps").value).toBe("30");
    expect(prompt().value).toBe(input.prompt);
  });

  test.each<Models["status"]>(["loading", "failed"])("can be used while the models are %s", async (status) => {
    const { client } = form({ models: { status, cards: [] } });
    await user.type(prompt(), "a star");
    await user.click(create());
    expect(client.createGeneration).toHaveBeenCalledTimes(1);
  });

  test("breaks no rule of accessibility, with and without errors", async () => {
    const { container } = form();
    await expectAccessible(container);
    await user.click(create());
    await expectAccessible(container);
  });
});
