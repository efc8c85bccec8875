// How a map is drawn over its picture, as runtime/render.py does: places that draw more attention than the average are
// coloured by how many times more (their lift), all others stay exactly as they are.

import { clamp } from "./numbers.js";

/** @typedef {import("./tail.js").Grid} Grid */

/** The least lift that the highest colour stands for. */
export const LEAST_TOP = 16;

/** @type {readonly (readonly [number, readonly [number, number, number]])[]} level and colour */
const STOPS = [
  [0.0, [27, 48, 200]],
  [0.25, [20, 160, 255]],
  [0.42, [125, 240, 224]],
  [0.58, [255, 243, 92]],
  [0.78, [255, 106, 0]],
  [1.0, [130, 0, 34]],
];

/**
 * How many times the average each cell is looked at.
 * @param {Grid} logDensity
 */
export function lift({ values }) {
  const cells = Math.log(values.length);
  const found = new Float64Array(values.length);
  for (let i = 0; i < values.length; i++) found[i] = Math.exp(values[i] + cells);
  return found;
}

/**
 * The lift of the highest colour on a scale that all of `grids` share.
 * @param {readonly Grid[]} grids log densities
 */
export function topOf(grids) {
  return grids.reduce((top, grid) => lift(grid).reduce((a, b) => Math.max(a, b), top), LEAST_TOP);
}

/**
 * 0..255 for each cell; 0 is drawn as nothing.
 * @param {Grid} logDensity
 * @param {number} top lift of the highest level
 */
export function levels(logDensity, top) {
  const unit = 255 / (Math.sqrt(top) - 1);
  const lifts = lift(logDensity);
  const found = new Uint8Array(lifts.length);
  for (let i = 0; i < lifts.length; i++) found[i] = clamp((Math.sqrt(lifts[i]) - 1) * unit, 0, 255) + 0.5;
  return found;
}

/** Red, green, blue and opacity of the 256 levels, 0..255, four bytes for each. */
export function palette() {
  const rgba = new Uint8ClampedArray(4 * 256);
  for (let i = 0; i < 256; i++) {
    const level = i / 255;
    const next = Math.max(STOPS.findIndex(([place]) => place >= level), 1);
    const [[low, from], [high, to]] = [STOPS[next - 1], STOPS[next]];
    const share = (level - low) / (high - low);
    from.forEach((value, channel) => { rgba[4 * i + channel] = value + share * (to[channel] - value); });
    rgba[4 * i + 3] = 255 * level * (2 - level);
  }
  return rgba;
}

/**
 * The heat map to lay over the picture: RGBA of each cell, not premultiplied.
 * @param {Grid} logDensity
 * @param {number} [top] lift of the highest colour, by default the map's own
 */
export function paint(logDensity, top = topOf([logDensity])) {
  const colours = palette();
  const found = levels(logDensity, top);
  const rgba = new Uint8ClampedArray(4 * found.length);
  // Clear cells keep the lowest colour: enlarging blends with it, not with black.
  for (let i = 0; i < found.length; i++) {
    for (let channel = 0; channel < 4; channel++) rgba[4 * i + channel] = colours[4 * found[i] + channel];
  }
  return rgba;
}

/** Where the second map has more attention than the first, and where it has less. */
const GAINED = [224, 96, 0];
const LOST = [56, 64, 208];
/** Levels that differ by less are drawn as equal. */
const EQUAL = 0.04;

/**
 * What changed from one map to another, as runtime/compare.py draws it: RGBA of each cell of the second one. Maps are
 * laid over each other by relative position.
 * @param {Grid} before log density
 * @param {Grid} after log density
 * @param {number} top lift of the highest colour of both
 */
export function paintChange(before, after, top) {
  const [first, second] = [lift(before), lift(after)];
  const unit = Math.sqrt(top) - 1;
  const rgba = new Uint8ClampedArray(4 * second.length);
  second.forEach((value, i) => {
    const row = Math.floor(((Math.floor(i / after.width) + 0.5) * before.height) / after.height);
    const column = Math.floor((((i % after.width) + 0.5) * before.width) / after.width);
    const other = first[row * before.width + column];
    const level = (Math.sqrt(Math.max(value, 1)) - Math.sqrt(Math.max(other, 1))) / unit;
    const strength = clamp((Math.abs(level) - EQUAL) / (1 - EQUAL), 0, 1);
    rgba.set([...(level > 0 ? GAINED : LOST), 255 * 0.85 * strength * (2 - strength)], 4 * i);
  });
  return rgba;
}
