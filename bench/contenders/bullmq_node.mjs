// BullMQ on Node with ioredis, at its defaults; jobs stay when they are completed, as everywhere here.
//
// Speaks the protocol of protocol.py; its packages lie in the folder that the variable BENCH_ENV names.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const require = createRequire(`${process.env.BENCH_ENV}/`);
const { Queue, Worker } = require("bullmq");

const [role, url, countText, concurrencyText, napText] = process.argv.slice(2);
const count = Number(countText);
const nap = Number(napText);
const IN_FLIGHT = 64;
const BULK = 1000;
const PAYLOAD_BYTES = 300;
const QUEUE = "bench";
const connection = url.startsWith("unix://")
  ? { path: url.slice(7), maxRetriesPerRequest: null }
  : { host: new URL(url).hostname, port: Number(new URL(url).port), maxRetriesPerRequest: null };

const now = () => process.hrtime.bigint();
const tell = (at, fields = {}) => process.stdout.write(`${JSON.stringify({ at, ...fields })}\n`);

// The same 300 bytes as payload() in protocol.py.
function payload(n) {
  const data = { n, prompt: "", size: [1024, 1024], steps: 30, guidance: 7.5 };
  const room = PAYLOAD_BYTES - JSON.stringify(data).length;
  data.prompt = "a red circle on a white background, ".repeat(9).slice(0, room);
  return data;
}

const ran = { times: new Uint8Array(count), total: 0, different: 0, first: 0n, last: 0n, cpu: 0, cpuLast: 0, idle: 0n, ended: 0n };
const cpuSeconds = () => (process.cpuUsage().user + process.cpuUsage().system) / 1e6;

async function body(job) {
  const at = now();
  const n = job.data.n;
  if (nap < 0) tell("began", { n, ns: Number(at) });
  if (ran.ended) ran.idle += at - ran.ended;
  ran.ended = 0n;
  if (!ran.times[n]) ran.different += 1;
  ran.times[n] = Math.min(ran.times[n] + 1, 9);
  ran.total += 1;
  ran.last = at;
  if (ran.total === 1) {
    ran.first = at;
    ran.cpu = cpuSeconds();
  }
  if (ran.different === count && ran.times[n] === 1) {
    ran.cpuLast = cpuSeconds();
    tell("last");
  }
  if (nap > 0) {
    await sleep(nap);
    ran.ended = now();
  }
}

function report() {
  tell("done", {
    times: ran.times.join(""),
    total: ran.total,
    first_ns: Number(ran.first),
    last_ns: Number(ran.last),
    cpu_s: (ran.cpuLast || cpuSeconds()) - ran.cpu,
    idle_s: Number(ran.idle) / 1e9,
  });
  leave();
}

function leave() {
  process.stdout.write("", () => process.exit(0));
}

const words = [];
const waiting = [];

function nextWord() {
  return words.length ? Promise.resolve(words.shift()) : new Promise((resolve) => waiting.push(resolve));
}

createInterface({ input: process.stdin })
  .on("line", (line) => {
    const word = line.trim();
    if (word === "count") tell("count", { ran: ran.total });
    else if (word === "stop") report();
    else if (waiting.length) waiting.shift()(word);
    else words.push(word);
  })
  .on("close", leave);

async function produce() {
  const queue = new Queue(QUEUE, { connection });
  await queue.waitUntilReady();
  if (role === "pickup") {
    for (let n = 0; n < count; n += 1) {
      await nextWord();
      const data = payload(n);
      const began = now();
      await queue.add("job", data);
      tell("added", { n, ns: Number(began) });
    }
    return;
  }
  const many = Array.from({ length: count }, (_, n) => payload(n));
  const times = [];
  let next = 0;
  tell("began");
  const began = now();
  const beganCpu = cpuSeconds();
  const line = async (step, act) => {
    while (next < count) {
      const n = next;
      next += step;
      const before = now();
      await act(n);
      times.push(Number(now() - before));
    }
  };
  if (role === "bulk" || role === "fill") {
    await line(BULK, (n) => queue.addBulk(many.slice(n, n + BULK).map((data) => ({ name: "job", data }))));
  } else {
    const add = (n) => queue.add("job", many[n]);
    await Promise.all(Array.from({ length: role === "add1" ? 1 : IN_FLIGHT }, () => line(1, add)));
  }
  const wall = Number(now() - began) / 1e9;
  const cpu = cpuSeconds() - beganCpu;
  times.sort((a, b) => a - b);
  const at = (share) => times[Math.floor(times.length * share)] / 1e6;
  tell("done", { wall_s: wall, cpu_s: cpu, p50_ms: at(0.5), p99_ms: at(0.99), began_ns: Number(began) });
}

const versions = Object.fromEntries(["bullmq", "ioredis"].map((name) => [name, require(`${name}/package.json`).version]));
tell("ready", { versions: { ...versions, node: process.versions.node }, has_bulk: true });
if ((await nextWord()) === "go") {
  if (role === "work") {
    new Worker(QUEUE, body, { connection, concurrency: Number(concurrencyText) });
  } else {
    await produce();
  }
}
