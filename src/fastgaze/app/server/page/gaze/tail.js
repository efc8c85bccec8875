// From the network's saliency map to a log density of any size: temperature * A X B^T + centre bias, then log softmax.
//
// Upsampling by the stride, the Gaussian and the resampling to the output are linear in each axis, so all three are one
// small matrix for the rows (A) and one for the columns (B), as in runtime/tail.py.

import { between } from "./numbers.js";

/** @typedef {import("./numbers.js").Size} Size */
/** @typedef {import("./card.js").Card} Card */
/** @typedef {{ width: number, height: number, values: Float32Array }} Grid */
/**
 * Where people look by habit: as the model expects for a picture like this one, as in a photograph or on a screen, or
 * nowhere in particular.
 * @typedef {"model" | "photograph" | "screen" | "none"} BiasName
 */

// As in runtime/tail.py and runtime/card.py.
const KIND_STEPS = 16;
const DOUBT = 0.01;

/**
 * Log density, natural log, logsumexp 0.
 * @param {Grid} saliency the network's output for a picture of `working` size
 * @param {Size} working
 * @param {Card} card
 * @param {Size} size of the result
 * @param {Grid | null} bias
 * @returns {Grid}
 */
export function logDensity(saliency, working, card, size, bias) {
  const left = axisMatrix(saliency.height, working.height, size.height, card.sigma);
  const right = axisMatrix(saliency.width, working.width, size.width, card.sigma);
  const logits = product(left, saliency, right, size);
  for (let i = 0; i < logits.length; i++) logits[i] *= card.temperature;
  if (bias) addStretched(logits, bias, size);
  return { ...size, values: logSoftmax(logits) };
}

/**
 * How likely the picture with this summary is a screen, 0..1; null if the model does not tell.
 * @param {Card} card
 * @param {Float32Array | null} summary
 */
export function isScreen({ name, kinds }, summary) {
  if (!kinds) return null;
  const { weights, offset } = kinds;
  if (summary?.length !== weights.length) throw new Error(`model ${name} gives no summary that fits its card; export it again`);
  return 1 / (1 + Math.exp(-summary.reduce((sum, value, i) => sum + value * weights[i], offset)));
}

/**
 * The centre bias of that name, for a picture that is a screen with the probability `screen`, in even steps.
 * @param {Card} card
 * @param {BiasName} name
 * @param {number | null} screen
 * @returns {Grid | null}
 */
export function biasOf(card, name, screen) {
  if (!["model", "photograph", "screen", "none"].includes(name)) {
    throw new TypeError(`centerBias "${name}" is not "model", "photograph", "screen" or "none"`);
  }
  if (name === "none") return null;
  if (name === "model" && (!card.kinds || screen === null)) return card.bias;
  if (!card.kinds) throw new TypeError(`model ${card.name} has one centre bias for all kinds of pictures; use "model" or "none"`);
  const { photograph, screen: page } = card.kinds;
  const likely = name === "model" ? Number(screen) : Number(name === "screen");
  const sure = Math.min(Math.max(Math.round(KIND_STEPS * likely) / KIND_STEPS, DOUBT), 1 - DOUBT);
  const values = photograph.values.map((value, i) => {
    const high = Math.max(value, page.values[i]);
    return high + Math.log((1 - sure) * Math.exp(value - high) + sure * Math.exp(page.values[i] - high));
  });
  return { ...photograph, values };
}

/**
 * (outputs, cells): upsampling from cells to pixels, Gaussian, interpolation at the outputs.
 * @param {number} cells
 * @param {number} pixels
 * @param {number} outputs
 * @param {number} sigma
 */
function axisMatrix(cells, pixels, outputs, sigma) {
  const blurred = blurMatrix(cells, pixels, sigma);
  const { below, weight } = between(pixels, outputs);
  const matrix = new Float64Array(outputs * cells);
  for (let i = 0; i < outputs; i++) {
    const low = below[i] * cells;
    const high = Math.min(below[i] + 1, pixels - 1) * cells;
    for (let j = 0; j < cells; j++) matrix[i * cells + j] = blurred[low + j] * (1 - weight[i]) + blurred[high + j] * weight[i];
  }
  return matrix;
}

/** @type {Map<string, Float64Array>} */
const blurMatrices = new Map();

/**
 * (pixels, cells): upsampling, then a Gaussian whose rows keep unit weight at the ends.
 * @param {number} cells
 * @param {number} pixels
 * @param {number} sigma
 */
function blurMatrix(cells, pixels, sigma) {
  const key = `${cells} ${pixels} ${sigma}`;
  const known = blurMatrices.get(key);
  if (known) return known;
  const { below, weight } = between(cells, pixels);
  const kernel = Float64Array.from({ length: pixels }, (_, offset) => Math.exp(-0.5 * (offset / Math.max(sigma, 1e-6)) ** 2));
  const matrix = new Float64Array(pixels * cells);
  for (let i = 0; i < pixels; i++) {
    let total = 0;
    for (let j = 0; j < pixels; j++) {
      const value = kernel[Math.abs(i - j)];
      total += value;
      matrix[i * cells + below[j]] += value * (1 - weight[j]);
      matrix[i * cells + Math.min(below[j] + 1, cells - 1)] += value * weight[j];
    }
    for (let j = 0; j < cells; j++) matrix[i * cells + j] /= total;
  }
  if (blurMatrices.size >= 64) blurMatrices.clear();
  blurMatrices.set(key, matrix);
  return matrix;
}

/**
 * left (height, h) @ grid (h, w) @ right (width, w)^T.
 * @param {Float64Array} left
 * @param {Grid} grid
 * @param {Float64Array} right
 * @param {Size} size
 */
function product(left, { width: w, height: h, values }, right, { width, height }) {
  const row = new Float64Array(w);
  const out = new Float64Array(width * height);
  for (let y = 0; y < height; y++) {
    row.fill(0);
    for (let i = 0; i < h; i++) {
      const factor = left[y * h + i];
      for (let j = 0; j < w; j++) row[j] += factor * values[i * w + j];
    }
    for (let x = 0; x < width; x++) {
      let sum = 0;
      for (let j = 0; j < w; j++) sum += row[j] * right[x * w + j];
      out[y * width + x] = sum;
    }
  }
  return out;
}

/**
 * Adds `grid`, interpolated to `size`, to `logits`.
 * @param {Float64Array} logits
 * @param {Grid} grid
 * @param {Size} size
 */
function addStretched(logits, { width: w, height: h, values }, { width, height }) {
  const down = between(h, height);
  const across = between(w, width);
  for (let y = 0; y < height; y++) {
    const top = down.below[y] * w;
    const bottom = Math.min(down.below[y] + 1, h - 1) * w;
    const v = down.weight[y];
    for (let x = 0; x < width; x++) {
      const left = across.below[x];
      const right = Math.min(left + 1, w - 1);
      const u = across.weight[x];
      const above = values[top + left] * (1 - u) + values[top + right] * u;
      const under = values[bottom + left] * (1 - u) + values[bottom + right] * u;
      logits[y * width + x] += above * (1 - v) + under * v;
    }
  }
}

/** @param {Float64Array} logits */
function logSoftmax(logits) {
  let highest = -Infinity;
  for (let i = 0; i < logits.length; i++) if (logits[i] > highest) highest = logits[i];
  let total = 0;
  for (let i = 0; i < logits.length; i++) total += Math.exp(logits[i] - highest);
  const shift = highest + Math.log(total);
  const out = new Float32Array(logits.length);
  for (let i = 0; i < logits.length; i++) out[i] = logits[i] - shift;
  return out;
}
