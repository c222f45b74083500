/** The time, for what counts down or grows old on the screen. */

import { useEffect, useState } from "react";

/** Now, renewed every `intervalMs` while mounted; null = it stands still. */
export function useNow(intervalMs: number | null): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    if (intervalMs === null) return;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), intervalMs);
    return () => clearInterval(timer);
  }, [intervalMs]);
  return now;
}
