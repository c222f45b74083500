/** How far a job is: a bar for the eye, the same in numbers and words for everyone else. */

import { useI18n } from "../i18n/I18n";
import { describe, fractionOf } from "./describe";
import styles from "./ProgressBar.module.css";
import type { Fields } from "./reducer";

interface ProgressBarProps {
  readonly now: Fields;
  readonly prompt: string;
}

export function ProgressBar({ now, prompt }: ProgressBarProps) {
  const { t, format } = useI18n();
  const { what, step, left } = describe(now, t, format);
  const fraction = fractionOf(now);
  const percent = fraction === null ? undefined : Math.round(fraction * 100);
  return (
    <div className={styles.progress}>
      <div className={styles.words}>
        <span className={styles.phase}>
          <strong className={styles.what}>{what}</strong>
          {step !== null && <bdi className={styles.step}>{step.short}</bdi>}
        </span>
        <span className={styles.left}>{left?.short ?? (fraction === null ? "" : format.percent(fraction))}</span>
      </div>
      <div
        className={styles.track}
        role="progressbar"
        aria-label={t.progress.label(prompt)}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={percent}
        aria-valuetext={[what, step?.full, left?.full].filter((part) => part !== undefined).join(", ")}
        data-state={fraction === null ? (now.status === "active" ? "unknown" : "idle") : "known"}
      >
        <div className={styles.bar} style={fraction === null ? undefined : { inlineSize: `${fraction * 100}%` }} />
      </div>
    </div>
  );
}
