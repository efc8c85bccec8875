// The package: the bundled model in onnxruntime-web, loaded at the first call and kept.

import * as ort from "onnxruntime-web";
import { Predictor } from "./gaze/index.js";

export * from "./gaze/index.js";

/** @typedef {import("./gaze/resize.js").Pixels} Pixels */
/** @typedef {import("./gaze/crop.js").Crop} Crop */

const FILES = { model: new URL("./models/default.onnx", import.meta.url), heads: new URL("./models/heads.onnx", import.meta.url) };

/** @type {Promise<Predictor> | undefined} */
let shared;

/**
 * A model of your own, or the bundled one.
 * @param {{ model?: string | URL | Uint8Array, heads?: string | URL | Uint8Array, providers?: readonly string[] }} [options]
 *   addresses or contents of .onnx files; providers: ["wasm"] by default, or ["webgpu", "wasm"]
 */
export async function load({ model = FILES.model, heads = FILES.heads, providers = ["wasm"] } = {}) {
  const [first, second] = await Promise.all([contentOf(model), contentOf(heads)]);
  return Predictor.load(/** @type {any} */ (ort), { model: first, heads: second, providers });
}

/**
 * Where people look in a picture.
 * @param {Pixels} imageData of a canvas, or { width, height, data } with 4 bytes per pixel
 * @param {{ centerBias?: import("./gaze/tail.js").BiasName }} [options]
 */
export async function predict(imageData, options) {
  return (await defaultModel()).predict(imageData, options);
}

/**
 * The window of `ratio`, such as "16:9" or 1.5, that keeps most of what people look at and leaves heads whole.
 * @param {Pixels} imageData
 * @param {string | number} ratio width over height
 * @returns {Promise<Crop>}
 */
export async function crop(imageData, ratio) {
  const [window] = await (await predict(imageData)).crop(ratio);
  return window;
}

function defaultModel() {
  shared ??= load().catch((error) => {
    shared = undefined; // the next call tries again
    throw error;
  });
  return shared;
}

/** @param {string | URL | Uint8Array} source */
async function contentOf(source) {
  if (source instanceof Uint8Array) return source;
  const url = source instanceof URL ? source : new URL(source, import.meta.url);
  if (url.protocol === "file:") {
    const { readFile } = await import("node:fs/promises");
    return readFile(url);
  }
  const response = await fetch(url);
  if (!response.ok) throw new Error(`cannot load ${url}: status ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}
