/** A queue in miniature for property tests: it lives through commands, tells the events, and can be photographed. */

import type { Message } from "../api/events";
import type { Generation, QueueEvent } from "../api/types";
import { generation, PICTURE } from "./fakes";

type Mutable = { -readonly [Field in keyof Generation]: Generation[Field] };

export const COMMANDS = [
  "add",
  "claim",
  "progress",
  "preview",
  "delay",
  "stall",
  "cancel",
  "complete",
  "fail",
  "stop",
  "retry",
  "remove",
  "prioritize",
] as const;
export type Command = (typeof COMMANDS)[number];

const EMPTY = {
  progress: null,
  preview: null,
  images: [],
  error: null,
  reason: null,
  cancel: null,
  canceling: false,
  timings: null,
  due_at: null,
  started_at: null,
  finished_at: null,
} as const;

export class MiniatureQueue {
  readonly jobs = new Map<string, Mutable>();
  readonly events: Message[] = [];
  readonly #counts = new Map<string, number>();
  #ms = 1_764_000_000_000;
  #n = 0;

  get lastId(): string {
    return `${this.#ms}-${this.#n}`;
  }

  photograph(): Message {
    this.#counts.set(this.lastId, this.events.length);
    return {
      kind: "snapshot",
      generations: structuredClone([...this.jobs.values()]),
      lastId: this.lastId,
      reset: false,
    };
  }

  /** How many events had happened when the photograph was taken. */
  eventsBefore(photograph: Message): number {
    const lastId = photograph.kind === "snapshot" ? photograph.lastId : "";
    const count = this.#counts.get(lastId);
    if (count === undefined) throw new Error("this is no photograph of this queue");
    return count;
  }

  /** Carry out the command if the job's state allows it. `pauseMs` 0 = within the same millisecond. */
  command(command: Command, id: string, pauseMs: number): void {
    const job = this.jobs.get(id);
    this.#n = pauseMs === 0 ? this.#n + 1 : 0;
    this.#ms += pauseMs;
    if (command === "add") {
      if (job === undefined) this.#add(id);
    } else if (job !== undefined) {
      this.#steer(command, job);
    }
  }

  #add(id: string): void {
    this.jobs.set(id, generation({ id, created_at: this.#ms, status: "waiting" }));
    this.#tell(id, "added", { state: "waiting", priority: 100 });
  }

  #steer(command: Command, job: Mutable): void {
    const isActive = job.status === "active";
    const isFinished = job.finished_at !== null;
    if (command === "claim" && job.status === "waiting") {
      Object.assign(job, {
        status: "active",
        attempt: job.attempt + 1,
        started_at: this.#ms,
        due_at: null,
        error: null,
        progress: null,
        preview: null,
      });
      this.#tell(job.id, "active", { worker: "w" });
    } else if (command === "progress" && isActive) {
      job.progress = { phase: "denoising", step: (job.progress?.step ?? 0) + 1, steps: 30, fraction: 0.1 };
      this.#tell(job.id, "progress", { progress: job.progress });
    } else if (command === "preview" && isActive) {
      const number = (job.preview?.number ?? 0) + 1;
      job.preview = { number, step: number * 5, url: `/preview?n=${number}` };
      this.#tell(job.id, "milestone", {
        name: "preview_ready",
        data: { number, step: number * 5 },
        url: job.preview.url,
      });
    } else if (command === "delay" && isActive) {
      Object.assign(job, {
        status: "delayed",
        due_at: this.#ms + 500,
        error: { kind: "transient", message: "lost" },
        progress: null,
        preview: null,
      });
      this.#tell(job.id, "delayed", { due_at: job.due_at, error: job.error });
    } else if (command === "stall" && (isActive || job.status === "delayed")) {
      Object.assign(job, { status: "waiting", due_at: null, error: null, progress: null, preview: null });
      this.#tell(job.id, "stalled", { stalled: 1 });
      this.#n += 1;
      this.#tell(job.id, "waiting", {});
    } else if (command === "cancel" && isActive) {
      Object.assign(job, { canceling: true, cancel: { by: "me", reason: "" } });
      this.#tell(job.id, "canceling", { cancel: job.cancel });
    } else if (command === "complete" && isActive) {
      this.#finish(job, "completed", {
        images: [PICTURE],
        timings: { load_ms: 1, denoise_ms: 2, decode_ms: 3 },
        error: null,
      });
      this.#tell(job.id, "completed", { images: job.images, result: job.timings });
    } else if (command === "fail" && isActive) {
      this.#finish(job, "failed", { reason: "error", error: { kind: "poison", message: "no" } });
      this.#tell(job.id, "failed", { reason: job.reason, error: job.error });
    } else if (command === "stop" && !isFinished) {
      this.#finish(job, "canceled", { cancel: { by: "me", reason: "late" } });
      this.#tell(job.id, "canceled", { cancel: job.cancel, details: {} });
    } else if (command === "retry" && isFinished) {
      Object.assign(job, EMPTY, { status: "waiting", run: job.run + 1, attempt: 0 });
      this.#tell(job.id, "retried", { state: "waiting" });
    } else if (command === "remove" && !isActive) {
      this.jobs.delete(job.id);
      this.#tell(job.id, "removed", {}, job);
    } else if (command === "prioritize" && !isFinished) {
      job.priority = 1 + (job.priority % 7);
      this.#tell(job.id, "priority", { priority: job.priority });
    }
  }

  #finish(job: Mutable, status: Generation["status"], fields: Partial<Mutable>): void {
    Object.assign(job, { status, finished_at: this.#ms, canceling: false, due_at: null, ...fields });
  }

  #tell(id: string, type: string, fields: Partial<QueueEvent>, gone?: Generation): void {
    const { run = 1, attempt = 0 } = this.jobs.get(id) ?? gone ?? {};
    const event = { id: this.lastId, type, job: id, at: this.#ms, run, attempt, ...structuredClone(fields) };
    this.events.push({ kind: "event", event });
  }
}
