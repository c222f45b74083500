/** A record whose every field remembers when it was written: the newest writer wins, in whatever order they come. */

import { isAfter, NEVER, type Version } from "./version";

export interface Registers<Values extends object> {
  readonly now: Values;
  readonly versions: Readonly<Record<keyof Values, Version>>;
}

/** Nothing written yet: every field has its default. */
export function blank<Values extends object>(defaults: Values): Registers<Values> {
  return { now: defaults, versions: each(defaults, () => NEVER) };
}

/** Write the values whose field has no newer writer. The very same registers if there is none. */
export function write<Values extends object, R extends Registers<Values>>(
  registers: R & Registers<Values>,
  version: Version,
  values: Partial<Values>,
): R {
  const names = (Object.keys(values) as (keyof Values)[]).filter((name) => isAfter(version, registers.versions[name]));
  if (names.length === 0) return registers;
  const now: Values = { ...registers.now };
  const versions: Record<keyof Values, Version> = { ...registers.versions };
  for (const name of names) {
    now[name] = values[name] as Values[typeof name];
    versions[name] = version;
  }
  return { ...registers, now, versions };
}

/** Undo what was written up to this version. */
export function forget<Values extends object, R extends Registers<Values>>(
  registers: R & Registers<Values>,
  version: Version,
  defaults: Values,
): R {
  const keeps = (name: keyof Values) => isAfter(registers.versions[name], version);
  const now = each(defaults, (name) => (keeps(name) ? registers.now[name] : defaults[name])) as Values;
  return { ...registers, now, versions: each(defaults, (name) => (keeps(name) ? registers.versions[name] : NEVER)) };
}

/** When anything was last written. */
export function newest<Values extends object>({ versions }: Registers<Values>): Version {
  return Object.values<Version>(versions).reduce((last, version) => (isAfter(version, last) ? version : last), NEVER);
}

function each<Values extends object, Result>(values: Values, make: (name: keyof Values) => Result) {
  const names = Object.keys(values) as (keyof Values)[];
  return Object.fromEntries(names.map((name) => [name, make(name)])) as Record<keyof Values, Result>;
}
