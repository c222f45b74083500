/** How long to wait before the next try to connect. */

const FIRST_MS = 250;
const MAX_MS = 15_000;

/**
 * Doubles from 250 ms to 15 s; half of each pause is random, so that many pages do not come back at once.
 *
 *     failures   1        2        3       4     5     6     7 and more
 *     pause      ≤ 250ms  ≤ 500ms  ≤ 1s    ≤ 2s  ≤ 4s  ≤ 8s  ≤ 15s        (and at least half of it)
 */
export function pauseMs(failures: number, random: () => number): number {
  const ceiling = Math.min(MAX_MS, FIRST_MS * 2 ** Math.min(failures - 1, 16));
  return ceiling * (0.5 + random() / 2);
}
