// Crop windows of a given ratio that keep what people look at, and do not cut heads, as runtime/crop.py finds them.
//
// worth = mass - EDGE * cut - HEAD * damage - area: the attention inside a window, minus attention beyond an even share
// in narrow bands along its edges, minus the weights of the heads that are not whole inside it, minus its share of the
// picture. An edge on the border of the picture cuts nothing. The first candidate is the largest window at its best
// place; the others, of any scale, are ranked by worth and overlap little.

import { findHeads } from "./heads.js";
import { clamp, fixed, round } from "./numbers.js";

/** @typedef {import("./numbers.js").Size} Size */
/** @typedef {import("./tail.js").Grid} Grid */
/** @typedef {import("./heads.js").Head} Head */
/** @typedef {import("./integral.js").Integral} Integral */
/** @typedef {[left: number, top: number, right: number, bottom: number]} Edges right and bottom are the first outside */
/**
 * @typedef {object} Crop
 * @property {Edges} box pixels of the picture
 * @property {number} mass share of all fixations inside the window, 0..1
 * @property {number} gain how much more that is than what a window of this size in the middle keeps
 * @property {[x: number, y: number]} focalPoint centre of the small square in it that holds the most attention
 * @property {number} scale size relative to the largest window of this ratio
 * @property {[x: number, y: number] | null} objectPosition for CSS, in percent; null for smaller windows
 */
/** @typedef {{ worth: number, box: Edges, scale: number }} Window */

const SCALES = [1, 0.8, 0.64, 0.5];
const MOST_OVERLAP = 0.4;
/** Width of the band along a cutting edge, relative to the window's shorter side. */
const BAND = 0.03;
/** Attention that a window may lose for each unit that its edges do not cut. */
const EDGE = 0.5;
/** Attention that a window may lose to leave all heads whole. */
const HEAD = 0.2;
/** How exactly the edges of a head are known, relative to its size. */
const BLUR = 0.1;
const PLACES = 64;
const MOST_CANDIDATES = 64;

/**
 * "16:9", "4/3" or 1.5 -> width over height.
 * @param {string | number} ratio
 */
export function parseRatio(ratio) {
  const match = /^\s*([0-9.]+)(?:\s*[:/x]\s*([0-9.]+))?\s*$/.exec(String(ratio));
  const value = match ? Number(match[1]) / Number(match[2] ?? 1) : NaN;
  if (!(value >= 0.01 && value <= 100)) {
    throw new RangeError(`ratio ${JSON.stringify(ratio)} is not width:height between 1:100 and 100:1, such as 16:9`);
  }
  return value;
}

/**
 * The best windows of `ratio`, at most `n`, best first.
 * @param {Integral} integral of the density
 * @param {string | number} ratio
 * @param {number} n
 * @param {Grid | null} heads how likely each cell of a grid over the picture belongs to a head
 * @returns {Crop[]}
 */
export function crop(integral, ratio, n, heads) {
  if (!(n >= 1 && n <= MOST_CANDIDATES)) throw new RangeError(`n=${n} is not between 1 and ${MOST_CANDIDATES}`);
  const value = parseRatio(ratio);
  const found = heads ? findHeads(heads) : [];
  const largest = windowsOf(integral, value, SCALES[0], found);
  const first = best(largest);
  if (n === 1) return [describe(integral, first)];
  const all = [largest, ...SCALES.slice(1).map((scale) => windowsOf(integral, value, scale, found))].flat();
  return distinct(all, first, n).map((window) => describe(integral, window));
}

/**
 * As JSON carries it.
 * @param {Crop} window
 */
export const cropToJson = ({ box, mass, gain, focalPoint, scale, objectPosition }) => ({
  box,
  mass: fixed(mass, 6),
  gain: fixed(gain, 6),
  focal_point: focalPoint.map((coordinate) => fixed(coordinate, 2)),
  scale,
  object_position: objectPosition && objectPosition.map((share) => `${share.toFixed(2)}%`).join(" "),
});

/** @param {readonly Window[]} windows */
const best = (windows) => windows.reduce((top, each) => (each.worth > top.worth ? each : top));

/**
 * @param {Size} size
 * @param {number} ratio
 * @param {number} scale
 * @returns {Size}
 */
function windowSize({ width, height }, ratio, scale) {
  const fit = Math.min(width, height * ratio) * scale;
  return { width: Math.max(Math.min(round(fit), width), 1), height: Math.max(Math.min(round(fit / ratio), height), 1) };
}

/**
 * At most `PLACES` + 1 whole numbers from `start` to `start` + `free`, evenly spaced.
 * @param {number} start
 * @param {number} free
 */
function places(start, free) {
  const steps = Math.min(free, PLACES);
  const found = Array.from({ length: steps + 1 }, (_, i) => round(steps ? start + i * (free / steps) : start));
  return [...new Set(found)];
}

/**
 * Windows of one scale on a grid of places, by rows, each with its worth above chance.
 * @param {Integral} integral
 * @param {number} ratio
 * @param {number} scale
 * @param {readonly Head[]} heads
 * @returns {Window[]}
 */
