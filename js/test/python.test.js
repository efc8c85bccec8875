// The same pictures in JavaScript and in Python. `python -m tests.app.cases js/cases` writes what Python found.

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { load } from "../dist/index.js";
import { crop, cropToJson } from "../dist/gaze/crop.js";
import { Integral } from "../dist/gaze/integral.js";
import { findPeaks, peakToJson } from "../dist/gaze/peaks.js";
import { complaints, difference, TOLERANCE, unpack } from "../compare.js";

const folder = new URL(process.env.FASTGAZE_CASES ? `file://${process.env.FASTGAZE_CASES}/` : "../cases/", import.meta.url);
const written = existsSync(new URL("cases.json", folder));
const skip = written ? false : "there are no cases; write them with `python -m tests.app.cases js/cases`";
const { cases, ratios, candidates } = written ? JSON.parse(readFileSync(new URL("cases.json", folder), "utf8")) : { cases: [] };

test("JavaScript finds in every picture what Python finds", { skip }, async (t) => {
  const predictor = await load();
  for (const { name, size, grid, unbiased, regions, found } of cases) {
    await t.test(name, async () => {
      const pixels = { ...size, data: new Uint8Array(readFileSync(new URL(`${name}.rgba`, folder))) };
      const gaze = await predictor.predict(pixels);
      assert.ok(difference(gaze.grid, unpack(grid)) <= TOLERANCE, `${difference(gaze.grid, unpack(grid))} nats`);
      const plain = await predictor.predict(pixels, { centerBias: "none" });
      assert.ok(difference(plain.grid, unpack(unbiased)) <= TOLERANCE);
      assert.deepEqual(complaints(await gaze.toJson({ ratios, n: candidates, regions }), found, gaze.grid), []);
    });
  }
});

test("windows and peaks follow from the same maps in the same way", { skip }, () => {
  for (const { size, density, heads, peaks, crops } of JSON.parse(readFileSync(new URL("maps.json", folder), "utf8"))) {
    const map = unpack(density);
    const integral = new Integral(map, size);
    const found = {
      bits: 0,
      peaks: findPeaks(map, size).slice(0, 5).map(peakToJson),
      crops: crops.map(({ ratio }) => ({ ratio, windows: crop(integral, ratio, candidates, unpack(heads)).map(cropToJson) })),
    };
    assert.deepEqual(complaints(found, { picture_size: size, bits: 0, peaks, crops }, map), []);
  }
});
