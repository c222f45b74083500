/** A call behind a button: at most one at a time, with its failure kept for the reader. */

import { useCallback, useRef, useState } from "react";
import { Problem } from "../api/problem";

export interface Action {
  readonly isPending: boolean;
  readonly problem: Problem | null;
  /** Does nothing while the call before it is under way. */
  readonly run: (call: () => Promise<void>) => Promise<void>;
}

export function useAction(): Action {
  const [isPending, setPending] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const busy = useRef(false); // at once, not at the next render: a double click is faster than that

  const run = useCallback(async (call: () => Promise<void>) => {
    if (busy.current) return;
    busy.current = true;
    setPending(true);
    setProblem(null);
    try {
      await call();
    } catch (reason) {
      setProblem(reason instanceof Problem ? reason : new Problem(0, String(reason)));
    } finally {
      busy.current = false;
      setPending(false);
    }
  }, []);

  return { isPending, problem, run };
}
