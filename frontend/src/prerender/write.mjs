/** Puts the rendered page into the built index.html, and refuses what the content security policy would. */

import { readFile, rm, writeFile } from "node:fs/promises";

const PLACE = "<!--page-->";
const frontend = new URL("../../", import.meta.url);
const built = new URL("../orchestrator/static/index.html", frontend);
const rendered = new URL(".prerender/", frontend);

const { render } = await import(new URL("render.js", rendered).href);
const template = await readFile(built, "utf8");
if (!template.includes(PLACE)) throw new Error(`${built.pathname} has no ${PLACE}: was it built by "vite build"?`);

const page = template.replace(PLACE, () => render());
const forbidden = page.match(/\sstyle="|<script(?![^>]*\ssrc=)[^>]*>|<style|\son[a-z]+="/);
if (forbidden !== null)
  throw new Error(`The policy forbids ${forbidden[0]} at character ${forbidden.index} of the page.`);

await writeFile(built, page);
await rm(rendered, { recursive: true });
console.log(`prerendered ${(page.length / 1000).toFixed(1)} kB of HTML`);
