// Arithmetic that has to agree with Python's and NumPy's.

/** @typedef {{ width: number, height: number }} Size */

/**
 * The nearest whole number; a half goes to the even one, as in Python.
 * @param {number} value
 */
export function round(value) {
  const below = Math.floor(value);
  const rest = value - below;
  return rest < 0.5 || (rest === 0.5 && below % 2 === 0) ? below : below + 1;
}

/**
 * `value` with so many digits after the point, as JSON carries it.
 * @param {number} value
 * @param {number} digits
 */
export const fixed = (value, digits) => Number(value.toFixed(digits));

/**
 * @param {number} value
 * @param {number} low
 * @param {number} high
 */
export const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

/**
 * `size` itself, or the size of the same shape whose longer side is `longest`; no side is below 1.
 * @param {Size} size
 * @param {number} longest
 * @returns {Size}
 */
export function shrunk({ width, height }, longest) {
  const scale = Math.min(longest / Math.max(width, height), 1);
  return { width: Math.max(round(width * scale), 1), height: Math.max(round(height * scale), 1) };
}

/**
 * Where each of `outputs` samples lies among `inputs` samples over the same length: the sample below and the weight of
 * the one above it. Beyond the outermost samples the edge value is kept.
 * @param {number} inputs
 * @param {number} outputs
 */
export function between(inputs, outputs) {
  const below = new Int32Array(outputs);
  const weight = new Float64Array(outputs);
  for (let i = 0; i < outputs; i++) {
    const position = clamp(((i + 0.5) * inputs) / outputs - 0.5, 0, inputs - 1);
    below[i] = Math.floor(position);
    weight[i] = position - below[i];
  }
  return { below, weight };
}
