// Where people look in one picture, described once, on a grid of at most 256 cells, in pixels of the picture.

import { crop, cropToJson } from "./crop.js";
import { Integral } from "./integral.js";
import { fixed, shrunk } from "./numbers.js";
import { findPeaks, peakToJson } from "./peaks.js";
import { findRegions, regionToJson } from "./regions.js";

/** @typedef {import("./numbers.js").Size} Size */
/** @typedef {import("./tail.js").Grid} Grid */
/** @typedef {import("./peaks.js").Peak} Peak */
/** @typedef {import("./crop.js").Crop} Crop */
/** @typedef {import("./crop.js").Edges} Edges */
/** @typedef {import("./regions.js").Region} Region */

/** Cells along the longer side of the grid that everything is derived from. */
const GRID = 256;

/**
 * The size of the grid over a picture of `size`.
 * @param {Size} size
 */
export const gridSize = (size) => shrunk(size, GRID);

export class GazeMap {
  /** @type {Peak[] | undefined} */
  #peaks;
  /** @type {Promise<Grid | null> | undefined} */
  #heads;
  #look;
  #density;
  #integral;

  /**
   * @param {Grid} grid log density, natural log, logsumexp 0
   * @param {Size} size of the picture
   * @param {object} [facts]
   * @param {string} [facts.model]
   * @param {string} [facts.centerBias]
   * @param {number | null} [facts.screen] how likely the picture is a screen and not a photograph, 0..1
   * @param {() => Promise<Grid | null>} [facts.heads] how likely each cell of a grid belongs to a head
   * @param {(size: Size) => Grid} [facts.at] the log density at another size
   * @param {Readonly<Record<string, number>>} [facts.milliseconds] that the steps took
   */
  constructor(grid, size, facts = {}) {
    const { model = "", centerBias = "given", screen = null, heads = async () => null, at = () => grid, milliseconds = {} } = facts;
    this.milliseconds = milliseconds;
    this.model = model;
    this.centerBias = centerBias;
    this.screen = screen;
    this.size = size;
    this.grid = grid;
    this.logDensity = at;
    this.#look = heads;
    this.#density = { ...grid, values: grid.values.map(Math.exp) };
    this.#integral = new Integral(this.#density, size);
  }

  /** How far the map is from saying nothing: log2 of the number of cells minus its entropy, in bits. */
  get bits() {
    const { values } = this.grid;
    const entropy = -values.reduce((sum, value, i) => sum + this.#density.values[i] * value, 0) / Math.LN2;
    return Math.max(Math.log2(values.length) - entropy, 0);
  }

  /**
   * Share of all fixations in a box [left, top, right, bottom], in pixels of the picture, 0..1.
   * @param {Edges} box
   */
  mass(box) {
    return this.regions({ box })[0].share;
  }

  /**
   * At most `n` distinct places that draw the eye, by the attention around them, most first.
   * @param {number} [n]
   * @returns {Peak[]}
   */
  peaks(n = 3) {
    this.#peaks ??= findPeaks(this.#density, this.size);
    return this.#peaks.slice(0, n);
  }

  /**
   * The best windows of `ratio`, such as "16:9", at most `n`, best first. Asynchronous, because the first call looks
   * for heads, which a window should not cut.
   * @param {string | number} ratio width over height
   * @param {number} [n]
   * @returns {Promise<Crop[]>}
   */
  async crop(ratio, n = 1) {
    this.#heads ??= this.#look();
    return crop(this.#integral, ratio, n, await this.#heads);
  }

  /**
   * How much attention each of `boxes`, [left, top, right, bottom] by name, gets.
   * @param {Readonly<Record<string, Edges>>} boxes
   * @param {number} [fixations] within which a region is seen or not
   * @returns {Region[]}
   */
  regions(boxes, fixations) {
    return findRegions(this.#integral, boxes, fixations);
  }

  /**
   * The same document that Python's `GazeMap.to_json` and the server give.
   * @param {{ peaks?: number, ratios?: readonly string[], n?: number, regions?: Readonly<Record<string, Edges>> }} [wanted]
   */
  async toJson({ peaks = 5, ratios = [], n = 1, regions = {} } = {}) {
    const crops = [];
    for (const ratio of ratios) crops.push({ ratio, windows: (await this.crop(ratio, n)).map(cropToJson) });
    return {
      model: this.model,
      center_bias: this.centerBias,
      screen: this.screen === null ? null : fixed(this.screen, 4),
      picture_size: this.size,
      bits: fixed(this.bits, 4),
      peaks: this.peaks(peaks).map(peakToJson),
      crops,
      regions: this.regions(regions).map(regionToJson),
    };
  }
}
