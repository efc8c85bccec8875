// Mass of any window of a picture, from sums over the cells of a grid; inside a cell the density counts as even.

import { clamp } from "./numbers.js";

/** @typedef {import("./numbers.js").Size} Size */
/** @typedef {import("./tail.js").Grid} Grid */

export class Integral {
  #width;
  #height;
  #sums;

  /**
   * @param {Grid} density sums to 1
   * @param {Size} size of the picture that the grid covers
   */
  constructor({ width, height, values }, size) {
    this.size = size;
    this.#width = width;
    this.#height = height;
    this.#sums = new Float64Array((width + 1) * (height + 1));
    for (let row = 0; row < height; row++) {
      let sum = 0;
      for (let column = 0; column < width; column++) {
        sum += values[row * width + column];
        this.#sums[(row + 1) * (width + 1) + column + 1] = this.#sums[row * (width + 1) + column + 1] + sum;
      }
    }
  }

  /**
   * Share of all fixations in one window, in pixels of the picture; edges may lie between pixels and outside.
   * @param {number} left
   * @param {number} top
   * @param {number} right
   * @param {number} bottom
   */
  mass(left, top, right, bottom) {
    const [from, to] = [left, right].map((x) => place(x, this.#width, this.size.width));
    const between = (/** @type {number} */ y) => this.#above(y, to) - this.#above(y, from);
    return between(bottom) - between(top);
  }

  /**
   * Mass above a row and to the left of a column.
   * @param {number} y
   * @param {{ below: number, weight: number }} column
   */
  #above(y, { below, weight }) {
    const length = this.#width + 1;
    const row = place(y, this.#height, this.size.height);
    const first = row.below * length + below;
    const upper = this.#sums[first] * (1 - weight) + this.#sums[first + 1] * weight;
    const lower = this.#sums[first + length] * (1 - weight) + this.#sums[first + length + 1] * weight;
    return upper * (1 - row.weight) + lower * row.weight;
  }

  /**
   * The same for every window [top, bottom) x [left, right): by tops, then by lefts.
   * @param {readonly number[]} tops
   * @param {readonly number[]} bottoms
   * @param {readonly number[]} lefts
   * @param {readonly number[]} rights
   */
  masses(tops, bottoms, lefts, rights) {
    const starts = lefts.map((x) => place(x, this.#width, this.size.width));
    const ends = rights.map((x) => place(x, this.#width, this.size.width));
    const found = new Float64Array(tops.length * lefts.length);
    tops.forEach((top, i) => {
      const columns = this.#columns(top, bottoms[i]);
      for (let j = 0; j < starts.length; j++) found[i * starts.length + j] = at(columns, ends[j]) - at(columns, starts[j]);
    });
    return found;
  }

  /**
   * Mass between two rows, to the left of each border between cells.
   * @param {number} top
   * @param {number} bottom
   */
  #columns(top, bottom) {
    const length = this.#width + 1;
    const [from, to] = [top, bottom].map((y) => place(y, this.#height, this.size.height));
    const columns = new Float64Array(length);
    for (let i = 0, a = from.below * length, b = to.below * length; i < length; i++, a++, b++) {
      columns[i] =
        this.#sums[b] * (1 - to.weight) + this.#sums[b + length] * to.weight -
        this.#sums[a] * (1 - from.weight) - this.#sums[a + length] * from.weight;
    }
    return columns;
  }
}

/**
 * Where a pixel lies between the borders of cells.
 * @param {number} pixel
 * @param {number} cells
 * @param {number} pixels
 */
function place(pixel, cells, pixels) {
  const position = clamp((pixel * cells) / pixels, 0, cells);
  const below = Math.min(Math.floor(position), cells - 1);
  return { below, weight: position - below };
}

/**
 * @param {Float64Array} values
 * @param {{ below: number, weight: number }} position
 */
const at = (values, { below, weight }) => values[below] * (1 - weight) + values[below + 1] * weight;
