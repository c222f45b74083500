/**
 * A stand-in for the API: the contract's calls and events over jobs in memory, with drawn pictures. For developing the
 * page without workers, and for tests of the page alone. Prompts that contain "fail", "retry" or "full" do that.
 *
 *     node mock/server.mjs [port] [ms per step]        serves the built page, too
 */

import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname } from "node:path";
import { Generations } from "./generations.mjs";

const STATIC = new URL("../../orchestrator/static/", import.meta.url);
const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
};
const POLICY =
  "default-src 'self'; img-src 'self' data: blob:; style-src 'self'; script-src 'self'; object-src 'none'; base-uri 'none'";
const CARD = JSON.parse(await readFile(new URL("../../workers/builtin/card.json", import.meta.url), "utf8"));
const HEARTBEAT_MS = 15_000;

const [port = "8000", msPerStep = "120"] = process.argv.slice(2);
const generations = new Generations(CARD, Number(msPerStep));

const ROUTES = [
  ["GET", /^\/v1\/models$/, (_, reply) => reply.json(200, { data: [CARD] })],
  ["GET", /^\/v1\/events$/, stream],
  ["GET", /^\/v1\/generations$/, (_, reply) => reply.json(200, { data: generations.newest(50), next_cursor: null })],
  ["POST", /^\/v1\/generations$/, create],
  ["GET", /^\/v1\/generations\/(\w+)$/, withJob((job, reply) => reply.json(200, job))],
  ["DELETE", /^\/v1\/generations\/(\w+)$/, withJob((job, reply) => reply.outcome(generations.remove(job), 204))],
  [
    "POST",
    /^\/v1\/generations\/(\w+)\/cancel$/,
    withJob((job, reply) => reply.outcome(generations.cancel(job), 202, job)),
  ],
  [
    "POST",
    /^\/v1\/generations\/(\w+)\/retry$/,
    withJob((job, reply) => reply.outcome(generations.retry(job), 202, job)),
  ],
  [
    "GET",
    /^\/v1\/generations\/(\w+)\/images\/(\d)$/,
    withJob((job, reply, [, , index]) => reply.png(generations.picture(job, Number(index)))),
  ],
  ["GET", /^\/v1\/generations\/(\w+)\/preview$/, withJob((job, reply) => reply.png(generations.preview(job)))],
  ["GET", /^\/[\w./-]*$/, page],
];

createServer(async (request, response) => {
  const path = new URL(request.url, "http://mock").pathname;
  for (const [method, pattern, answer] of ROUTES) {
    const match = request.method === method && pattern.exec(path);
    if (match) return answer(request, replies(response), match);
  }
  replies(response).problem(404, "There is nothing here.");
}).listen(Number(port), "127.0.0.1", function () {
  console.log(`http://127.0.0.1:${this.address().port}`);
});

async function create(request, reply) {
  let text = "";
  for await (const piece of request.setEncoding("utf8")) text += piece;
  const body = JSON.parse(text || "{}");
  const errors = check(body);
  if (errors.length > 0) return reply.problem(422, "The request is not valid.", { errors });
  if (/\bfull\b/.test(body.prompt)) return reply.problem(429, "The queue is full.", {}, { "Retry-After": "5" });
  const key = request.headers["idempotency-key"] ?? randomBytes(8).toString("hex");
  const job = generations.add(body, key);
  reply.json(202, job, { Location: job.urls.self });
}

function check({ prompt, width = 64, height = 64, steps = 1 }) {
  const errors = [];
  if (typeof prompt !== "string" || prompt === "") errors.push({ field: "prompt", problem: "must not be empty" });
  for (const [field, value] of Object.entries({ width, height })) {
    if (value % 8 !== 0 || value < 64 || value > 2048)
      errors.push({ field, problem: "must be a multiple of 8 from 64 to 2048" });
  }
  if (steps < 1 || steps > 150) errors.push({ field: "steps", problem: "must be from 1 to 150" });
  return errors;
}

function stream(request, reply) {
  const { response } = reply;
  response.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
  const send = (type, data, id) =>
    response.write(`${id ? `id: ${id}\n` : ""}event: ${type}\ndata: ${JSON.stringify(data)}\n\n`);
  const missed = generations.after(request.headers["last-event-id"]);
  if (missed === null) {
    if (request.headers["last-event-id"]) send("reset", {});
    for (const job of generations.newest(50).reverse()) send("snapshot", { generation: job });
    send("ready", {}, generations.lastId);
  } else {
    for (const event of missed) send(event.type, event, event.id);
  }
  const stop = generations.watch((event) => send(event.type, event, event.id));
  const heartbeat = setInterval(() => response.write(":\n\n"), HEARTBEAT_MS);
  response.on("close", () => {
    stop();
    clearInterval(heartbeat);
  });
}

async function page(request, reply) {
  const path = request.url === "/" ? "index.html" : request.url.slice(1).split("?")[0];
  const content = await readFile(new URL(path, STATIC)).catch(() => null);
  if (content === null || path.includes("..")) return reply.problem(404, "There is nothing here.");
  reply.send(200, content, {
    "Content-Type": TYPES[extname(path)] ?? "application/octet-stream",
    "Content-Security-Policy": POLICY,
  });
}

function withJob(answer) {
  return (_, reply, match) => {
    const job = generations.get(match[1]);
    return job === undefined ? reply.problem(404, `There is no generation ${match[1]}.`) : answer(job, reply, match);
  };
}

function replies(response) {
  const send = (status, content, headers) => response.writeHead(status, headers).end(content);
  const json = (status, body, headers = {}) =>
    send(status, JSON.stringify(body), { "Content-Type": "application/json", ...headers });
  const problem = (status, detail, more = {}, headers = {}) =>
    json(
      status,
      { type: "about:blank", title: detail, status, detail, ...more },
      { ...headers, "Content-Type": "application/problem+json" },
    );
  return {
    response,
    send,
    json,
    problem,
    png: (bytes) => (bytes === null ? problem(404, "No picture.") : send(200, bytes, { "Content-Type": "image/png" })),
    outcome(refusal, status, body) {
      if (refusal !== null) return problem(409, refusal);
      return body === undefined ? send(status, "", {}) : json(status, body);
    },
  };
}
