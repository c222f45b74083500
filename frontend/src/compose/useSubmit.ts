/** Sends the form: once per click, safely repeated, and patient when the server asks for time. */

import { useCallback, useRef, useState } from "react";
import type { Problem } from "../api/problem";
import type { Generation, GenerationRequest } from "../api/types";
import { useAction } from "../components/useAction";

export interface Submit {
  readonly isSending: boolean;
  readonly problem: Problem | null;
  /** Until when the server asked to wait; null = now is fine. */
  readonly waitUntil: number | null;
  readonly send: (request: GenerationRequest) => Promise<void>;
}

type Create = (request: GenerationRequest, key: string) => Promise<Generation>;

export function useSubmit(create: Create, onCreated: (generation: Generation) => void): Submit {
  const { isPending, problem, run } = useAction();
  const [answeredAt, setAnsweredAt] = useState(0);
  const lastTry = useRef<{ readonly text: string; readonly key: string } | null>(null);

  const send = useCallback(
    (request: GenerationRequest) =>
      run(async () => {
        // While a request has no answer, sending the same again uses its key again: the server makes it once.
        const text = JSON.stringify(request);
        const key = lastTry.current?.text === text ? lastTry.current.key : randomKey();
        lastTry.current = { text, key };
        try {
          onCreated(await create(request, key));
          lastTry.current = null;
        } finally {
          setAnsweredAt(Date.now());
        }
      }),
    [create, onCreated, run],
  );

  const waitMs = problem?.isTemporary ? problem.retryAfterMs : null;
  return { isSending: isPending, problem, waitUntil: waitMs === null ? null : answeredAt + waitMs, send };
}

/** 128 random bits; `crypto.randomUUID` would need https, which a workshop in the local network may not have. */
function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
