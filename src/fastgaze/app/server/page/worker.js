// Runs the model in a thread of its own: WebGPU where there is one, else WebAssembly.

import { Predictor } from "./gaze/predictor.js";

const root = new URL("../", import.meta.url);
const predictors = new Map();
let last = { key: "" };
let runtime;
const kinds = hasWebGpu().then((there) => (there ? ["webgpu", "wasm"] : ["wasm"]));
kinds.then(([first]) => importRuntime(first)).catch(() => {}); // said when it is needed
// The name is that of the page's first model, which is loaded at once: nobody has asked for it yet, but somebody will.
if (self.name) predictor(self.name).catch(() => {});

const verbs = {
  async load({ name }) {
    await predictor(name);
  },

  async look({ file, number, options }) {
    const begun = performance.now();
    const { gaze, milliseconds } = await view(file, number, options);
    const found = await gaze.toJson();
    return { ...found, grid: gaze.grid, milliseconds: { ...milliseconds, total: performance.now() - begun } };
  },

  // After the map, which is shown meanwhile: heads take a second network.
  async crops({ file, number, options }) {
    const { gaze } = await view(file, number, options);
    return (await gaze.toJson({ ratios: options.ratio.split(","), n: Number(options.n) })).crops;
  },

  async grid({ file, number, options }) {
    return (await view(file, number, options)).gaze.grid;
  },

  async density({ file, number, options }) {
    const { gaze } = await view(file, number, options);
    const factor = Math.min(1, Math.sqrt(16e6 / (gaze.size.width * gaze.size.height)));
    return gaze.logDensity({ width: Math.floor(gaze.size.width * factor), height: Math.floor(gaze.size.height * factor) });
  },
};

self.addEventListener("message", async ({ data: { id, verb, ...message } }) => {
  try {
    self.postMessage({ id, answer: await verbs[verb](message) });
  } catch (error) {
    console.info(error);
    self.postMessage({ id, refusal: error.refusal ?? `This browser cannot run the model (${error.message}).` });
  }
});

// The map of a picture; the last one is kept, for what is asked of it next.
async function view(file, number, { model, center_bias: centerBias }) {
  const key = `${number} ${model} ${centerBias}`;
  if (last.key === key) return last;
  const begun = performance.now();
  const pixels = await decode(file);
  const decoding = performance.now() - begun;
  const ready = await predictor(model);
  const gaze = await ready.predict(pixels, { centerBias });
  last = { key, gaze, milliseconds: { decode: decoding, ...gaze.milliseconds } };
  return last;
}

function predictor(name) {
  if (!predictors.has(name)) {
    const loading = load(name);
    loading.catch(() => predictors.delete(name)); // the next call tries again
    predictors.set(name, loading);
  }
  return predictors.get(name);
}

async function load(name) {
  const content = read(`models/${encodeURIComponent(name)}.onnx`);
  const heads = () => read("models/heads.onnx");
  for (const kind of await kinds) {
    try {
      runtime = await importRuntime(kind);
      const model = await content;
      // The constants of these files are folded. WebGPU arranges the graph in its own way.
      const optimise = kind === "wasm" ? "disabled" : "all";
      return await Predictor.load(runtime, { model, heads, providers: [kind], optimise });
    } catch (error) {
      if (kind === "wasm") throw error;
      console.info("WebGPU does not work here; WebAssembly is used instead:", error.message);
    }
  }
}

const importRuntime = (kind) => import(new URL(`ort/ort.${kind}.bundle.min.mjs`, root).href);

async function hasWebGpu() {
  try {
    const adapter = await navigator.gpu?.requestAdapter();
    return Boolean(adapter) && !(adapter.info?.isFallbackAdapter ?? adapter.isFallbackAdapter);
  } catch {
    return false;
  }
}

async function read(path) {
  const response = await fetch(new URL(path, root));
  if (!response.ok) throw new Error(`${path}: status ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}

// Upright, over white, without conversion by colour profile: as core/pictures.py decodes.
async function decode(file) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file, { colorSpaceConversion: "none", imageOrientation: "from-image" });
  } catch (error) {
    throw Object.assign(error, { refusal: "This is not a picture that this browser can read. Save it as PNG or JPEG." });
  }
  const { width, height } = bitmap;
  const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  return context.getImageData(0, 0, width, height);
}
