/** The page: the form beside the pictures, in the reader's language. */

import { useCallback, useState } from "react";
import type { Generation, Input } from "../api/types";
import { AnnouncerProvider, useAnnounce } from "../components/Announcer";
import { ComposeForm } from "../compose/ComposeForm";
import { draftOf, EMPTY_DRAFT } from "../compose/draft";
import { useModels } from "../compose/useModels";
import { I18nProvider, useI18n } from "../i18n/I18n";
import { GenerationList } from "../jobs/GenerationList";
import { SessionProvider } from "../jobs/SessionContext";
import type { Session } from "../jobs/session";
import { useDocumentPreferences, usePreferences } from "../preferences/preferences";
import styles from "./App.module.css";
import { ConnectionBanner } from "./ConnectionBanner";
import { Header } from "./Header";

export function App({ session }: { readonly session: Session }) {
  const preferences = usePreferences();
  useDocumentPreferences(preferences);
  return (
    <I18nProvider locale={preferences.locale}>
      <AnnouncerProvider>
        <SessionProvider session={session}>
          <Header />
          <ConnectionBanner />
          <Workshop session={session} />
        </SessionProvider>
      </AnnouncerProvider>
    </I18nProvider>
  );
}

function Workshop({ session }: { readonly session: Session }) {
  const { t, format } = useI18n();
  const announce = useAnnounce();
  const models = useModels(session.client);
  const [draft, setDraft] = useState(EMPTY_DRAFT);

  const onCreated = useCallback(
    (generation: Generation) => session.dispatch({ kind: "record", generation }),
    [session],
  );
  const onReuse = useCallback(
    (input: Input) => {
      setDraft(draftOf(input, format.plain));
      announce(t.actions.reused);
      document.querySelector<HTMLElement>("textarea[name=prompt]")?.focus();
    },
    [announce, format, t],
  );

  return (
    <main className={styles.main}>
      <div className={styles.compose}>
        <ComposeForm client={session.client} models={models} draft={draft} onDraft={setDraft} onCreated={onCreated} />
      </div>
      <GenerationList onReuse={onReuse} />
    </main>
  );
}
