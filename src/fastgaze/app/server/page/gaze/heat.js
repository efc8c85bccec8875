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
  return Float64Array.from(values, (value) => Math.exp(value + cells));
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
  return Uint8Array.from(lift(logDensity), (value) => clamp((Math.sqrt(value) - 1) * unit, 0, 255) + 0.5);
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
  found.forEach((level, i) => rgba.set(colours.subarray(4 * level, 4 * level + 4), 4 * i));
  return rgba;
}
