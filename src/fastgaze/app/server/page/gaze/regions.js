// How much attention each of several boxes gets.

import { clamp, fixed, round } from "./numbers.js";

/** @typedef {import("./integral.js").Integral} Integral */
/** @typedef {{ left: number, top: number, width: number, height: number }} Box pixels of the picture */
/**
 * @typedef {object} Region
 * @property {string} name
 * @property {Box} box as it was counted: whole pixels, inside the picture
 * @property {number} share of all fixations, 0..1
 * @property {number} lift share of the attention over share of the area: 1 is what an even look would give
 * @property {number} rank 1 for the one with the most attention
 * @property {number} seen chance that at least one of the first fixations lands in it, if each lands independently
 */

/** Fixations within which a region is seen or not: about the first second. */
export const FIXATIONS = 3;

/**
 * Facts of each box, in the order given.
 * @param {Integral} integral
 * @param {Readonly<Record<string, Box>>} boxes by name
 * @param {number} [fixations]
 * @returns {Region[]}
 */
export function findRegions(integral, boxes, fixations = FIXATIONS) {
  const { width, height } = integral.size;
  const found = Object.entries(boxes).map(([name, given]) => {
    const box = inside(given, integral.size, name);
    const share = clamp(integral.mass(box.left, box.top, box.left + box.width, box.top + box.height), 0, 1);
    const area = (box.width * box.height) / (width * height);
    return { name, box, share, lift: share / area, rank: 0, seen: 1 - (1 - share) ** fixations };
  });
  [...found].sort((a, b) => b.share - a.share).forEach((region, index) => { region.rank = index + 1; });
  return found;
}

/**
 * As JSON carries it.
 * @param {Region} region
 */
export const regionToJson = (region) => ({
  ...region,
  share: fixed(region.share, 6),
  lift: fixed(region.lift, 4),
  seen: fixed(region.seen, 6),
});

/**
 * The part of `box` that lies in the picture, in whole pixels.
 * @param {Box} box
 * @param {import("./numbers.js").Size} size
 * @param {string} name
 * @returns {Box}
 */
function inside(box, { width, height }, name) {
  const [left, right] = [box.left, box.left + box.width].map((edge) => clamp(round(edge), 0, width));
  const [top, bottom] = [box.top, box.top + box.height].map((edge) => clamp(round(edge), 0, height));
  if (!(right > left && bottom > top)) {
    throw new RangeError(`region ${JSON.stringify(name)} holds no pixel of the picture, which has ${width}x${height}`);
  }
  return { left, top, width: right - left, height: bottom - top };
}
