/** Why the form was not taken, what to do, and how long to wait when the server says so. */

import type { FieldError, Problem } from "../api/problem";
import { useNow } from "../components/clock";
import { Icon } from "../components/Icon";
import type { Dictionary } from "../i18n/dictionary";
import { useI18n } from "../i18n/I18n";

interface ProblemNoteProps {
  readonly problem: Problem | null;
  readonly waitUntil: number | null;
  /** Errors of fields that this form does not have. */
  readonly unshown: readonly FieldError[];
}

export function ProblemNote({ problem, waitUntil, unshown }: ProblemNoteProps) {
  const { t } = useI18n();
  if (problem === null) return null;
  const isAtFields = problem.errors.length > 0 && unshown.length === 0;
  return (
    <div className="note danger" role="alert">
      <Icon name="warning" />
      <div>
        <p>{explain(problem, t)}</p>
        {!isAtFields && problem.status !== 0 && (
          <p className="soft" dir="auto" lang="en">
            {unshown.map(({ field, problem: text }) => `${field}: ${text}`).join("; ") || problem.message}
          </p>
        )}
        {waitUntil !== null && <Countdown until={waitUntil} />}
      </div>
    </div>
  );
}

/** Not part of the alert's text: a second hand would be read aloud every second. */
function Countdown({ until }: { readonly until: number }) {
  const { t, format } = useI18n();
  const left = Math.ceil((until - useNow(500)) / 1000);
  return left > 0 ? <p aria-live="off">{t.compose.waitAndRetry(format.duration(left * 1000))}</p> : null;
}

function explain(problem: Problem, t: Dictionary): string {
  if (problem.status === 0) return t.compose.unreachable;
  if (problem.status === 429) return t.compose.full;
  if (problem.status === 503) return t.compose.unavailable;
  return problem.status < 500 ? t.compose.refused : t.compose.wentWrong;
}
