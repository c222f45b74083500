/** Wakes the prerendered page. */

import { StrictMode } from "react";
import { createRoot, hydrateRoot } from "react-dom/client";
import { createClient } from "./api/client";
import "./app/base.css";
import { App } from "./app/App";
import { createSession } from "./jobs/session";

const root = document.getElementById("root");
if (root === null) throw new Error("index.html has no #root");

const page = (
  <StrictMode>
    <App session={createSession(createClient())} />
  </StrictMode>
);
// `vite dev` serves the page empty, the build serves it prerendered.
if (root.childElementCount > 0) hydrateRoot(root, page);
else createRoot(root).render(page);
