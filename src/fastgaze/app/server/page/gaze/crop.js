// Crop windows of a given ratio that keep what people look at, and do not cut heads, as runtime/crop.py finds them:
//
//   worth = mass - EDGE * cut - HEAD * damage - area
//
// mass: the attention inside a window. cut: what bands along its edges hold beyond an even share. damage: the heads that
// do not lie whole inside it. area: its share of the picture. An edge on the border of the picture cuts nothing. The
// first candidate is the largest window at its best place; the others, of any scale, are the best ones that overlap
// little with those before.

import { findHeads } from "./heads.js";
import { clamp, fixed, round } from "./numbers.js";

/** @typedef {import("./numbers.js").Size} Size */
/** @typedef {import("./tail.js").Grid} Grid */
/** @typedef {import("./integral.js").Integral} Integral */
/** @typedef {import("./heads.js").Head} Head */
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
/**
 * Windows of one scale: worth by tops, then by lefts.
 * @typedef {{ worth: Float64Array, tops: number[], lefts: number[], size: Size, scale: number }} Windows
 */
/** @typedef {{ box: Edges, scale: number }} Window */

const SCALES = [1, 0.8, 0.64, 0.5];
const MOST_OVERLAP = 0.4;
/** Width of the band along a cutting edge, relative to the window's shorter side. */
const BAND = 0.03;
/** Attention that a window may lose for each unit that its edges do not cut. */
const EDGE = 0.1;
/** Attention that a window may lose to leave all heads whole. */
const HEAD = 0.36;
/** How exactly the edges of a head are known, relative to its size. */
const BLUR = 0.08;
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
  const scales = n === 1 ? SCALES.slice(0, 1) : SCALES;
  return choose(scales.map((scale) => windowsOf(integral, value, scale, found)), n).map((window) => describe(integral, window));
}

/**
 * A box as JSON carries it.
 * @param {Edges} box
 */
export const boxToJson = ([left, top, right, bottom]) => ({ left, top, width: right - left, height: bottom - top });

/**
 * As JSON carries it.
 * @param {Crop} window
 */
export const cropToJson = ({ box, mass, gain, focalPoint, scale, objectPosition }) => ({
  box: boxToJson(box),
  mass: fixed(mass, 6),
  gain: fixed(gain, 6),
  focal_point: { x: fixed(focalPoint[0], 2), y: fixed(focalPoint[1], 2) },
  scale,
  object_position: objectPosition && objectPosition.map((share) => `${share.toFixed(2)}%`).join(" "),
});

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
 * Windows of one scale on a grid of places, each with its worth.
 * @param {Integral} integral
 * @param {number} ratio
 * @param {number} scale
 * @param {readonly Head[]} heads
 * @returns {Windows}
 */
function windowsOf(integral, ratio, scale, heads) {
  const picture = integral.size;
  const size = windowSize(picture, ratio, scale);
  const [freeX, freeY] = [picture.width - size.width, picture.height - size.height];
  const [tops, lefts] = [places(0, freeY), places(0, freeX)];
  const worth = integral.masses(tops, shifted(tops, size.height), lefts, shifted(lefts, size.width));
  subtractCut(worth, integral, tops, lefts, size);
  const area = (size.width * size.height) / (picture.width * picture.height);
  const wholes = heads.map((head) => ({
    weight: head.weight,
    down: tops.map((top) => whole(head.top * picture.height, head.bottom * picture.height, top, size.height, picture.height)),
    across: lefts.map((left) => whole(head.left * picture.width, head.right * picture.width, left, size.width, picture.width)),
  }));
  for (let i = 0, k = 0; i < tops.length; i++) {
    for (let j = 0; j < lefts.length; j++, k++) {
      let damage = 0;
      for (const { weight, down, across } of wholes) damage += weight * (1 - down[i] * across[j]);
      // Of equal windows the most central one wins, so that an even map gives a centred crop.
      const aside = ((tops[i] - freeY / 2) / picture.height) ** 2 + ((lefts[j] - freeX / 2) / picture.width) ** 2;
      worth[k] -= HEAD * damage + area + 1e-5 * aside;
    }
  }
  return { worth, tops, lefts, size, scale };
}

/**
 * @param {readonly number[]} values
 * @param {number} offset
 */
const shifted = (values, offset) => values.map((value) => value + offset);

/**
 * Subtracts from the worth what the bands along the edges hold beyond chance.
 * @param {Float64Array} worth
 * @param {Integral} integral
 * @param {number[]} tops
 * @param {number[]} lefts
 * @param {Size} size
 */
