/** The living part of the page: one store, one event connection, and the fetching of records only heard of. */

import type { Client } from "../api/client";
import { type ConnectionOptions, type ConnectionStatus, EventConnection } from "../api/events";
import { type Action, EMPTY, missing, reduceAll, type State } from "./reducer";

export interface Snapshot {
  readonly state: State;
  readonly connection: ConnectionStatus;
}

export interface Session {
  readonly client: Client;
  readonly getSnapshot: () => Snapshot;
  readonly subscribe: (listener: () => void) => () => void;
  readonly dispatch: (...actions: readonly Action[]) => void;
  /** Connect; returns what disconnects. */
  readonly open: () => () => void;
}

type Connect = (options: ConnectionOptions) => Pick<EventConnection, "open" | "close">;

export const INITIAL: Snapshot = { state: EMPTY, connection: "connecting" };
const MAX_FETCHES = 4;

export function createSession(client: Client, connect: Connect = (options) => new EventConnection(options)): Session {
  let snapshot = INITIAL;
  const listeners = new Set<() => void>();
  const fetching = new Set<string>();

  function update(next: Snapshot): void {
    if (next.state === snapshot.state && next.connection === snapshot.connection) return;
    snapshot = next;
    for (const listener of listeners) listener();
  }

  function dispatch(...actions: readonly Action[]): void {
    update({ ...snapshot, state: reduceAll(snapshot.state, actions) });
    fetchMissing();
  }

  /** A job of another page or program is first heard of by an event, which does not carry its prompt. */
  function fetchMissing(): void {
    for (const id of missing(snapshot.state)) {
      if (fetching.size >= MAX_FETCHES) return;
      if (!fetching.has(id)) void fetchRecord(id);
    }
  }

  async function fetchRecord(id: string): Promise<void> {
    fetching.add(id);
    try {
      const generation = await client.getGeneration(id);
      fetching.delete(id);
      dispatch(generation === null ? { kind: "gone", id } : { kind: "record", generation });
    } catch {
      fetching.delete(id); // the next message tries again
    }
  }

  return {
    client,
    getSnapshot: () => snapshot,
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    dispatch,
    open() {
      const connection = connect({
        onMessages: (messages) => dispatch(...messages),
        onStatus: (status) => update({ ...snapshot, connection: status }),
      });
      connection.open();
      return () => connection.close();
    },
  };
}
