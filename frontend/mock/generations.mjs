/** The mock's generations: jobs in memory that live through the contract's events, one at a time. */

import { randomBytes, randomInt } from "node:crypto";
import { drawPng } from "./picture.mjs";

const LOAD_MS = 600;
const RETRY_MS = 4000;
const KEPT_MS = 3_600_000;
const PREVIEW_EVERY = 3;
const MAX_EVENTS = 10_000;
const FRESH = {
  attempt: 0,
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
  expires_at: null,
};

export class Generations {
  #jobs = new Map();
  #keys = new Map();
  #events = [];
  #watchers = new Set();
  #isWorking = false;

  constructor(card, msPerStep) {
    this.card = card;
    this.msPerStep = msPerStep;
  }

  get lastId() {
    return this.#events.at(-1)?.id ?? "0-0";
  }

  get(id) {
    return this.#jobs.get(id);
  }

  newest(count) {
    return [...this.#jobs.values()].reverse().slice(0, count);
  }

  /** Events after this id; null = it is not covered. */
  after(id) {
    if (id === undefined || id > this.lastId || (this.#events[0]?.id ?? "") > id) return null;
    return this.#events.filter((event) => event.id > id);
  }

  watch(watcher) {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  add({ prompt, ...rest }, key) {
    const known = this.#keys.get(key);
    if (known !== undefined) return known;
    const id = randomBytes(13).toString("hex");
    const root = `/v1/generations/${id}`;
    const { width, height, steps, guidance_scale } = this.card;
    const input = {
      prompt,
      negative_prompt: "",
      model: this.card.id,
      width,
      height,
      steps,
      guidance_scale,
      seed: randomInt(2 ** 32),
      num_images: 1,
    };
    const job = {
      id,
      status: "waiting",
      run: 1,
      attempts: 3,
      priority: 100,
      input: { ...input, ...rest },
      ...FRESH,
      metadata: {},
      created_at: Date.now(),
      urls: { self: root, events: `${root}/events`, cancel: `${root}/cancel`, retry: `${root}/retry` },
    };
    this.#jobs.set(id, job);
    this.#keys.set(key, job);
    this.#emit(job, "added", { state: "waiting", priority: 100 });
    this.#work();
    return job;
  }

  /** Each answers null, or why it was refused. */
  cancel(job) {
    if (job.finished_at !== null) return `Job ${job.id} is ${job.status}.`;
    const cancel = { by: "", reason: "" };
    if (job.status !== "active") return this.#end(job, "canceled", { cancel }, { cancel, details: {} });
    Object.assign(job, { canceling: true, cancel });
    this.#emit(job, "canceling", { cancel });
    return null;
  }

  retry(job) {
    if (job.finished_at === null) return `Job ${job.id} is ${job.status}.`;
    Object.assign(job, FRESH, { status: "waiting", run: job.run + 1 });
    this.#emit(job, "retried", { state: "waiting" });
    this.#work();
    return null;
  }

  remove(job) {
    if (job.status === "active") return `Job ${job.id} is active; cancel it first.`;
    this.#jobs.delete(job.id);
    this.#emit(job, "removed", {});
    return null;
  }

  picture(job, index) {
    return job.images[index] === undefined ? null : drawPng(job.input, job.images[index].seed, 1);
  }

  preview(job) {
    return job.preview === null ? null : drawPng(job.input, job.input.seed, job.preview.step / job.input.steps);
  }

  #emit(job, type, fields) {
    const [at, n] = this.lastId.split("-").map(Number);
    const now = Math.max(Date.now(), at);
    const id = `${now}-${now === at ? n + 1 : 0}`;
    job.seq = (job.seq ?? 0) + 1;
    const event = {
      id,
      type,
      job: job.id,
      at: now,
      run: job.run,
      attempt: job.attempt,
      seq: job.seq,
      ...structuredClone(fields),
    };
    this.#events.push(event);
    if (this.#events.length > MAX_EVENTS) this.#events.shift();
    for (const watcher of this.#watchers) watcher(event);
  }

  #end(job, type, fields, event) {
    const now = Date.now();
    Object.assign(job, {
      status: type,
      canceling: false,
      due_at: null,
      finished_at: now,
      expires_at: now + KEPT_MS,
      ...fields,
    });
    this.#emit(job, type, event);
    return null;
  }

  async #work() {
    if (this.#isWorking) return;
    this.#isWorking = true;
    for (let job = this.#next(); job !== undefined; job = this.#next()) await this.#attempt(job);
    this.#isWorking = false;
  }

  #next() {
    return [...this.#jobs.values()].find(({ status }) => status === "waiting");
  }

  async #attempt(job) {
    const { steps } = job.input;
    Object.assign(job, {
      status: "active",
      attempt: job.attempt + 1,
      started_at: Date.now(),
      progress: null,
      preview: null,
      error: null,
    });
    this.#emit(job, "active", { worker: "mock", prev: "waiting" });
    this.#progress(job, { phase: "loading", fraction: 0 });
    await pause(LOAD_MS);
    this.#emit(job, "milestone", { name: "model_loaded", data: {} });
    for (let step = 1; step <= steps; step++) {
      await pause(this.msPerStep);
      if (job.canceling) return this.#stop(job, step);
      if (/\bfail\b/.test(job.input.prompt) && step > steps / 3) return this.#fail(job);
      if (/\bretry\b/.test(job.input.prompt) && step > steps / 3 && job.attempt === 1) return this.#delay(job);
      this.#progress(job, {
        phase: "denoising",
        step,
        steps,
        fraction: 0.05 + (0.9 * step) / steps,
        ms_per_step: this.msPerStep,
        eta_ms: (steps - step + 1) * this.msPerStep,
      });
      if (step % PREVIEW_EVERY === 0) this.#showPreview(job, step);
    }
    this.#progress(job, { phase: "decoding", step: steps, steps, fraction: 0.97, eta_ms: this.msPerStep });
    await pause(this.msPerStep);
    this.#complete(job);
  }

  #progress(job, progress) {
    job.progress = progress;
    this.#emit(job, "progress", { progress });
  }

  #showPreview(job, step) {
    const number = (job.preview?.number ?? 0) + 1;
    job.preview = { number, step, url: `/v1/generations/${job.id}/preview?n=${number}` };
    this.#emit(job, "milestone", { name: "preview_ready", data: { number, step, bytes: 700 }, url: job.preview.url });
  }

