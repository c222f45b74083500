/** What the reader chose, language and theme: remembered in this browser and applied to the document. */

import { useEffect, useSyncExternalStore } from "react";
import { LOCALES, type Locale } from "../i18n/dictionary";

export type Theme = "auto" | "light" | "dark";

export interface Preferences {
  readonly locale: Locale;
  readonly theme: Theme;
}

const KEY = "kargah.preferences"; // public/boot.js reads it too
const PRERENDERED: Preferences = { locale: "en", theme: "auto" };
const THEMES: readonly Theme[] = ["auto", "light", "dark"];

let current: Preferences | null = null;
const listeners = new Set<() => void>();

export function usePreferences(): Preferences {
  // The prerendered page is English: hydration begins with it, and React goes over to the real choice at once.
  return useSyncExternalStore(subscribe, read, () => PRERENDERED);
}

export function changePreferences(change: Partial<Preferences>): void {
  current = { ...read(), ...change };
  try {
    localStorage.setItem(KEY, JSON.stringify(current));
  } catch {
    // Storage is forbidden: the choice holds until the page is left.
  }
  for (const listener of listeners) listener();
}

/** Keep `lang`, `dir` and the theme of the document as chosen. */
export function useDocumentPreferences({ locale, theme }: Preferences): void {
  useEffect(() => {
    const root = document.documentElement;
    root.lang = locale;
    root.dir = LOCALES[locale].direction;
    if (theme === "auto") delete root.dataset.theme;
    else root.dataset.theme = theme;
    if (locale === read().locale) delete root.dataset.pending;
  }, [locale, theme]);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  const forget = () => {
    current = null;
    listener();
  };
  window.addEventListener("storage", forget); // another tab of the page chose
  return () => {
    listeners.delete(listener);
    window.removeEventListener("storage", forget);
  };
}

function read(): Preferences {
  current ??= load();
  return current;
}

function load(): Preferences {
  const preferred: Locale = /^fa\b/.test(navigator.language) ? "fa" : "en";
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? "{}") as Partial<Preferences>;
    return {
      locale: kept.locale !== undefined && kept.locale in LOCALES ? kept.locale : preferred,
      theme: kept.theme !== undefined && THEMES.includes(kept.theme) ? kept.theme : "auto",
    };
  } catch {
    return { locale: preferred, theme: "auto" };
  }
}
