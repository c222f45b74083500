/** The page's voice for screen readers: one polite live region. */

import { createContext, type ReactNode, useCallback, useContext, useState } from "react";

type Announce = (text: string) => void;

const Context = createContext<Announce>(() => undefined);

export function AnnouncerProvider({ children }: { readonly children: ReactNode }) {
  const [said, setSaid] = useState({ text: "", count: 0 });
  const announce = useCallback<Announce>((text) => setSaid(({ count }) => ({ text, count: count + 1 })), []);
  return (
    <Context value={announce}>
      {children}
      <div className="visually-hidden" role="status" aria-live="polite">
        {/* A new element each time, so that the same words are said again. */}
        <span key={said.count}>{said.text}</span>
      </div>
    </Context>
  );
}

export function useAnnounce(): Announce {
  return useContext(Context);
}