  #complete(job) {
    const { width, height, seed, num_images, steps } = job.input;
    const images = Array.from({ length: num_images }, (_, index) => ({
      index,
      url: `/v1/generations/${job.id}/images/${index}`,
      width,
      height,
      seed: seed + index,
      bytes: 12_000,
      content_type: "image/png",
    }));
    const timings = { load_ms: LOAD_MS, denoise_ms: steps * this.msPerStep, decode_ms: this.msPerStep };
    this.#end(job, "completed", { images, timings }, { result: timings, images, started_at: job.started_at });
  }

  #stop(job, step) {
    const details = { phase: "denoising", step, steps: job.input.steps };
    this.#end(job, "canceled", {}, { cancel: job.cancel, details });
  }

  #fail(job) {
    const error = { kind: "out_of_memory", message: "The device ran out of memory at step 12.", details: {} };
    this.#end(job, "failed", { error, reason: "error" }, { error, reason: "error" });
  }

  #delay(job) {
    const error = { kind: "transient", message: "The inference process was killed (signal 9).", details: {} };
    const due_at = Date.now() + RETRY_MS;
    Object.assign(job, { status: "delayed", due_at, error, progress: null, preview: null });
    this.#emit(job, "delayed", { due_at, prev: "active", error });
    setTimeout(() => {
      if (job.status !== "delayed") return;
      Object.assign(job, { status: "waiting", due_at: null });
      this.#emit(job, "waiting", { prev: "delayed" });
      this.#work();
    }, RETRY_MS);
  }
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
