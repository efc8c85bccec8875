// From the pixels of a picture to what the network takes: over white, scaled with a triangle filter, normalised.
//
// As runtime/resize.py and core/pictures.py do for a file: while whole blocks of pixels fit they are averaged, then an
// antialiased bilinear filter does the rest. It is wider for a picture of more pixels than training saw, as resize.py
// explains.

/** @typedef {import("./numbers.js").Size} Size */
/** @typedef {import("./card.js").Card} Card */
/**
 * Red, green, blue and alpha of each pixel by rows, 0..255, not premultiplied: what a canvas's `getImageData` gives.
 * @typedef {{ width: number, height: number, data: Uint8Array | Uint8ClampedArray }} Pixels
 */

const ONE = 2 ** 24;
const MOST_ENLARGED = 2; // as in resize.py

/**
 * Float32 (3, height, width) of `working` size, normalised as the model wants it.
 * @param {Pixels} pixels
 * @param {Size} working
 * @param {Card} card
 */
export function prepare(pixels, working, card) {
  const area = working.width * working.height;
  const softened = card.seenPixels > 0 && pixels.width * pixels.height > card.seenPixels;
  const softness = softened ? Math.sqrt(1 + Math.min(area / card.seenPixels, MOST_ENLARGED)) : 1;
  const small = reduced(pixels, working);
  const rows = scaleRows(small, working.height, softness);
  const planes = new Float32Array(3 * area);
  scaleColumns(rows, small.width, working, softness, planes);
  for (let channel = 0; channel < 3; channel++) {
    const scale = 1 / (255 * card.std[channel]);
    const offset = -card.mean[channel] / card.std[channel];
    for (let i = channel * area; i < (channel + 1) * area; i++) planes[i] = planes[i] * scale + offset;
  }
  return planes;
}

/**
 * RGB over white, with blocks of 2, 4, 8, ... pixels along each side averaged as long as the result stays at least
 * `working`.
 * @param {Pixels} pixels
 * @param {Size} working
 * @returns {{ width: number, height: number, data: Uint8Array }}
 */
export function reduced({ width, height, data }, working) {
  const fits = Math.min(Math.floor(width / working.width), Math.floor(height / working.height));
  const factor = 2 ** Math.floor(Math.log2(Math.max(fits, 1)));
  if (factor < 2) return { width, height, data: overWhite(data) };
  const out = { width: Math.ceil(width / factor), height: Math.ceil(height / factor) };
  const rgb = new Uint8Array(3 * out.width * out.height);
  for (let y = 0, at = 0; y < out.height; y++) {
    const bottom = Math.min((y + 1) * factor, height);
    for (let x = 0; x < out.width; x++, at += 3) {
      const right = Math.min((x + 1) * factor, width);
      let red = 0;
      let green = 0;
      let blue = 0;
      for (let row = y * factor; row < bottom; row++) {
        for (let i = 4 * (row * width + x * factor), end = 4 * (row * width + right); i < end; i += 4) {
          const alpha = data[i + 3];
          red += alpha === 255 ? data[i] : blended(data[i], alpha);
          green += alpha === 255 ? data[i + 1] : blended(data[i + 1], alpha);
          blue += alpha === 255 ? data[i + 2] : blended(data[i + 2], alpha);
        }
      }
      const count = (bottom - y * factor) * (right - x * factor);
      // Pillow's division: by a reciprocal of 24 bits, which is cut off, not rounded.
      const half = count >> 1;
      const reciprocal = Math.floor(ONE / count);
      rgb[at] = ((red + half) * reciprocal) / ONE;
      rgb[at + 1] = ((green + half) * reciprocal) / ONE;
      rgb[at + 2] = ((blue + half) * reciprocal) / ONE;
    }
  }
  return { ...out, data: rgb };
}

/**
 * RGBA -> RGB.
 * @param {Pixels["data"]} data
 */
function overWhite(data) {
  const rgb = new Uint8Array((3 * data.length) / 4);
  for (let from = 0, to = 0; from < data.length; from += 4, to += 3) {
    const alpha = data[from + 3];
    for (let i = 0; i < 3; i++) rgb[to + i] = alpha === 255 ? data[from + i] : blended(data[from + i], alpha);
  }
  return rgb;
}

/**
 * One sample over white, in the integer arithmetic of image libraries.
 * @param {number} sample
 * @param {number} alpha
 */
function blended(sample, alpha) {
  const sum = 255 * (255 - alpha) + sample * alpha + 128;
  return (sum + (sum >> 8)) >> 8;
}

/**
 * The antialiased bilinear filter from `inputs` to `outputs` samples: which inputs an output reads, and their weights,
 * `taps` for each output, which sum to 1.
 * @param {number} inputs
 * @param {number} outputs
 * @param {number} [softness] how much wider the filter is than antialiasing needs
 */
export function filter(inputs, outputs, softness = 1) {
  const scale = inputs / outputs;
  const support = softness * Math.max(scale, 1);
  const taps = Math.ceil(2 * support) + 1;
  const first = new Int32Array(outputs);
  const weights = new Float64Array(outputs * taps);
  for (let i = 0; i < outputs; i++) {
    const center = (i + 0.5) * scale;
    first[i] = Math.max(Math.trunc(center - support + 0.5), 0);
    let total = 0;
    for (let tap = 0; tap < taps && first[i] + tap < inputs; tap++) {
      const weight = Math.max(1 - Math.abs(first[i] + tap + 0.5 - center) / support, 0);
      weights[i * taps + tap] = weight;
      total += weight;
    }
    for (let tap = 0; tap < taps; tap++) weights[i * taps + tap] /= total;
  }
  return { first, weights, taps };
}

/**
 * RGB by pixels -> Float32 (outputs, width * 3).
 * @param {{ width: number, height: number, data: Uint8Array }} rgb
 * @param {number} outputs
 * @param {number} softness
 */
function scaleRows({ width, height, data }, outputs, softness) {
  const { first, weights, taps } = filter(height, outputs, softness);
  const length = 3 * width;
  const out = new Float32Array(outputs * length);
  for (let y = 0; y < outputs; y++) {
    for (let tap = 0; tap < taps; tap++) {
      const weight = weights[y * taps + tap];
      if (weight === 0) continue;
      for (let i = 0, to = y * length, from = (first[y] + tap) * length; i < length; i++) out[to + i] += weight * data[from + i];
    }
  }
  return out;
}

/**
 * Float32 (height, inputs * 3) -> `out`, Float32 (3, height, width).
 * @param {Float32Array} rows
 * @param {number} inputs
 * @param {Size} size
 * @param {number} softness
 * @param {Float32Array} out
 */
function scaleColumns(rows, inputs, { width, height }, softness, out) {
  const { first, weights, taps } = filter(inputs, width, softness);
  const area = width * height;
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      let red = 0;
      let green = 0;
      let blue = 0;
      for (let tap = 0, i = 3 * (y * inputs + first[x]); tap < taps; tap++, i += 3) {
        const weight = weights[x * taps + tap];
        if (weight === 0) continue;
        red += weight * rows[i];
        green += weight * rows[i + 1];
        blue += weight * rows[i + 2];
      }
      const at = y * width + x;
      out[at] = red;
      out[at + area] = green;
      out[at + 2 * area] = blue;
    }
  }
}
