/** My generations, newest first, alive. */

import { useEffect, useRef } from "react";
import type { Input } from "../api/types";
import { useAnnounce } from "../components/Announcer";
import { useNow } from "../components/clock";
import { Star } from "../components/Star";
import { useI18n } from "../i18n/I18n";
import { announcements } from "./announcements";
import { GenerationCard } from "./GenerationCard";
import styles from "./GenerationList.module.css";
import { OlderButton } from "./OlderButton";
import { useJobs, useSession } from "./SessionContext";

const SNAPSHOT_SIZE = 50; // as many as the event connection tells of at its start

/** The heading's id, a target for links to the list. */
export const LIST_ID = "generations";

export function GenerationList({ onReuse }: { readonly onReuse: (input: Input) => void }) {
  const { t, format } = useI18n();
  const jobs = useJobs(useNow(30_000));
  const heading = useRef<HTMLHeadingElement>(null);
  useAnnouncements();

  return (
    <section className={styles.section} aria-labelledby={LIST_ID} aria-busy={jobs === null}>
      <h2 id={LIST_ID} ref={heading} tabIndex={-1} className={styles.title}>
        {t.list.title}
        {jobs !== null && jobs.length > 0 && <span className={styles.count}>{format.number(jobs.length)}</span>}
      </h2>
      {jobs === null && <Loading />}
      {jobs?.length === 0 && (
        <div className={styles.empty}>
          <Star className={styles.star} />
          <p className={styles.emptyTitle}>{t.list.emptyTitle}</p>
          <p className={styles.emptyText}>{t.list.emptyText}</p>
        </div>
      )}
      {jobs !== null && jobs.length > 0 && (
        <ul className={styles.grid}>
          {jobs.map((job) => (
            <li key={job.id}>
              <GenerationCard job={job} onReuse={onReuse} onRemoved={() => heading.current?.focus()} />
            </li>
          ))}
        </ul>
      )}
      {jobs !== null && jobs.length >= SNAPSHOT_SIZE && <OlderButton />}
    </section>
  );
}

function Loading() {
  const { t } = useI18n();
  return (
    <div className={styles.grid}>
      <p className="visually-hidden">{t.list.loading}</p>
      {[1, 2, 3].map((n) => (
        <div key={n} className={styles.skeleton} aria-hidden="true" />
      ))}
    </div>
  );
}

/** Say aloud what ends while the page is open. */
function useAnnouncements(): void {
  const session = useSession();
  const announce = useAnnounce();
  const { t } = useI18n();

  useEffect(() => {
    let previous = session.getSnapshot().state;
    return session.subscribe(() => {
      const { state } = session.getSnapshot();
      const told = announcements(previous, state).map(({ kind, prompt }) => t.announce[kind](prompt));
      if (told.length > 0) announce(told.join(" "));
      previous = state;
    });
  }, [session, announce, t]);
}
