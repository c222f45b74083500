/** Hands the session to the components and lets them read it. */

import { createContext, type ReactNode, useContext, useEffect, useMemo, useSyncExternalStore } from "react";
import type { ConnectionStatus } from "../api/events";
import type { Input } from "../api/types";
import type { Fields, Job, State } from "./reducer";
import { INITIAL, type Session } from "./session";

/** A job whose record is known: what the list shows. */
export type KnownJob = Job & { readonly now: Fields & { readonly input: Input } };

const Context = createContext<Session | null>(null);

export function SessionProvider({ session, children }: { readonly session: Session; readonly children: ReactNode }) {
  useEffect(() => session.open(), [session]);
  return <Context value={session}>{children}</Context>;
}

export function useSession(): Session {
  const session = useContext(Context);
  if (session === null) throw new Error("useSession needs a SessionProvider above it");
  return session;
}

export function useConnection(): ConnectionStatus {
  const session = useSession();
  return useSyncExternalStore(
    session.subscribe,
    () => session.getSnapshot().connection,
    () => INITIAL.connection,
  );
}

export function useJobsState(): State {
  const session = useSession();
  return useSyncExternalStore(
    session.subscribe,
    () => session.getSnapshot().state,
    () => INITIAL.state,
  );
}

/** The jobs to show, newest first; null = not known yet. */
export function useJobs(now: number): readonly KnownJob[] | null {
  const { jobs, lastId } = useJobsState();
  return useMemo(() => {
    const shown = [...jobs.values()].filter((job): job is KnownJob => job.now.input !== null && !isExpired(job, now));
    if (lastId === null && shown.length === 0) return null;
    return shown.sort((a, b) => b.now.created_at - a.now.created_at || (a.id < b.id ? 1 : -1));
  }, [jobs, lastId, now]);
}

/** Its record has ended by itself: the server drops it without a word when its time is over. */
function isExpired(job: Job, now: number): boolean {
  return job.now.expires_at !== null && job.now.expires_at <= now;
}
