/** What a screen reader is told when the state goes from one to the next: endings, and nothing else. */

import type { State } from "./reducer";

export interface Announcement {
  readonly kind: "completed" | "failed" | "canceled";
  readonly prompt: string;
}

export function announcements(previous: State, next: State): Announcement[] {
  if (previous.lastId === null) return []; // the first snapshot is what was, not what happened
  const told: Announcement[] = [];
  for (const [id, job] of next.jobs) {
    const before = previous.jobs.get(id);
    if (before === undefined || before === job || job.now.input === null) continue;
    const { status } = job.now;
    if (status !== "completed" && status !== "failed" && status !== "canceled") continue;
    if (before.now.status !== status || before.now.run !== job.now.run)
      told.push({ kind: status, prompt: job.now.input.prompt });
  }
  return told;
}
