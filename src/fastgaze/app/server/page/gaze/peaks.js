// Places that draw the eye by themselves: local maxima of the density, and how much attention each of them has.
//
// As runtime/peaks.py: two maxima closer than a tenth of the picture's diagonal are one, and one at the very border is
// none if anything within that tenth exceeds it. A peak's mass is that of the cells within the same tenth that are nearer
// to it than to any other peak.

import { clamp, fixed } from "./numbers.js";

/** @typedef {import("./numbers.js").Size} Size */
/** @typedef {import("./tail.js").Grid} Grid */
/** @typedef {{ row: number, column: number }} Cell */
/**
 * @typedef {object} Peak
 * @property {number} x pixels of the picture; the centre of the first pixel is at 0.5
 * @property {number} y
 * @property {number} mass share of all fixations around it and nearer to it than to any other peak, 0..1
 * @property {number} density probability of the one pixel at its place
 */

/** Of the diagonal: the least distance between two peaks, and the most of what belongs to one. */
const REACH = 0.1;

/**
 * All peaks of a density on a grid over a picture of `size`, by mass, most first.
 * @param {Grid} density
 * @param {Size} size
 * @returns {Peak[]}
 */
export function findPeaks(density, size) {
  const cell = { width: size.width / density.width, height: size.height / density.height };
  const reach = Math.max(REACH * Math.hypot(size.width, size.height), 1);
  const cells = distinct(density, maxima(density), cell, reach);
  const masses = massesOf(density, cells, cell, reach);
  const found = cells.map(({ row, column }, index) => {
    const offset = within(density, row, column);
    return {
      x: (column + 0.5 + offset.across) * cell.width,
      y: (row + 0.5 + offset.down) * cell.height,
      mass: Math.min(masses[index], 1),
      density: density.values[row * density.width + column] / (cell.width * cell.height),
    };
  });
  return found.sort((a, b) => b.mass - a.mass);
}

/**
 * As JSON carries it.
 * @param {Peak} peak
 */
export const peakToJson = ({ x, y, mass, density }) => ({ x: fixed(x, 2), y: fixed(y, 2), mass: fixed(mass, 6), density });

/**
 * Every cell that none of its eight neighbours exceeds, highest first.
 * @param {Grid} density
 * @returns {Cell[]}
 */
function maxima({ width, height, values }) {
  const found = [];
  for (let row = 0; row < height; row++) {
    for (let column = 0; column < width; column++) if (isHighest(row, column)) found.push({ row, column });
  }
  const value = (/** @type {Cell} */ at) => values[at.row * width + at.column];
  return found.sort((a, b) => value(b) - value(a));

  /**
   * @param {number} row
   * @param {number} column
   */
  function isHighest(row, column) {
    const value = values[row * width + column];
    for (let i = Math.max(row - 1, 0); i <= Math.min(row + 1, height - 1); i++) {
      for (let j = Math.max(column - 1, 0); j <= Math.min(column + 1, width - 1); j++) {
        if (values[i * width + j] > value) return false;
      }
    }
    return true;
  }
}

/**
 * Those of the maxima `cells`, highest first, that are farther than `reach` from all before them.
 * @param {Grid} density
 * @param {Cell[]} cells
 * @param {Size} cell
 * @param {number} reach
 */
function distinct(density, cells, cell, reach) {
  const kept = [];
  while (cells.length) {
    const [first] = cells;
    if (endsASlope(density, first, cell, reach)) {
      cells = cells.slice(1);
      continue;
    }
    kept.push(first);
    cells = cells.filter(
      (each) => ((each.row - first.row) * cell.height) ** 2 + ((each.column - first.column) * cell.width) ** 2 > reach ** 2,
    );
  }
  return kept;
}

/**
 * Whether a maximum lies at the border and something within reach exceeds it.
 * @param {Grid} density
 * @param {Cell} place
 * @param {Size} cell
 * @param {number} reach
 */
function endsASlope({ width, height, values }, { row, column }, cell, reach) {
  if (row > 0 && row < height - 1 && column > 0 && column < width - 1) return false;
  const [down, across] = [Math.ceil(reach / cell.height), Math.ceil(reach / cell.width)];
  for (let i = Math.max(row - down, 0); i <= Math.min(row + down, height - 1); i++) {
    for (let j = Math.max(column - across, 0); j <= Math.min(column + across, width - 1); j++) {
      const distance = ((i - row) * cell.height) ** 2 + ((j - column) * cell.width) ** 2;
      if (distance <= reach ** 2 && values[i * width + j] > values[row * width + column]) return true;
    }
  }
  return false;
}

/**
 * How far from the middle of its cell a maximum lies, in cells, -0.5..0.5: the top of the parabola through the cell and
 * its two neighbours; at the picture's border it stays the middle.
 * @param {Grid} density
 * @param {number} row
 * @param {number} column
 */
function within({ width, height, values }, row, column) {
  const top = (/** @type {number} */ before, /** @type {number} */ middle, /** @type {number} */ after) => {
    const bend = before - 2 * middle + after;
    return bend < 0 ? clamp((before - after) / (2 * bend), -0.5, 0.5) : 0;
  };
  const at = row * width + column;
  return {
    down: row > 0 && row < height - 1 ? top(values[at - width], values[at], values[at + width]) : 0,
    across: column > 0 && column < width - 1 ? top(values[at - 1], values[at], values[at + 1]) : 0,
  };
}

/**
 * Mass of the cells that belong to each of `cells`: within reach, and nearer to it than to the others.
 * @param {Grid} density
 * @param {Cell[]} cells
 * @param {Size} cell
 * @param {number} reach
 */
function massesOf({ width, height, values }, cells, cell, reach) {
  const nearest = new Float64Array(values.length).fill(reach ** 2);
  const owner = new Int32Array(values.length).fill(-1);
  const down = Math.ceil(reach / cell.height);
  const across = Math.ceil(reach / cell.width);
  cells.forEach(({ row, column }, index) => {
    for (let i = Math.max(row - down, 0); i <= Math.min(row + down, height - 1); i++) {
      for (let j = Math.max(column - across, 0); j <= Math.min(column + across, width - 1); j++) {
        const distance = ((i - row) * cell.height) ** 2 + ((j - column) * cell.width) ** 2;
        if (distance > nearest[i * width + j]) continue;
        nearest[i * width + j] = distance;
        owner[i * width + j] = index;
      }
    }
  });
  const masses = new Float64Array(cells.length);
  owner.forEach((index, i) => { if (index >= 0) masses[index] += values[i]; });
  return masses;
}
