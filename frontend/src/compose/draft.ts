/** What stands in the form: as typed, until it is sent. */

import type { FieldError } from "../api/problem";
import type { GenerationRequest, Input, ModelCard } from "../api/types";
import { parseNumber } from "../i18n/format";

export type NumberField = "width" | "height" | "steps" | "guidance_scale" | "seed";

export interface Draft {
  readonly prompt: string;
  readonly negativePrompt: string;
  /** null = the service's first model. */
  readonly model: string | null;
  readonly count: number;
  /** Only what the reader changed; the rest shows, and follows, the model's own numbers. */
  readonly numbers: Partial<Record<NumberField, string>>;
}

/** The ranges of orchestrator/generation.py; the server decides, these only guide the arrow keys. */
export const RANGES: Readonly<
  Record<NumberField, { readonly min: number; readonly max: number; readonly step: number }>
> = {
  width: { min: 64, max: 2048, step: 8 },
  height: { min: 64, max: 2048, step: 8 },
  steps: { min: 1, max: 150, step: 1 },
  guidance_scale: { min: 0, max: 30, step: 0.5 },
  seed: { min: 0, max: Number.MAX_SAFE_INTEGER, step: 1 },
};
export const COUNTS = [1, 2, 3, 4] as const;

export const EMPTY_DRAFT: Draft = { prompt: "", negativePrompt: "", model: null, count: 1, numbers: {} };

/** The draft that asks for the same picture again. */
export function draftOf(input: Input, plain: (value: number) => string): Draft {
  return {
    prompt: input.prompt,
    negativePrompt: input.negative_prompt,
    model: input.model,
    count: input.num_images,
    numbers: {
      width: plain(input.width),
      height: plain(input.height),
      steps: plain(input.steps),
      guidance_scale: plain(input.guidance_scale),
      seed: plain(input.seed),
    },
  };
}

export function cardOf(draft: Draft, cards: readonly ModelCard[]): ModelCard | undefined {
  return draft.model === null ? cards[0] : cards.find((card) => card.id === draft.model);
}

/** The model's own number for a field; the seed has none. */
export function defaultOf(field: NumberField, card: ModelCard | undefined): number | null {
  return field === "seed" || card === undefined ? null : card[field];
}

export interface Checked {
  readonly request: GenerationRequest;
  /** What needs no server to be seen as wrong. */
  readonly errors: readonly FieldError[];
}

export function check(draft: Draft, words: { readonly promptMissing: string; readonly notANumber: string }): Checked {
  const errors: FieldError[] = [];
  const prompt = draft.prompt.trim();
  if (prompt === "") errors.push({ field: "prompt", problem: words.promptMissing });

  const numbers: Partial<Record<NumberField, number>> = {};
  for (const [field, text] of Object.entries(draft.numbers) as [NumberField, string][]) {
    const value = parseNumber(text);
    if (Number.isNaN(value)) errors.push({ field, problem: words.notANumber });
    else if (value !== null) numbers[field] = value;
  }
  const request: GenerationRequest = {
    prompt,
    ...(draft.negativePrompt.trim() === "" ? {} : { negative_prompt: draft.negativePrompt.trim() }),
    ...(draft.model === null ? {} : { model: draft.model }),
    ...(draft.count === 1 ? {} : { num_images: draft.count }),
    ...numbers,
  };
  return { request, errors };
}
