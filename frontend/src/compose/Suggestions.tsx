/** Prompts that the chosen model is known to do well, in the reader's language; a few at a time. */

import { useState } from "react";
import type { ModelCard } from "../api/types";
import { useI18n } from "../i18n/I18n";
import styles from "./Suggestions.module.css";
import type { Models } from "./useModels";

interface SuggestionsProps {
  readonly models: Models;
  readonly card: ModelCard | undefined;
  readonly onPick: (prompt: string) => void;
}

const AT_ONCE = 3;

export function Suggestions({ models, card, onPick }: SuggestionsProps) {
  const { t, locale } = useI18n();
  const [first, setFirst] = useState(0);
  if (models.status === "loading") return <p className={styles.note}>{t.compose.modelsLoading}</p>;
  if (models.status === "failed") return <p className={styles.note}>{t.compose.modelsFailed}</p>;

  const prompts = card?.prompts?.[locale] ?? card?.prompts?.en ?? [];
  if (prompts.length === 0) return null;
  const start = first < prompts.length ? first : 0;
  return (
    <fieldset className={styles.suggestions}>
      <legend className={styles.label}>{t.compose.suggestions}</legend>
      {prompts.slice(start, start + AT_ONCE).map((prompt) => (
        <button key={prompt} type="button" className={styles.chip} dir="auto" onClick={() => onPick(prompt)}>
          {prompt}
        </button>
      ))}
      {prompts.length > AT_ONCE && (
        <button type="button" className={styles.more} onClick={() => setFirst(start + AT_ONCE)}>
          {t.compose.otherSuggestions}
        </button>
      )}
    </fieldset>
  );
}
