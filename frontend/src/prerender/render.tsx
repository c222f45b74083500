/** The page as static HTML: what a browser shows before, and without, the scripts. Built by `vite build --ssr`. */

import { StrictMode } from "react";
import { renderToString } from "react-dom/server";
import { createClient } from "../api/client";
import { App } from "../app/App";
import { createSession } from "../jobs/session";

export function render(): string {
  return renderToString(
    <StrictMode>
      <App session={createSession(createClient())} />
    </StrictMode>,
  );
}
