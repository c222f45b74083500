/** The API's nouns, as the contract in orchestrator/api writes them. Instants are ms since the epoch, `_at`. */

export type Status = "waiting" | "delayed" | "active" | "completed" | "failed" | "canceled";
export type Phase = "loading" | "encoding" | "denoising" | "decoding" | "storing";

export interface Input {
  readonly prompt: string;
  readonly negative_prompt: string;
  readonly model: string;
  readonly width: number;
  readonly height: number;
  readonly steps: number;
  readonly guidance_scale: number;
  readonly seed: number;
  readonly num_images: number;
}

/** Left-out fields of a progress are the server's defaults (0, or unknown). */
export interface Progress {
  readonly phase: Phase;
  readonly step?: number;
  readonly steps?: number;
  readonly fraction?: number;
  readonly ms_per_step?: number | null;
  readonly eta_ms?: number | null;
}

export interface Preview {
  readonly number: number;
  readonly step: number;
  readonly url: string;
}

export interface Picture {
  readonly index: number;
  readonly url: string;
  readonly width: number;
  readonly height: number;
  readonly seed: number;
  readonly bytes: number;
  readonly content_type: string;
}

export interface JobError {
  readonly kind: string;
  readonly message: string;
}

export interface Cancel {
  readonly by?: string;
  readonly reason?: string;
}

export interface Timings {
  readonly load_ms: number;
  readonly denoise_ms: number;
  readonly decode_ms: number;
}

export interface Generation {
  readonly id: string;
  readonly status: Status;
  readonly run: number;
  readonly attempt: number;
  readonly attempts: number;
  readonly priority: number;
  readonly input: Input;
  readonly progress: Progress | null;
  readonly preview: Preview | null;
  readonly images: readonly Picture[];
  readonly error: JobError | null;
  readonly reason: "error" | "timeout" | "expired" | "stalled" | null;
  readonly cancel: Cancel | null;
  readonly canceling: boolean;
  readonly timings: Timings | null;
  readonly created_at: number;
  readonly due_at: number | null;
  readonly started_at: number | null;
  readonly finished_at: number | null;
  readonly expires_at: number | null;
}

export interface ModelCard {
  readonly id: string;
  readonly width: number;
  readonly height: number;
  readonly steps: number;
  readonly guidance_scale: number;
  readonly prompts?: Readonly<Record<string, readonly string[]>>;
}

/** The body of `POST /v1/generations`; what is left out is the model's own. */
export type GenerationRequest = Pick<Input, "prompt"> & Partial<Input>;

export interface Page {
  readonly data: readonly Generation[];
  readonly next_cursor: string | null;
}

/** One event of the queue: flat JSON, with its id (`<ms>-<n>`) and the fields of its type. */
export interface QueueEvent {
  readonly id: string;
  readonly type: string;
  readonly job?: string | null;
  readonly at: number;
  readonly run?: number;
  readonly attempt?: number;
  readonly seq?: number;
  readonly [field: string]: unknown;
}
