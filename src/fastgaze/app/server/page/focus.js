// The focus map: fog over what is not looked at, as runtime/render.py draws it.

import { clamp } from "./gaze/numbers.js";

// Fog is clear up to the first of these shares of the attention and full from the second on.
const CLEAR = 0.5;
const FOGGED = 0.9;
// Between dark and light, so that it shows on white pages and on night scenes.
const FOG = [104, 110, 120];

// RGBA of each cell. grid: log density.
export function paintFocus({ values }) {
  const rgba = new Uint8ClampedArray(4 * values.length);
  heldAbove(values).forEach((held, i) => rgba.set([...FOG, 255 * clamp((held - CLEAR) / (FOGGED - CLEAR), 0, 1)], 4 * i));
  return rgba;
}

// For each cell, the share of the attention on cells that are looked at more than it; equal cells have an equal share.
function heldAbove(values) {
  const order = Uint32Array.from(values, (_, i) => i).sort((a, b) => values[b] - values[a]);
  const held = new Float64Array(values.length);
  let sum = 0;
  let before = 0;
  order.forEach((cell, i) => {
    if (i === 0 || values[cell] !== values[order[i - 1]]) before = sum;
    held[cell] = before;
    sum += Math.exp(values[cell]);
  });
  return held;
}
