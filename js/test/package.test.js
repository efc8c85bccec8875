// What people rely on who use the package by itself.

import assert from "node:assert/strict";
import { test } from "node:test";
import { crop, GazeMap, load, palette, parseRatio, predict } from "../dist/index.js";

/** White with a dark square; people look at the square. */
function picture(width, height, { left, top, side }) {
  const data = new Uint8ClampedArray(4 * width * height).fill(255);
  for (let y = top; y < top + side; y++) {
    for (let x = left; x < left + side; x++) data.fill(20, 4 * (y * width + x), 4 * (y * width + x) + 3);
  }
  return { width, height, data };
}

test("people look at the only thing in a picture, and the crop keeps it", async () => {
  const imageData = picture(480, 240, { left: 360, top: 90, side: 60 });
  const gaze = await predict(imageData);
  const [peak] = gaze.peaks(1);
  assert.ok(Math.abs(peak.x - 390) < 40 && Math.abs(peak.y - 120) < 40, JSON.stringify(peak));
  const { box, mass } = await crop(imageData, "1:1");
  assert.deepEqual([box[2] - box[0], box[3] - box[1]], [240, 240]);
  assert.ok(box[0] <= 360 && box[2] >= 420);
  assert.ok(Math.abs(mass - gaze.mass(box)) < 1e-9);
});

test("a density sums to 1 at every size", async () => {
  const gaze = await predict(picture(300, 200, { left: 40, top: 40, side: 50 }));
  for (const size of [{ width: 30, height: 20 }, { width: 300, height: 200 }]) {
    const total = gaze.logDensity(size).values.reduce((sum, value) => sum + Math.exp(value), 0);
    assert.ok(Math.abs(total - 1) < 1e-4);
  }
});

test("regions that cover the picture share all attention", () => {
  const grid = { width: 4, height: 2, values: new Float32Array(8).fill(-Math.log(8)) };
  const gaze = new GazeMap(grid, { width: 400, height: 200 });
  const [left, right] = gaze.regions({
    left: [0, 0, 100, 200],
    right: [100, 0, 400, 200],
  }, 2);
  assert.ok(Math.abs(left.share - 0.25) < 1e-6 && Math.abs(left.lift - 1) < 1e-6 && left.rank === 2);
  assert.ok(Math.abs(right.seen - (1 - 0.25 ** 2)) < 1e-6 && right.rank === 1);
  assert.throws(() => gaze.regions({ outside: [500, 0, 509, 9] }), /"outside" holds no pixel/);
});

test("what cannot be meant is refused with a sentence", async () => {
  assert.equal(parseRatio("16:9"), 16 / 9);
  assert.equal(parseRatio(1.5), 1.5);
  for (const ratio of ["wide", "1:0", "1:101", -1, NaN]) assert.throws(() => parseRatio(ratio), /such as 16:9/);
  await assert.rejects(predict({ width: 2, height: 2, data: new Uint8Array(3) }), /4 bytes per pixel/);
  await assert.rejects(load({ model: new Uint8Array([1, 2, 3]) }), /damaged|not a fastgaze model/);
});

test("nothing is drawn where people look no more than on average", () => {
  const colours = palette();
  assert.equal(colours.length, 4 * 256);
  assert.equal(colours[3], 0);
  assert.equal(colours[4 * 255 + 3], 255);
});
