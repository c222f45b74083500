/** Stand-ins for the world outside: a server that answers as told and a connection that says what it is told to. */

import { vi } from "vitest";
import type { Client } from "../api/client";
import type { ConnectionOptions, ConnectionStatus, Message } from "../api/events";
import type { Generation, ModelCard, QueueEvent } from "../api/types";
import { createSession, type Session } from "../jobs/session";

export const CARD: ModelCard = {
  id: "kargah/shapes",
  width: 128,
  height: 128,
  steps: 30,
  guidance_scale: 2,
  prompts: { en: ["a red circle", "a blue star"], fa: ["یک دایره قرمز"] },
};

export function generation(part: Partial<Generation> = {}): Generation {
  return {
    id: "a",
    status: "waiting",
    run: 1,
    attempt: 0,
    attempts: 3,
    priority: 100,
    input: {
      prompt: "a red circle",
      negative_prompt: "",
      model: CARD.id,
      width: 128,
      height: 128,
      steps: 30,
      guidance_scale: 2,
      seed: 7,
      num_images: 1,
    },
    progress: null,
    preview: null,
    images: [],
    error: null,
    reason: null,
    cancel: null,
    canceling: false,
    timings: null,
    created_at: 1_764_000_000_000,
    due_at: null,
    started_at: null,
    finished_at: null,
    expires_at: null,
    ...part,
  };
}

export const PICTURE = {
  index: 0,
  url: "/v1/generations/a/images/0",
  width: 128,
  height: 128,
  seed: 7,
  bytes: 9000,
  content_type: "image/png",
};

export function event(type: string, n: number, fields: Partial<QueueEvent> = {}): Message {
  return {
    kind: "event",
    event: { id: `1764000000000-${n}`, type, job: "a", at: 1_764_000_000_000, run: 1, attempt: 1, ...fields },
  };
}

export function snapshot(generations: readonly Generation[], n = 0): Message {
  return { kind: "snapshot", generations, lastId: `1764000000000-${n}`, reset: false };
}

export function fakeClient(part: Partial<Client> = {}): Client {
  return {
    listModels: vi.fn(async () => [CARD]),
    createGeneration: vi.fn(async () => generation()),
    getGeneration: vi.fn(async () => null),
    listGenerations: vi.fn(async () => ({ data: [], next_cursor: null })),
    cancelGeneration: vi.fn(async () => undefined),
    retryGeneration: vi.fn(async () => undefined),
    deleteGeneration: vi.fn(async () => undefined),
    ...part,
  };
}

export interface Line {
  readonly session: Session;
  readonly say: (...messages: readonly Message[]) => void;
  readonly become: (status: ConnectionStatus) => void;
  readonly isOpen: () => boolean;
}

/** A session whose event connection is the test itself. */
export function fakeLine(client: Client = fakeClient()): Line {
  let told: ConnectionOptions | null = null;
  let isOpen = false;
  const session = createSession(client, (options) => {
    told = options;
    return {
      open: () => {
        isOpen = true;
      },
      close: () => {
        isOpen = false;
      },
    };
  });
  return {
    session,
    say: (...messages) => told?.onMessages(messages),
    become: (status) => told?.onStatus(status),
    isOpen: () => isOpen,
  };
}
