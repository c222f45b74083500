/** What can go wrong with a call: the server's problem+json, or no answer at all. */

export interface FieldError {
  readonly field: string;
  readonly problem: string;
}

export class Problem extends Error {
  override readonly name = "Problem";
  /** The HTTP status; 0 = the server could not be reached. */
  readonly status: number;
  readonly errors: readonly FieldError[];
  /** How long the server asked to wait, when it did. */
  readonly retryAfterMs: number | null;

  constructor(status: number, message: string, errors: readonly FieldError[] = [], retryAfterMs: number | null = null) {
    super(message);
    this.status = status;
    this.errors = errors;
    this.retryAfterMs = retryAfterMs;
  }

  /** Whether the very same request may succeed later (the queue is full, the store or the server is away). */
  get isTemporary(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }

  static async from(response: Response): Promise<Problem> {
    const body: unknown = await response.json().catch(() => null);
    const fields = isRecord(body) ? body : {};
    const detail = text(fields.detail) ?? text(fields.title) ?? (response.statusText || `HTTP ${response.status}`);
    return new Problem(response.status, detail, fieldErrors(fields, detail), retryAfterMs(response.headers));
  }
}

/** Retry-After in ms; both forms of the header are understood. */
export function retryAfterMs(headers: Headers, now = Date.now()): number | null {
  const value = headers.get("Retry-After")?.trim();
  if (!value) return null;
  const seconds = Number(value);
  if (Number.isFinite(seconds)) return Math.max(0, seconds * 1000);
  const date = Date.parse(value);
  return Number.isNaN(date) ? null : Math.max(0, date - now);
}

function fieldErrors(body: Record<string, unknown>, detail: string): FieldError[] {
  const listed = Array.isArray(body.errors) ? body.errors.filter(isFieldError) : [];
  if (listed.length > 0) return listed;
  return typeof body.field === "string" ? [{ field: body.field, problem: detail }] : [];
}

function isFieldError(value: unknown): value is FieldError {
  return isRecord(value) && typeof value.field === "string" && typeof value.problem === "string";
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

function text(value: unknown): string | null {
  return typeof value === "string" && value !== "" ? value : null;
}
