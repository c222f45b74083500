/** Components on a page of their own, for tests to look at and use. */

import { render } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import axe from "axe-core";
import type { ReactNode } from "react";
import { expect } from "vitest";
import { AnnouncerProvider } from "../components/Announcer";
import { I18nProvider } from "../i18n/I18n";

/** Types and clicks like a person, but without pauses. */
export const user = userEvent.setup({ delay: null });

/** Render in English with everything a component may ask for. */
export function show(children: ReactNode) {
  return render(
    <I18nProvider locale="en">
      <AnnouncerProvider>{children}</AnnouncerProvider>
    </I18nProvider>,
  );
}

/** No rule of axe is broken, as far as can be seen without layout. */
export async function expectAccessible(root: Element): Promise<void> {
  const { violations } = await axe.run(root, {
    rules: { "color-contrast": { enabled: false }, region: { enabled: false } },
  });
  expect(violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`)).toEqual([]);
}