function subtractCut(worth, integral, tops, lefts, size) {
  const { width, height } = integral.size;
  const band = Math.max(BAND * Math.min(size.width, size.height), 1);
  for (const ys of [tops, shifted(tops, size.height)]) {
    const masses = integral.masses(shifted(ys, -band), shifted(ys, band), lefts, shifted(lefts, size.width));
    const chances = ys.map((y) => chance(y, band, height, size.width / width));
    for (let i = 0, k = 0; i < ys.length; i++) {
      for (let j = 0; j < lefts.length; j++, k++) worth[k] -= EDGE * Math.max(masses[k] - chances[i], 0);
    }
  }
  for (const xs of [lefts, shifted(lefts, size.width)]) {
    const masses = integral.masses(tops, shifted(tops, size.height), shifted(xs, -band), shifted(xs, band));
    const chances = xs.map((x) => chance(x, band, width, size.height / height));
    for (let i = 0, k = 0; i < tops.length; i++) {
      for (let j = 0; j < xs.length; j++, k++) worth[k] -= EDGE * Math.max(masses[k] - chances[j], 0);
    }
  }
}

/**
 * Mass of an even map in the band around an edge; infinite where the edge is the border of the picture.
 * @param {number} edge
 * @param {number} band
 * @param {number} length
 * @param {number} share
 */
function chance(edge, band, length, share) {
  if (edge <= 0 || edge >= length) return Infinity;
  return ((Math.min(edge + band, length) - Math.max(edge - band, 0)) / length) * share;
}

/**
 * How likely a head from `first` to `last` lies whole between `start` and `start` + `length`, along one axis.
 * @param {number} first
 * @param {number} last
 * @param {number} start
 * @param {number} length
 * @param {number} free length of the picture
 */
function whole(first, last, start, length, free) {
  const before = start > 0 ? first - start : Infinity;
  const after = start + length < free ? start + length - last : Infinity;
  return clamp(0.5 + Math.min(before, after) / (2 * BLUR * (last - first)), 0, 1);
}

/**
 * The best window of the first group, and the best of all after it that overlap little with those chosen before.
 * @param {readonly Windows[]} groups
 * @param {number} n
 */
function choose(groups, n) {
  const chosen = [best(groups.slice(0, 1))];
  while (chosen.length < n) {
    const last = chosen[chosen.length - 1].box;
    for (const group of groups) exclude(group, last);
    const next = best(groups);
    if (next.worth === -Infinity) break;
    chosen.push(next);
  }
  return chosen;
}

/**
 * @param {readonly Windows[]} groups
 * @returns {Window & { worth: number }}
 */
function best(groups) {
  let [top, place, group] = [-Infinity, 0, groups[0]];
  for (const each of groups) {
    for (let k = 0; k < each.worth.length; k++) if (each.worth[k] > top) [top, place, group] = [each.worth[k], k, each];
  }
  return { worth: top, box: boxAt(group, place), scale: group.scale };
}

/**
 * @param {Windows} windows
 * @param {number} place
 * @returns {Edges}
 */
function boxAt({ tops, lefts, size }, place) {
  const [top, left] = [tops[Math.floor(place / lefts.length)], lefts[place % lefts.length]];
  return [left, top, left + size.width, top + size.height];
}

/**
 * Takes windows whose intersection with `box` is too large a part of their union out of the choice.
 * @param {Windows} windows
 * @param {Edges} box
 */
function exclude({ worth, tops, lefts, size }, [left, top, right, bottom]) {
  const common = (/** @type {number[]} */ starts, /** @type {number} */ length, /** @type {number} */ from, /** @type {number} */ to) =>
    starts.map((start) => Math.max(Math.min(start + length, to) - Math.max(start, from), 0));
  const [heights, widths] = [common(tops, size.height, top, bottom), common(lefts, size.width, left, right)];
  const areas = size.width * size.height + (right - left) * (bottom - top);
  for (let i = 0, k = 0; i < heights.length; i++) {
    for (let j = 0; j < widths.length; j++, k++) {
      const shared = heights[i] * widths[j];
      if (shared / (areas - shared) > MOST_OVERLAP) worth[k] = -Infinity;
    }
  }
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
  const [tops, lefts] = [places(top, bottom - side - top), places(left, right - side - left)];
  const masses = integral.masses(tops, shifted(tops, side), lefts, shifted(lefts, side));
  const most = masses.indexOf(masses.reduce((a, b) => Math.max(a, b)));
  const [x, y] = [lefts[most % lefts.length], tops[Math.floor(most / lefts.length)]];
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
