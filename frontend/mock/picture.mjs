/** Draws what a prompt names, roughly, out of noise that clears with the progress: a PNG without any library. */

import { crc32, deflateSync } from "node:zlib";

const COLOURS = {
  red: [214, 48, 49],
  blue: [45, 98, 200],
  green: [46, 150, 84],
  yellow: [247, 212, 82],
  purple: [122, 73, 176],
  pink: [240, 130, 170],
  orange: [238, 130, 46],
  black: [30, 30, 30],
  white: [255, 255, 255],
};
const PERSIAN = { قرمز: "red", آبی: "blue", سبز: "green", زرد: "yellow", بنفش: "purple", صورتی: "pink", سفید: "white" };

/** Distance fields in [-1, 1]²: negative inside. */
const SHAPES = {
  circle: (x, y) => Math.hypot(x, y) - 0.55,
  square: (x, y) => Math.max(Math.abs(x), Math.abs(y)) - 0.5,
  diamond: (x, y) => Math.abs(x) + Math.abs(y) - 0.65,
  star: (x, y) => Math.hypot(x, y) - 0.45 - 0.16 * Math.cos(5 * (Math.atan2(y, x) + Math.PI / 2)),
  heart: (x, y) => (x * x + (1.1 * -y - Math.sqrt(Math.abs(x)) * 0.6) ** 2) * 2 - 0.55,
  triangle: (x, y) => Math.max(0.87 * Math.abs(x) - 0.5 * -y - 0.28, y - 0.5),
};

/** `clearness` 0 = noise, 1 = the picture. The same input and seed draw the same. */
export function drawPng({ prompt, width, height }, seed, clearness) {
  const random = mulberry32(seed);
  const words = prompt.split(/[\s,]+/).map((word) => PERSIAN[word] ?? word);
  const [ink = COLOURS.red, ground = COLOURS.white] = words.map((word) => COLOURS[word]).filter(Boolean);
  const distance = SHAPES[words.find((word) => SHAPES[word])] ?? SHAPES.circle;
  const [dx, dy] = [random() * 0.4 - 0.2, random() * 0.4 - 0.2];

  const rows = Buffer.alloc(height * (1 + width * 3));
  for (let y = 0, at = 0; y < height; y++) {
    at++; // filter type 0
    for (let x = 0; x < width; x++) {
      const inside = Math.min(
        1,
        Math.max(0, 0.5 - distance(((x + 0.5) / width) * 2 - 1 + dx, ((y + 0.5) / height) * 2 - 1 + dy) * width * 0.3),
      );
      for (let channel = 0; channel < 3; channel++) {
        const colour = ink[channel] * inside + ground[channel] * (1 - inside);
        rows[at++] = colour * clearness + random() * 255 * (1 - clearness);
      }
    }
  }
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 2, 0, 0, 0], 8);
  return Buffer.concat([
    Buffer.from("\x89PNG\r\n\x1a\n", "latin1"),
    chunk("IHDR", header),
    chunk("IDAT", deflateSync(rows)),
    chunk("IEND", Buffer.alloc(0)),
  ]);
}

function chunk(type, data) {
  const body = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(data.length);
  sum.writeUInt32BE(crc32(body));
  return Buffer.concat([length, body, sum]);
}

/** A small generator of random numbers from a seed. Source: mulberry32, public domain. */
function mulberry32(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
