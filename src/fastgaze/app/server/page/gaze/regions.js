// Areas of interest: how much attention named boxes of a picture draw, as runtime/regions.py finds it.

import { boxToJson } from "./crop.js";
import { clamp, fixed, round } from "./numbers.js";

/** @typedef {import("./integral.js").Integral} Integral */
/** @typedef {import("./crop.js").Edges} Edges */
/**
 * @typedef {object} Region
 * @property {string} name
 * @property {Edges} box as it was counted: whole pixels, inside the picture
 * @property {number} share of all fixations, 0..1
 * @property {number} lift share of the attention over share of the area: 1 is what an even look would give
 * @property {number} rank 1 for the one with the most attention
 * @property {number} seen chance that at least one of the first fixations lands in it, if each lands independently
 */

/** Fixations within which a region may be seen, unless another number is asked for: about the first second. */
export const FIXATIONS = 3;

/**
 * Facts of each box, in the order given.
 * @param {Integral} integral
 * @param {Readonly<Record<string, Edges>>} boxes by name
 * @param {number} [fixations]
 * @returns {Region[]}
 */
export function findRegions(integral, boxes, fixations = FIXATIONS) {
  const { width, height } = integral.size;
  const found = Object.entries(boxes).map(([name, given]) => {
    const box = inside(given, integral.size, name);
    const [left, top, right, bottom] = box;
    const share = clamp(integral.mass(left, top, right, bottom), 0, 1);
    const area = ((right - left) * (bottom - top)) / (width * height);
    return { name, box, share, lift: share / area, rank: 0, seen: 1 - (1 - share) ** fixations };
  });
  [...found].sort((a, b) => b.share - a.share).forEach((region, index) => { region.rank = index + 1; });
  return found;
}

/**
 * As JSON carries it.
 * @param {Region} region
 */
export function regionToJson({ name, box, share, lift, rank, seen }) {
  return { name, box: boxToJson(box), share: fixed(share, 6), lift: fixed(lift, 4), rank, seen: fixed(seen, 6) };
}

/**
 * The part of a box that lies in the picture, in whole pixels.
 * @param {Edges} box
 * @param {import("./numbers.js").Size} size
 * @param {string} name
 * @returns {Edges}
 */
function inside(box, { width, height }, name) {
  const [left, right] = [box[0], box[2]].map((edge) => clamp(round(edge), 0, width));
  const [top, bottom] = [box[1], box[3]].map((edge) => clamp(round(edge), 0, height));
  if (!(right > left && bottom > top)) {
    throw new RangeError(`region ${JSON.stringify(name)} holds no pixel of the picture, which has ${width}x${height}`);
  }
  return [left, top, right, bottom];
}
