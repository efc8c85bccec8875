// From the pixels of a picture to its gaze map: prepare, network, tail. onnxruntime-web runs the network.

import { readCard, workingSize } from "./card.js";
import { GazeMap, gridSize } from "./map.js";
import { prepare } from "./resize.js";
import { biasOf, isScreen, logDensity } from "./tail.js";

/** @typedef {import("./card.js").Card} Card */
/** @typedef {import("./resize.js").Pixels} Pixels */
/** @typedef {import("./numbers.js").Size} Size */
/**
 * What is used of onnxruntime-web.
 * @typedef {object} Runtime
 * @property {{ create(content: Uint8Array, options?: object): Promise<Session> }} InferenceSession
 * @property {new (type: "float32", data: Float32Array, dims: readonly number[]) => unknown} Tensor
 */
/**
 * @typedef {object} Session
 * @property {readonly string[]} inputNames
 * @property {readonly string[]} outputNames
 * @property {(feeds: Record<string, any>) => Promise<Record<string, any>>} run
 */

/** A network of one model file, with what the file says about itself. */
export class Network {
  #runtime;
  #session;
  /** @type {Promise<unknown>} */
  #last = Promise.resolve();

  /**
   * @param {Runtime} runtime
   * @param {Session} session
   * @param {Card} card
   */
  constructor(runtime, session, card) {
    this.card = card;
    this.#runtime = runtime;
    this.#session = session;
  }

  /**
   * @param {Runtime} runtime
   * @param {Uint8Array} content of the ONNX file
   * @param {readonly string[]} providers "wasm" or "webgpu"
   * @param {"all" | "disabled"} [optimise] what the engine does to the graph; nothing is left to do for one whose
   *   constants are folded, and an engine that does not try starts in two thirds of the time
   */
  static async load(runtime, content, providers, optimise = "all") {
    const card = readCard(content);
    const options = { executionProviders: providers, graphOptimizationLevel: optimise };
    const session = await runtime.InferenceSession.create(content, options);
    return new Network(runtime, session, card);
  }

  /**
   * The network's output for a picture (rows, columns), its summary of it where the file has one, the size at which it
   * saw it, and how long that took.
   * @param {Pixels} pixels
   */
  async look(pixels) {
    const begun = performance.now();
    const working = workingSize(this.card.working, pixels);
    const planes = prepare(pixels, working, this.card);
    const prepared = performance.now();
    // A session runs one picture at a time.
    const run = this.#last.then(() => this.#run(planes, working));
    this.#last = run.catch(() => {});
    const output = await run;
    return { working, ...output, milliseconds: { prepare: prepared - begun, network: performance.now() - prepared } };
  }

  /**
   * @param {Float32Array} planes
   * @param {Size} working
   */
  async #run(planes, { width, height }) {
    const image = new this.#runtime.Tensor("float32", planes, [1, 3, height, width]);
    const answers = await this.#session.run({ [this.#session.inputNames[0]]: image });
    const [answer, summary] = this.#session.outputNames.map((name) => answers[name]);
    const [, , rows, columns] = answer.dims;
    const values = /** @type {Float32Array} */ (answer.data);
    return { rows, columns, values, summary: /** @type {Float32Array | null} */ (summary?.data ?? null) };
  }
}

/** One model, ready to predict. */
export class Predictor {
  #gaze;
  #loadHeads;
  /** @type {Promise<Network> | undefined} */
  #heads;

  /**
   * @param {Network} gaze
   * @param {(() => Promise<Network>) | null} loadHeads called at the first crop
   */
  constructor(gaze, loadHeads) {
    this.card = gaze.card;
    this.#gaze = gaze;
    this.#loadHeads = loadHeads;
  }

  /**
   * @param {Runtime} runtime onnxruntime-web
   * @param {object} files
   * @param {Uint8Array} files.model content of an ONNX file
   * @param {Uint8Array | (() => Promise<Uint8Array>)} [files.heads] content of another one, or what reads it for the
   *   first crop; without it, crops go by attention alone
   * @param {readonly string[]} [files.providers]
   * @param {"all" | "disabled"} [files.optimise]
   */
  static async load(runtime, { model, heads, providers = ["wasm"], optimise = "all" }) {
    const gaze = await Network.load(runtime, model, providers, optimise);
    if (!heads) return new Predictor(gaze, null);
    const read = typeof heads === "function" ? heads : async () => heads;
    return new Predictor(gaze, async () => Network.load(runtime, await read(), providers, optimise));
  }

  /**
   * Where people look in a picture.
   * @param {Pixels} pixels such as a canvas's ImageData
   * @param {{ centerBias?: import("./tail.js").BiasName }} [options] where people are expected to look by habit
   */
  async predict(pixels, { centerBias = "model" } = {}) {
    const { width, height, data } = pixels;
    if (!(width >= 1 && height >= 1 && data?.length === 4 * width * height)) {
      throw new TypeError("a picture is { width, height, data } with 4 bytes per pixel, such as ImageData");
    }
    const { working, rows, columns, values, summary, milliseconds } = await this.#gaze.look(pixels);
    if (!values.every(Number.isFinite)) throw new Error(`model ${this.card.name} gives NaN or infinity for this picture`);
    const size = { width, height };
    const saliency = { width: columns, height: rows, values };
    const screen = isScreen(this.card, summary);
    const bias = biasOf(this.card, centerBias, screen);
    const at = (/** @type {Size} */ wanted) => logDensity(saliency, working, this.card, wanted, bias);
    const heads = () => this.#mapHeads(pixels);
    const begun = performance.now();
    const grid = at(gridSize(size));
    const times = { ...milliseconds, tail: performance.now() - begun };
    return new GazeMap(grid, size, { model: this.card.name, centerBias, screen, heads, at, milliseconds: times });
  }

  /**
   * How likely each cell of a grid over the picture belongs to a head.
   * @param {Pixels} pixels
   */
  async #mapHeads(pixels) {
    if (!this.#loadHeads) return null;
    this.#heads ??= this.#loadHeads().catch((error) => {
      this.#heads = undefined; // the next picture tries again
      throw error;
    });
    const { values, rows, columns } = await (await this.#heads).look(pixels);
    return { width: columns, height: rows, values: values.subarray(0, rows * columns) };
  }
}
