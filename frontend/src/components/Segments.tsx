/** One choice out of a few, side by side: radio buttons in a coat. */

import { type ReactNode, useId } from "react";
import styles from "./Segments.module.css";

interface SegmentsProps<Value extends string | number> {
  readonly legend: string;
  readonly isLegendHidden?: boolean;
  readonly options: readonly {
    readonly value: Value;
    readonly label: string;
    readonly content?: ReactNode;
  }[];
  readonly value: Value;
  readonly onChange: (value: Value) => void;
}

export function Segments<Value extends string | number>({
  legend,
  isLegendHidden,
  options,
  value,
  onChange,
}: SegmentsProps<Value>) {
  const name = useId();
  return (
    <fieldset className={styles.group}>
      <legend className={isLegendHidden ? "visually-hidden" : styles.legend}>{legend}</legend>
      <div className={styles.segments}>
        {options.map((option) => (
          <label
            key={option.value}
            className={styles.segment}
            title={option.content === undefined ? undefined : option.label}
          >
            <input
              className={styles.radio}
              type="radio"
              name={name}
              checked={option.value === value}
              onChange={() => onChange(option.value)}
            />
            {option.content === undefined ? (
              option.label
            ) : (
              <span className={styles.content} aria-hidden="true">
                {option.content}
              </span>
            )}
            {option.content !== undefined && <span className="visually-hidden">{option.label}</span>}
          </label>
        ))}
      </div>
    </fieldset>
  );
}
