/** A spin button for any digits: typed as text, so that Persian numerals work, with the arrow keys of a number field. */

import type { KeyboardEvent } from "react";
import { parseNumber } from "../i18n/format";
import { useI18n } from "../i18n/I18n";
import type { Control } from "./Field";

interface NumberInputProps {
  readonly control: Control;
  /** As typed; it may be no number at all. */
  readonly text: string;
  readonly onChange: (text: string) => void;
  readonly range: { readonly min: number; readonly max: number; readonly step: number };
  readonly placeholder?: string | undefined;
}

const KEYS: Readonly<Record<string, number>> = { ArrowUp: 1, ArrowDown: -1, PageUp: 10, PageDown: -10 };

export function NumberInput({ control, text, onChange, range, placeholder }: NumberInputProps) {
  const { format } = useI18n();
  const value = parseNumber(text);
  const number = value === null || Number.isNaN(value) ? null : value;

  function onKeyDown(event: KeyboardEvent) {
    const steps = KEYS[event.key];
    if (steps === undefined) return;
    event.preventDefault();
    const next = (number ?? range.min) + steps * range.step;
    onChange(format.plain(Math.min(range.max, Math.max(range.min, next))));
  }

  return (
    <input
      {...control}
      className="control"
      type="text"
      role="spinbutton"
      inputMode="decimal"
      autoComplete="off"
      dir="ltr"
      value={text}
      placeholder={placeholder}
      aria-valuemin={range.min}
      aria-valuemax={range.max}
      aria-valuenow={number ?? undefined}
      aria-valuetext={text === "" ? placeholder : text}
      onChange={(event) => onChange(event.target.value)}
      onKeyDown={onKeyDown}
    />
  );
}
