/** The form that asks for a picture. */

import { type FormEvent, type KeyboardEvent, useId, useLayoutEffect, useRef } from "react";
import type { Client } from "../api/client";
import type { FieldError } from "../api/problem";
import type { Generation } from "../api/types";
import { useAnnounce } from "../components/Announcer";
import { Field } from "../components/Field";
import { Icon } from "../components/Icon";
import { useI18n } from "../i18n/I18n";
import { AdvancedFields } from "./AdvancedFields";
import styles from "./ComposeForm.module.css";
import { cardOf, check, type Draft, type NumberField } from "./draft";
import { ProblemNote } from "./ProblemNote";
import { Suggestions } from "./Suggestions";
import { useErrors } from "./useErrors";
import type { Models } from "./useModels";
import { useSubmit } from "./useSubmit";

interface ComposeFormProps {
  readonly client: Client;
  readonly models: Models;
  readonly draft: Draft;
  readonly onDraft: (draft: Draft) => void;
  readonly onCreated: (generation: Generation) => void;
}

const ADVANCED: ReadonlySet<string> = new Set<NumberField | "negative_prompt" | "model" | "num_images">([
  "width",
  "height",
  "steps",
  "guidance_scale",
  "seed",
  "negative_prompt",
  "model",
  "num_images",
]);

export function ComposeForm({ client, models, draft, onDraft, onCreated }: ComposeFormProps) {
  const { t, format } = useI18n();
  const announce = useAnnounce();
  const [titleId, hintId] = [useId(), useId()];
  const form = useRef<HTMLFormElement>(null);
  const advanced = useRef<HTMLDetailsElement>(null);
  const submit = useSubmit(client.createGeneration, (generation) => {
    announce(t.compose.submitted);
    onCreated(generation);
  });
  const errors = useErrors(submit.problem);
  const card = cardOf(draft, models.cards);
  const isBusy = submit.isSending;

  useLayoutEffect(() => {
    if (errors.all.length === 0) return;
    // Show the first wrong field, wherever it hides.
    if (errors.all.some(({ field }) => ADVANCED.has(field)) && advanced.current !== null) advanced.current.open = true;
    form.current?.querySelector<HTMLElement>("[aria-invalid]")?.focus();
  }, [errors.all]);

  function change(part: Partial<Draft>, field: FieldError["field"]) {
    errors.forget(field);
    onDraft({ ...draft, ...part });
  }

  function send() {
    if (isBusy) return;
    const checked = check(draft, t.compose);
    errors.show(checked.errors);
    if (checked.errors.length === 0) void submit.send(checked.request);
  }

  function onSubmit(event: FormEvent) {
    event.preventDefault();
    send();
  }

  function onKeyDown(event: KeyboardEvent) {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    send();
  }

  return (
    <form ref={form} className={styles.form} onSubmit={onSubmit} noValidate aria-labelledby={titleId}>
      <h2 id={titleId} className={styles.title}>
        {t.compose.title}
      </h2>
      <Field label={t.compose.prompt} error={errors.of("prompt")}>
        {(control) => (
          <textarea
            {...control}
            className={`control ${styles.prompt}`}
            name="prompt"
            rows={3}
            dir={draft.prompt === "" ? undefined : "auto"}
            required
            maxLength={2000}
            placeholder={t.compose.promptHint}
            value={draft.prompt}
            onChange={(event) => change({ prompt: event.target.value }, "prompt")}
            onKeyDown={onKeyDown}
          />
        )}
      </Field>
      <Suggestions models={models} card={card} onPick={(prompt) => change({ prompt }, "prompt")} />
      <details ref={advanced} className={styles.advanced}>
        <summary className={styles.summary}>
          <Icon name="chevron" />
          {t.compose.advanced}
        </summary>
        <AdvancedFields draft={draft} cards={models.cards} card={card} errorOf={errors.of} onChange={change} />
      </details>
      <div className={styles.foot}>
        <ProblemNote
          problem={submit.problem}
          waitUntil={submit.waitUntil}
          unshown={errors.all.filter(({ field }) => field !== "prompt" && !ADVANCED.has(field))}
        />
        <button
          type="submit"
          className={`button primary ${styles.submit}`}
          aria-disabled={isBusy}
          aria-describedby={hintId}
        >
          <Icon name="send" />
          {isBusy ? t.compose.submitting : t.compose.submit}
          {draft.count > 1 && " "}
          {draft.count > 1 && <span className={styles.times}>× {format.number(draft.count)}</span>}
        </button>
        <p id={hintId} className={styles.hint}>
          <kbd dir="ltr">{t.compose.submitHint}</kbd>
        </p>
      </div>
    </form>
  );
}
