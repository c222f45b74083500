/** The languages of the page. A new one is a file like fa.ts and a line here. */

import { en } from "./en";
import { fa } from "./fa";

export type Dictionary = typeof en;
export type Locale = "en" | "fa";
export type Direction = "ltr" | "rtl";

export const LOCALES: Readonly<
  Record<Locale, { readonly words: Dictionary; readonly direction: Direction; readonly tag: string }>
> = {
  en: { words: en, direction: "ltr", tag: "en" },
  fa: { words: fa, direction: "rtl", tag: "fa-IR" },
};