function windowsOf(integral, ratio, scale, heads) {
  const { size } = integral;
  const { width, height } = windowSize(size, ratio, scale);
  const [freeX, freeY] = [size.width - width, size.height - height];
  const [tops, lefts] = [places(0, freeY), places(0, freeX)];
  // By head: how likely it is whole for every top and for every left.
  const whole = heads.map(({ left, top, right, bottom, weight }) => ({
    weight,
    down: tops.map((start) => wholeBetween(top * size.height, bottom * size.height, start, height, size.height)),
    across: lefts.map((start) => wholeBetween(left * size.width, right * size.width, start, width, size.width)),
  }));
  return tops.flatMap((top, i) =>
    lefts.map((left, j) => {
      const box = /** @type {Edges} */ ([left, top, left + width, top + height]);
      // Of equal windows the most central one wins, so that an even map gives a centred crop.
      const aside = ((top - freeY / 2) / size.height) ** 2 + ((left - freeX / 2) / size.width) ** 2;
      const chance = (height * width) / (size.height * size.width);
      const damage = whole.reduce((sum, { weight, down, across }) => sum + weight * (1 - down[i] * across[j]), 0);
      const lost = EDGE * cutAttention(integral, box) + HEAD * damage;
      return { worth: integral.mass(...box) - lost - chance - 1e-5 * aside, box, scale };
    }),
  );
}

/**
 * Mass above chance in the bands along the edges that cut the picture.
 * @param {Integral} integral
 * @param {Edges} box
 */
function cutAttention(integral, [left, top, right, bottom]) {
  const { width, height } = integral.size;
  const band = Math.max(BAND * Math.min(right - left, bottom - top), 1);
  let total = 0;
  for (const y of [top, bottom]) {
    if (y <= 0 || y >= height) continue;
    const chance = ((Math.min(y + band, height) - Math.max(y - band, 0)) / height) * ((right - left) / width);
    total += Math.max(integral.mass(left, y - band, right, y + band) - chance, 0);
  }
  for (const x of [left, right]) {
    if (x <= 0 || x >= width) continue;
    const chance = ((Math.min(x + band, width) - Math.max(x - band, 0)) / width) * ((bottom - top) / height);
    total += Math.max(integral.mass(x - band, top, x + band, bottom) - chance, 0);
  }
  return total;
}

/**
 * How likely a head from `first` to `last` lies between `start` and `start` + `length`, along an axis of `free` pixels.
 * One half where an edge of the window touches it; the border of the picture cuts nothing.
 * @param {number} first
 * @param {number} last
 * @param {number} start
 * @param {number} length
 * @param {number} free
 */
function wholeBetween(first, last, start, length, free) {
  const before = start > 0 ? first - start : Infinity;
  const after = start + length < free ? start + length - last : Infinity;
  return clamp(0.5 + Math.min(before, after) / (2 * BLUR * (last - first)), 0, 1);
}

/**
 * `first` and the best windows after it that overlap little with all chosen before.
 * @param {readonly Window[]} windows
 * @param {Window} first
 * @param {number} n
 */
function distinct(windows, first, n) {
  const chosen = [first];
  let left = windows;
  while (chosen.length < n) {
    const last = chosen[chosen.length - 1];
    left = left.filter((each) => overlap(each.box, last.box) <= MOST_OVERLAP);
    if (!left.length) break;
    chosen.push(best(left));
  }
  return chosen;
}

/**
 * Intersection over union.
 * @param {Edges} a
 * @param {Edges} b
 */
function overlap(a, b) {
  const width = Math.max(Math.min(a[2], b[2]) - Math.max(a[0], b[0]), 0);
  const height = Math.max(Math.min(a[3], b[3]) - Math.max(a[1], b[1]), 0);
  const area = (/** @type {Edges} */ box) => (box[2] - box[0]) * (box[3] - box[1]);
  return (width * height) / (area(a) + area(b) - width * height);
}

/**
 * @param {Integral} integral
 * @param {Window} window
 * @returns {Crop}
 */
function describe(integral, { box, scale }) {
  const [left, top, right, bottom] = box;
  const { width, height } = integral.size;
  const [x, y] = [(width - right + left) / 2, (height - bottom + top) / 2];
  const mass = clamp(integral.mass(...box), 0, 1);
  const central = clamp(integral.mass(x, y, x + right - left, y + bottom - top), 0, 1);
  const percent = (/** @type {number} */ before, /** @type {number} */ after) =>
    before + after ? (100 * before) / (before + after) : 50;
  return {
    box,
    mass,
    gain: mass - central,
    focalPoint: focalPoint(integral, box),
    scale,
    objectPosition: scale === 1 ? [percent(left, width - right), percent(top, height - bottom)] : null,
  };
}

/**
 * @param {Integral} integral
 * @param {Edges} box
 * @returns {[number, number]}
 */
function focalPoint(integral, [left, top, right, bottom]) {
  const side = Math.max(Math.floor(Math.min(right - left, bottom - top) / 5), 1);
  let [x, y, most] = [left, top, -Infinity];
  for (const row of places(top, bottom - side - top)) {
    for (const column of places(left, right - side - left)) {
      const mass = integral.mass(column, row, column + side, row + side);
      if (mass > most) [x, y, most] = [column, row, mass];
    }
  }
  const steps = Math.min(side, PLACES);
  const step = side / steps;
  let [total, sumX, sumY] = [0, 0, 0];
  for (let i = 0; i < steps; i++) {
    const [start, end] = [i * step, (i + 1) * step];
    const column = integral.mass(x + start, y, x + end, y + side);
    total += column;
    sumX += (column * (start + end)) / 2;
    sumY += (integral.mass(x, y + start, x + side, y + end) * (start + end)) / 2;
  }
  return total > 0 ? [x + sumX / total, y + sumY / total] : [x + side / 2, y + side / 2];
}
