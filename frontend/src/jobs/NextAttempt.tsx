/** For a job that did not succeed at once: which attempt this is, why, and when the next one begins. */

import { useNow } from "../components/clock";
import { useI18n } from "../i18n/I18n";
import styles from "./GenerationCard.module.css";
import type { Fields } from "./reducer";

export function NextAttempt({ now }: { readonly now: Fields }) {
  const { t, format } = useI18n();
  const isDelayed = now.status === "delayed" && now.due_at !== null;
  const clock = useNow(isDelayed ? 1000 : null);
  if (now.attempt <= 1 && !isDelayed && now.error === null) return null;

  const leftMs = isDelayed ? Math.ceil(((now.due_at ?? 0) - clock) / 1000) * 1000 : null;
  return (
    <div className={styles.outcome}>
      <p>
        {now.attempt > 0 && t.progress.attempt(format.number(now.attempt), format.number(now.attempts))}
        {leftMs !== null && now.attempt > 0 && " · "}
        {leftMs !== null && (leftMs > 0 ? t.progress.retryIn(format.duration(leftMs)) : t.progress.retryNow)}
      </p>
      {now.error !== null && (
        <p className={styles.said} dir="auto" lang="en">
          {now.error.message}
        </p>
      )}
    </div>
  );
}
