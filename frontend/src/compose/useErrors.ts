/** The errors at the fields: the form's own or the server's, each gone once its field is changed. */

import { useCallback, useEffect, useState } from "react";
import type { FieldError, Problem } from "../api/problem";

export interface Errors {
  readonly all: readonly FieldError[];
  readonly of: (field: string) => string | undefined;
  readonly show: (errors: readonly FieldError[]) => void;
  readonly forget: (field: string) => void;
}

const NONE: readonly FieldError[] = [];

export function useErrors(problem: Problem | null): Errors {
  const [all, setAll] = useState(NONE);

  useEffect(() => setAll(problem?.errors ?? NONE), [problem]);

  const forget = useCallback(
    (field: string) =>
      setAll((errors) =>
        errors.some((error) => error.field === field) ? errors.filter((error) => error.field !== field) : errors,
      ),
    [],
  );
  return { all, of: (field) => all.find((error) => error.field === field)?.problem, show: setAll, forget };
}
