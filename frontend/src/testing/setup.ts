/** Before every test file: what jsdom lacks, and no complaint of React unheard. */

import { cleanup, configure } from "@testing-library/react";
import { afterEach, beforeEach, vi } from "vitest";

configure({
  // Whether an element is hidden is a matter of layout, which jsdom has not; asking it is what takes the time.
  defaultHidden: true,
  asyncUtilTimeout: 10_000,
  getElementError: (message) => new Error(message ?? "not found"),
});

beforeEach(() => {
  localStorage.clear();
  vi.spyOn(console, "error").mockImplementation((...words: unknown[]) => {
    throw new Error(`console.error: ${words.map(String).join(" ")}`);
  });
});

afterEach(cleanup);

HTMLDialogElement.prototype.showModal ??= function showModal(this: HTMLDialogElement) {
  this.open = true;
};
HTMLDialogElement.prototype.close ??= function close(this: HTMLDialogElement) {
  this.open = false;
  this.dispatchEvent(new Event("close"));
};
