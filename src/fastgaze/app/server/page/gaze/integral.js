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
   * Share of all fixations in the window, in pixels of the picture; edges may lie between pixels and outside.
   * @param {number} left
   * @param {number} top
   * @param {number} right
   * @param {number} bottom
   */
  mass(left, top, right, bottom) {
    return this.#below(right, bottom) - this.#below(left, bottom) - this.#below(right, top) + this.#below(left, top);
  }

  /**
   * Mass above and to the left of a point.
   * @param {number} x
   * @param {number} y
   */
  #below(x, y) {
    const across = clamp((x * this.#width) / this.size.width, 0, this.#width);
    const down = clamp((y * this.#height) / this.size.height, 0, this.#height);
    const column = Math.min(Math.floor(across), this.#width - 1);
    const row = Math.min(Math.floor(down), this.#height - 1);
    const [u, v] = [across - column, down - row];
    const at = row * (this.#width + 1) + column;
    const under = at + this.#width + 1;
    const sums = this.#sums;
    return (sums[at] * (1 - u) + sums[at + 1] * u) * (1 - v) + (sums[under] * (1 - u) + sums[under + 1] * u) * v;
  }
}
