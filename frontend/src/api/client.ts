/** The calls of the HTTP API; each either answers or throws a `Problem`. */

import { Problem } from "./problem";
import type { Generation, GenerationRequest, ModelCard, Page } from "./types";

export interface Client {
  listModels(): Promise<readonly ModelCard[]>;
  /** `key` makes a repeat of the same request harmless. */
  createGeneration(request: GenerationRequest, key: string): Promise<Generation>;
  /** null = there is none of this id (any more). */
  getGeneration(id: string): Promise<Generation | null>;
  listGenerations(cursor: string | null): Promise<Page>;
  cancelGeneration(id: string): Promise<void>;
  retryGeneration(id: string): Promise<void>;
  deleteGeneration(id: string): Promise<void>;
}

const GENERATIONS = "/v1/generations";
const TIMEOUT_MS = 20_000;

export function createClient(fetch: typeof globalThis.fetch = (...call) => globalThis.fetch(...call)): Client {
  async function call(
    method: string,
    path: string,
    body?: unknown,
    headers?: Record<string, string>,
  ): Promise<Response> {
    const response = await fetch(path, {
      method,
      headers: {
        Accept: "application/json",
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        ...headers,
      },
      body: body === undefined ? null : JSON.stringify(body),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    }).catch((reason: unknown) => {
      throw new Problem(0, String(reason));
    });
    if (!response.ok) throw await Problem.from(response);
    return response;
  }

  const at = (id: string) => `${GENERATIONS}/${encodeURIComponent(id)}`;

  return {
    async listModels() {
      return (await json<{ data: ModelCard[] }>(call("GET", "/v1/models"))).data;
    },
    createGeneration(request, key) {
      return json(call("POST", GENERATIONS, request, { "Idempotency-Key": key }));
    },
    async getGeneration(id) {
      try {
        return await json<Generation>(call("GET", at(id)));
      } catch (problem) {
        if (problem instanceof Problem && problem.status === 404) return null;
        throw problem;
      }
    },
    listGenerations(cursor) {
      const query = new URLSearchParams({ limit: "50", ...(cursor === null ? {} : { cursor }) });
      return json(call("GET", `${GENERATIONS}?${query}`));
    },
    async cancelGeneration(id) {
      await call("POST", `${at(id)}/cancel`);
    },
    async retryGeneration(id) {
      await call("POST", `${at(id)}/retry`);
    },
    async deleteGeneration(id) {
      await call("DELETE", at(id));
    },
  };
}

async function json<T>(response: Promise<Response>): Promise<T> {
  return (await response).json().catch((reason: unknown) => {
    throw new Problem(0, String(reason));
  }) as Promise<T>;
}
