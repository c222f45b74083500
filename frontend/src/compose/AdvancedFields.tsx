/** Everything about a picture besides its prompt; left alone, it is as the model likes it. */

import type { ModelCard } from "../api/types";
import { Field } from "../components/Field";
import { NumberInput } from "../components/NumberInput";
import { Segments } from "../components/Segments";
import { useI18n } from "../i18n/I18n";
import styles from "./AdvancedFields.module.css";
import { COUNTS, type Draft, defaultOf, EMPTY_DRAFT, type NumberField, RANGES } from "./draft";

interface AdvancedFieldsProps {
  readonly draft: Draft;
  readonly cards: readonly ModelCard[];
  readonly card: ModelCard | undefined;
  readonly errorOf: (field: string) => string | undefined;
  readonly onChange: (part: Partial<Draft>, field: string) => void;
}

export function AdvancedFields({ draft, cards, card, errorOf, onChange }: AdvancedFieldsProps) {
  const { t, format } = useI18n();

  // A model that was asked before but is no longer offered stays visible; the server says what is wrong with it.
  const offered = [...new Set([...cards.map(({ id }) => id), ...(draft.model === null ? [] : [draft.model])])];

  function number(field: NumberField, label: string, hint?: string) {
    const standard = defaultOf(field, card);
    const text = draft.numbers[field] ?? (standard === null ? "" : format.plain(standard));
    return (
      <Field label={label} hint={hint} error={errorOf(field)}>
        {(control) => (
          <NumberInput
            control={control}
            text={text}
            range={RANGES[field]}
            placeholder={field === "seed" ? t.compose.random : undefined}
            onChange={(typed) => onChange({ numbers: { ...draft.numbers, [field]: typed } }, field)}
          />
        )}
      </Field>
    );
  }

  return (
    <div className={styles.fields}>
      <div className={styles.whole}>
        <Field label={t.compose.model} error={errorOf("model")}>
          {(control) => (
            <select
              {...control}
              className="control"
              value={draft.model ?? card?.id ?? ""}
              onChange={(event) => onChange({ model: event.target.value, numbers: {} }, "model")}
            >
              {offered.map((id) => (
                <option key={id} value={id}>
                  {id}
                </option>
              ))}
            </select>
          )}
        </Field>
      </div>
      {number("width", t.compose.width)}
      {number("height", t.compose.height)}
      {number("steps", t.compose.steps)}
      {number("guidance_scale", t.compose.guidance)}
      <div className={styles.whole}>{number("seed", t.compose.seed, t.compose.seedHint)}</div>
      <div className={styles.whole}>
        <Segments
          legend={t.compose.count}
          options={COUNTS.map((count) => ({ value: count, label: format.number(count) }))}
          value={draft.count as (typeof COUNTS)[number]}
          onChange={(count) => onChange({ count }, "num_images")}
        />
        {errorOf("num_images") !== undefined && <p className={styles.error}>{errorOf("num_images")}</p>}
      </div>
      <div className={styles.whole}>
        <Field label={t.compose.negativePrompt} error={errorOf("negative_prompt")}>
          {(control) => (
            <input
              {...control}
              className="control"
              type="text"
              dir="auto"
              maxLength={2000}
              value={draft.negativePrompt}
              onChange={(event) => onChange({ negativePrompt: event.target.value }, "negative_prompt")}
            />
          )}
        </Field>
      </div>
      <button
        type="button"
        className={`button quiet ${styles.whole}`}
        onClick={() => onChange({ ...EMPTY_DRAFT, prompt: draft.prompt, model: draft.model }, "")}
      >
        {t.compose.reset}
      </button>
    </div>
  );
}
