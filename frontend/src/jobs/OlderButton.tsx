/** Brings in the generations before the ones shown, a page at a time, until there are no more. */

import { useState } from "react";
import { useAction } from "../components/useAction";
import { useI18n } from "../i18n/I18n";
import styles from "./GenerationList.module.css";
import { useSession } from "./SessionContext";

export function OlderButton() {
  const { t } = useI18n();
  const { client, dispatch } = useSession();
  const { isPending, problem, run } = useAction();
  const [cursor, setCursor] = useState<string | null>(null);
  const [isEnd, setEnd] = useState(false);
  if (isEnd) return null;

  async function load() {
    // The first page is what is already shown; it is read for its cursor.
    const from = cursor ?? (await client.listGenerations(null)).next_cursor;
    if (from === null) return setEnd(true);
    const page = await client.listGenerations(from);
    dispatch(...page.data.map((generation) => ({ kind: "record", generation }) as const));
    setCursor(page.next_cursor);
    setEnd(page.next_cursor === null);
  }

  return (
    <div className={styles.older}>
      <button type="button" className="button" aria-disabled={isPending} onClick={() => void run(load)}>
        {isPending ? t.list.olderLoading : t.list.older}
      </button>
      {problem !== null && <p role="alert">{t.actions.failed}</p>}
    </div>
  );
}
