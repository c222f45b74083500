/** Gives the components the words and formats of the chosen language. */

import { createContext, type ReactNode, useContext, useMemo } from "react";
import { type Dictionary, type Direction, LOCALES, type Locale } from "./dictionary";
import { createFormat, type Format } from "./format";

export interface I18n {
  readonly locale: Locale;
  readonly direction: Direction;
  readonly t: Dictionary;
  readonly format: Format;
}

const Context = createContext<I18n | null>(null);

export function I18nProvider({ locale, children }: { readonly locale: Locale; readonly children: ReactNode }) {
  const i18n = useMemo(() => {
    const { words, direction, tag } = LOCALES[locale];
    return { locale, direction, t: words, format: createFormat(tag) };
  }, [locale]);
  return <Context value={i18n}>{children}</Context>;
}

export function useI18n(): I18n {
  const i18n = useContext(Context);
  if (i18n === null) throw new Error("useI18n needs an I18nProvider above it");
  return i18n;
}
