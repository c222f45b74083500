/** Says when the page does not hear from the server; silent while all is well. */

import { useEffect, useRef, useState } from "react";
import { useAnnounce } from "../components/Announcer";
import { Icon } from "../components/Icon";
import { useI18n } from "../i18n/I18n";
import { useConnection } from "../jobs/SessionContext";
import styles from "./ConnectionBanner.module.css";

/** A blink of the network is not worth a word. */
const PATIENCE_MS = 1500;

export function ConnectionBanner() {
  const { t } = useI18n();
  const announce = useAnnounce();
  const status = useConnection();
  const isLost = useLasting(status === "reconnecting", PATIENCE_MS);
  const wasLost = useRef(false);

  useEffect(() => {
    if (wasLost.current && status === "live") announce(t.connection.restored);
    wasLost.current = isLost;
  }, [isLost, status, announce, t]);

  if (!isLost) return null;
  return (
    <div className={styles.banner} role="alert">
      <Icon name="warning" />
      {navigator.onLine ? t.connection.reconnecting : t.connection.offline}
    </div>
  );
}

/** True once `condition` has held for `ms`; false as soon as it does not. */
function useLasting(condition: boolean, ms: number): boolean {
  const [held, setHeld] = useState(false);
  useEffect(() => {
    if (!condition) return setHeld(false);
    const timer = setTimeout(() => setHeld(true), ms);
    return () => clearTimeout(timer);
  }, [condition, ms]);
  return condition && held;
}
