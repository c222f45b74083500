/** The models that the service offers, read once; tried again while it does not answer. */

import { useEffect, useState } from "react";
import { pauseMs } from "../api/backoff";
import type { Client } from "../api/client";
import type { ModelCard } from "../api/types";

export interface Models {
  readonly status: "loading" | "ready" | "failed";
  readonly cards: readonly ModelCard[];
}

const LOADING: Models = { status: "loading", cards: [] };

export function useModels(client: Client): Models {
  const [models, setModels] = useState(LOADING);

  useEffect(() => {
    let isLeft = false;
    let timer: ReturnType<typeof setTimeout> | undefined;

    async function load(failures: number): Promise<void> {
      try {
        const cards = await client.listModels();
        if (!isLeft) setModels({ status: "ready", cards });
      } catch {
        if (isLeft) return;
        setModels({ status: "failed", cards: [] });
        timer = setTimeout(() => void load(failures + 1), pauseMs(failures + 4, Math.random));
      }
    }

    void load(0);
    return () => {
      isLeft = true;
      clearTimeout(timer);
    };
  }, [client]);

  return models;
}
