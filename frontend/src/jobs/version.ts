/** When a value was written: the event id, ordered as the stream orders it. */

export type Version = readonly [ms: number, n: number];

/** Never written. */
export const NEVER: Version = [-1, 0];
/** Written by a record that names no instant: every event is newer. */
export const HINT: Version = [0, 0];

/** The version of an event id such as `1764445200123-4`. */
export function of(id: string): Version {
  const [ms, n] = id.split("-", 2).map(Number);
  return [ms ?? 0, n ?? 0];
}

export function isAfter(a: Version, b: Version): boolean {
  return a[0] === b[0] ? a[1] > b[1] : a[0] > b[0];
}
