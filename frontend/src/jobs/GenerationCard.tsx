/** One generation: its picture or its progress, what was asked, and what can be done with it. */

import { memo, useId, useState } from "react";
import type { Input } from "../api/types";
import { useI18n } from "../i18n/I18n";
import { CardActions } from "./CardActions";
import { Details } from "./Details";
import { advise, isUnfinished } from "./describe";
import styles from "./GenerationCard.module.css";
import { NextAttempt } from "./NextAttempt";
import { ProgressBar } from "./ProgressBar";
import type { KnownJob } from "./SessionContext";
import { Stage } from "./Stage";
import { Viewer } from "./Viewer";

interface GenerationCardProps {
  readonly job: KnownJob;
  readonly onReuse: (input: Input) => void;
  readonly onRemoved: () => void;
}

export const GenerationCard = memo(function GenerationCard({ job, onReuse, onRemoved }: GenerationCardProps) {
  const { now } = job;
  const title = useId();
  const [opened, setOpened] = useState<number | null>(null);
  const { prompt } = now.input;
  return (
    <article className={styles.card} aria-labelledby={title} data-status={now.status} data-id={job.id}>
      <Stage now={now} input={now.input} onOpen={setOpened} />
      <div className={styles.body}>
        {isUnfinished(now) && <ProgressBar now={now} prompt={prompt} />}
        {isUnfinished(now) && <NextAttempt now={now} />}
        <h3 id={title} className={styles.prompt} dir="auto">
          {prompt}
        </h3>
        {now.status === "failed" && <Failure job={job} />}
        {now.status === "canceled" && <Canceled job={job} />}
        <Details job={job} />
        <CardActions job={job} onReuse={onReuse} onRemoved={onRemoved} />
      </div>
      {opened !== null && <Viewer job={job} start={opened} onClose={() => setOpened(null)} />}
    </article>
  );
});

function Failure({ job: { now } }: { readonly job: KnownJob }) {
  const { t } = useI18n();
  return (
    <div className={styles.outcome}>
      <p>
        <strong className={styles.failed}>{t.status.failed}.</strong> {advise(now, t)}
      </p>
      {now.error !== null && (
        <p className={styles.said} dir="auto" lang="en">
          {now.error.message}
        </p>
      )}
    </div>
  );
}

function Canceled({ job: { now } }: { readonly job: KnownJob }) {
  const { t, format } = useI18n();
  const { step, steps } = now.progress ?? {};
  return (
    <p className={styles.outcome}>
      <strong>{t.status.canceled}.</strong>{" "}
      {step !== undefined && steps ? t.progress.stoppedAt(format.number(step), format.number(steps)) : null}
      {now.cancel?.reason && (
        <span className={styles.said} dir="auto">
          {" "}
          {now.cancel.reason}
        </span>
      )}
    </p>
  );
}
