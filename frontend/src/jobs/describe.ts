/** What a job is doing, in words: one place for the card, the progress bar and the screen reader. */

import type { Dictionary } from "../i18n/dictionary";
import type { Format } from "../i18n/format";
import type { Fields } from "./reducer";

export interface Described {
  /** "Drawing", "In the queue", … */
  readonly what: string;
  /** Which step of how many, where steps are what counts. */
  readonly step: Told | null;
  /** How much time is left, when known. */
  readonly left: Told | null;
}

/** The same for the eye, which has the bar beside it, and in full for the ear. */
export interface Told {
  readonly short: string;
  readonly full: string;
}

export function isUnfinished({ status }: Fields): boolean {
  return status === "waiting" || status === "delayed" || status === "active";
}

export function describe(now: Fields, t: Dictionary, format: Format): Described {
  const { progress } = now;
  if (now.canceling) return { what: t.status.canceling, step: null, left: null };
  if (now.status !== "active") return { what: t.status[now.status], step: null, left: null };
  if (progress === null) return { what: t.phase.starting, step: null, left: null };
  const { phase, step = 0, steps = 0, eta_ms } = progress;
  return {
    what: t.phase[phase] ?? phase,
    step: phase === "denoising" && steps > 0 ? tellStep(format.number(step), format.number(steps), t) : null,
    left: typeof eta_ms === "number" ? tellLeft(format.duration(eta_ms), t) : null,
  };
}

function tellStep(step: string, steps: string, t: Dictionary): Told {
  return { short: `${step}/${steps}`, full: t.progress.step(step, steps) };
}

function tellLeft(time: string, t: Dictionary): Told {
  return { short: t.progress.leftShort(time), full: t.progress.left(time) };
}

/** How far it is, in (0, 1]; null = not begun, or nobody can say how far. */
export function fractionOf(now: Fields): number | null {
  const fraction = now.status === "active" ? (now.progress?.fraction ?? 0) : 0;
  return fraction > 0 ? Math.min(1, fraction) : null;
}

/** The advice for a failure: the most specific that is known. */
export function advise(now: Fields, t: Dictionary): string {
  const words: Readonly<Record<string, string>> = t.failure;
  const byReason = now.reason !== null && now.reason !== "error" ? words[now.reason] : undefined;
  const byKind = now.error !== null ? words[now.error.kind] : undefined;
  return byReason ?? byKind ?? t.failure.error;
}
