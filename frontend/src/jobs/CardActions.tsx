/** What can be done with a generation in its present state. */

import { useEffect, useRef, useState } from "react";
import type { Input } from "../api/types";
import { useAnnounce } from "../components/Announcer";
import { Icon } from "../components/Icon";
import { useAction } from "../components/useAction";
import { useI18n } from "../i18n/I18n";
import styles from "./CardActions.module.css";
import { isUnfinished } from "./describe";
import { type KnownJob, useSession } from "./SessionContext";

interface CardActionsProps {
  readonly job: KnownJob;
  readonly onReuse: (input: Input) => void;
  readonly onRemoved: () => void;
}

export function CardActions({ job, onReuse, onRemoved }: CardActionsProps) {
  const { t, format } = useI18n();
  const { client, dispatch } = useSession();
  const announce = useAnnounce();
  const action = useAction();
  const [isAsking, setAsking] = useState(false);
  const { now, id } = job;

  function remove() {
    void action.run(async () => {
      await client.deleteGeneration(id);
      announce(t.announce.removed);
      dispatch({ kind: "gone", id });
      onRemoved();
    });
  }

  return (
    <>
      <div className={styles.actions}>
        {isAsking ? (
          <ConfirmRemove onYes={remove} onNo={() => setAsking(false)} isPending={action.isPending} />
        ) : isUnfinished(now) ? (
          <button
            type="button"
            className="button"
            aria-disabled={now.canceling || action.isPending}
            onClick={() => !now.canceling && void action.run(() => client.cancelGeneration(id))}
          >
            <Icon name="cancel" />
            {now.canceling ? t.status.canceling : t.actions.cancel}
          </button>
        ) : (
          <>
            {now.images.map((picture, position) => (
              <a key={picture.url} className="button" href={picture.url} download>
                <Icon name="download" />
                <span className={position === 0 ? undefined : "visually-hidden"}>{t.actions.download}</span>
                {now.images.length > 1 && format.number(position + 1)}
              </a>
            ))}
            {now.status !== "completed" && (
              <button
                type="button"
                className="button"
                aria-disabled={action.isPending}
                onClick={() => void action.run(() => client.retryGeneration(id))}
              >
                <Icon name="retry" />
                {t.actions.retry}
              </button>
            )}
            <span className={styles.gap} />
            <button
              type="button"
              className="button icon-only"
              aria-label={t.actions.reuse}
              title={t.actions.reuse}
              onClick={() => onReuse(now.input)}
            >
              <Icon name="reuse" />
            </button>
            <button
              type="button"
              className="button icon-only"
              aria-label={t.actions.remove}
              title={t.actions.remove}
              onClick={() => setAsking(true)}
            >
              <Icon name="remove" />
            </button>
          </>
        )}
      </div>
      {action.problem !== null && (
        <p className={styles.problem} role="alert">
          {t.actions.failed}{" "}
          <span dir="auto">{action.problem.status === 0 ? t.compose.unreachable : action.problem.message}</span>
        </p>
      )}
    </>
  );
}

/** Asks in place, with the focus on the harmless answer; Escape is "no" too. */
function ConfirmRemove({
  onYes,
  onNo,
  isPending,
}: {
  readonly onYes: () => void;
  readonly onNo: () => void;
  readonly isPending: boolean;
}) {
  const { t } = useI18n();
  const no = useRef<HTMLButtonElement>(null);
  useEffect(() => no.current?.focus(), []);
  return (
    <fieldset
      className={styles.confirm}
      aria-label={t.actions.confirmRemove}
      onKeyDown={(event) => event.key === "Escape" && onNo()}
    >
      <span className={styles.question}>{t.actions.confirmRemove}</span>
      <button type="button" className="button danger" aria-disabled={isPending} onClick={onYes}>
        {t.actions.remove}
      </button>
      <button ref={no} type="button" className="button" onClick={onNo}>
        {t.actions.keep}
      </button>
    </fieldset>
  );
}
