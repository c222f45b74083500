/** Everything that made this picture what it is. */

import { useNow } from "../components/clock";
import { Icon } from "../components/Icon";
import { useI18n } from "../i18n/I18n";
import styles from "./Details.module.css";
import type { KnownJob } from "./SessionContext";

export function Details({ job }: { readonly job: KnownJob }) {
  const { t, format } = useI18n();
  const { input, created_at } = job.now;
  const now = useNow(30_000);
  return (
    <details className={styles.details}>
      <summary className={styles.summary}>
        <Icon name="chevron" />
        <span className="visually-hidden">{t.details.title}: </span>
        <bdi>{format.size(input.width, input.height)}</bdi>
        <time className={styles.age} dateTime={new Date(created_at).toISOString()}>
          {format.relative(created_at, now)}
        </time>
      </summary>
      <Parameters job={job} />
    </details>
  );
}

export function Parameters({ job }: { readonly job: KnownJob }) {
  const { t, format } = useI18n();
  const { input, attempts, created_at } = job.now;
  const { timings, expires_at, attempt, finished_at, started_at } = job.now;
  const tookMs =
    timings !== null
      ? timings.load_ms + timings.denoise_ms + timings.decode_ms
      : finished_at !== null && started_at !== null
        ? finished_at - started_at
        : null;
  const rows: [string, string | null][] = [
    [t.details.model, input.model],
    [t.details.size, format.size(input.width, input.height)],
    [t.details.steps, format.number(input.steps)],
    [t.details.guidance, format.number(input.guidance_scale)],
    [t.details.seed, format.plain(input.seed)],
    [t.details.negativePrompt, input.negative_prompt || null],
    [t.details.took, tookMs === null ? null : format.duration(tookMs)],
    [t.details.attempts, attempt > 1 ? `${format.number(attempt)} / ${format.number(attempts)}` : null],
    [t.details.created, format.instant(created_at)],
    [t.details.expires, expires_at === null ? null : format.instant(expires_at)],
  ];
  return (
    <dl className={styles.list}>
      {rows.map(([name, value]) =>
        value === null ? null : (
          <div key={name} className={styles.row}>
            <dt>{name}</dt>
            <dd>
              <bdi>{value}</bdi>
            </dd>
          </div>
        ),
      )}
    </dl>
  );
}
