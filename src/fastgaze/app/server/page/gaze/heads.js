// Heads, from crown to chin, in a map of how likely each part of a picture belongs to one, as runtime/headroom.py finds
// them. Their only use is to choose among windows; they are never shown.

/** @typedef {import("./tail.js").Grid} Grid */
/**
 * A connected region of likely cells; edges are shares of the picture's width and height.
 * @typedef {object} Head
 * @property {number} left
 * @property {number} top
 * @property {number} right
 * @property {number} bottom
 * @property {number} weight what damage to it counts: its highest value, times its share of the strength of all heads
 *   (area times the square of the highest value), or of `LEAST` of the picture where they have less, to the power of
 *   `ALONE`
 */

/** Cells of at least this value form heads. */
const LIKELY = 0.6;
/** Where the value falls below this, a head ends. */
const OUTLINE = 0.5;
/** Share of the picture that all heads together must have to count in full. */
const LEAST = 0.015;
/** How much one head counts for more than several that share its area. */
const ALONE = 4;

/**
 * The heads of a map, in the order of their first cells, by rows.
 * @param {Grid} grid
 * @returns {Head[]}
 */
export function findHeads(grid) {
  const regions = regionsOf(grid);
  const highest = regions.map((region) => Math.max(...region.map((cell) => grid.values[cell])));
  const strengths = regions.map((region, index) => region.length * highest[index] ** 2);
  const total = Math.max(strengths.reduce((sum, strength) => sum + strength, 0), LEAST * grid.values.length);
  return regions.map((region, index) => headOf(grid, region, highest[index] * (strengths[index] / total) ** ALONE));
}

/**
 * Cells of each region of likely cells that touch along their sides, as indices into the values.
 * @param {Grid} grid
 * @returns {number[][]}
 */
function regionsOf({ width, values }) {
  /** @type {Set<number>} */
  const waiting = new Set();
  values.forEach((value, cell) => value >= LIKELY && waiting.add(cell));
  const regions = [];
  for (const first of waiting) {
    const region = [first];
    waiting.delete(first);
    // The region grows while it is read.
    for (const cell of region) {
      const column = cell % width;
      const beside = [cell - width, cell + width, ...(column ? [cell - 1] : []), ...(column < width - 1 ? [cell + 1] : [])];
      region.push(...beside.filter((other) => waiting.delete(other)));
    }
    regions.push(region);
  }
  return regions;
}

/**
 * @param {Grid} grid
 * @param {readonly number[]} region
 * @param {number} weight
 * @returns {Head}
 */
function headOf({ width, height, values }, region, weight) {
  const rows = region.map((cell) => Math.floor(cell / width));
  const columns = region.map((cell) => cell % width);
  const [firstRow, lastRow] = [Math.min(...rows), Math.max(...rows)];
  const [firstColumn, lastColumn] = [Math.min(...columns), Math.max(...columns)];
  const byRow = new Float64Array(height).fill(-Infinity);
  const byColumn = new Float64Array(width).fill(-Infinity);
  values.forEach((value, cell) => {
    const [row, column] = [Math.floor(cell / width), cell % width];
    const [inRows, inColumns] = [row >= firstRow && row <= lastRow, column >= firstColumn && column <= lastColumn];
    if (inColumns) byRow[row] = Math.max(byRow[row], value);
    if (inRows) byColumn[column] = Math.max(byColumn[column], value);
  });
  const [top, bottom] = extent(byRow, firstRow, lastRow);
  const [left, right] = extent(byColumn, firstColumn, lastColumn);
  return { left, top, right, bottom, weight };
}

/**
 * Where the values pass `OUTLINE` before `first` and after `last`, in shares of their number.
 * @param {Float64Array} highest
 * @param {number} first
 * @param {number} last
 */
function extent(highest, first, last) {
  const n = highest.length;
  while (first > 0 && highest[first - 1] >= OUTLINE) first--;
  while (last < n - 1 && highest[last + 1] >= OUTLINE) last++;
  const start = first === 0 ? 0 : first + 0.5 - passing(highest[first], highest[first - 1]);
  const end = last === n - 1 ? n : last + 0.5 + passing(highest[last], highest[last + 1]);
  return [start / n, end / n];
}

/**
 * How far from one centre to the next the value falls to `OUTLINE`, 0..1.
 * @param {number} inside
 * @param {number} outside
 */
const passing = (inside, outside) => (inside - OUTLINE) / (inside - outside);
