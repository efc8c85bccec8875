// How far a map made here is from the one that Python made of the same picture; used in Node and in the browser.

/** Log densities may differ by so many nats, and positions by one cell of the grid. */
export const TOLERANCE = 1e-3;

/** Little-endian float32 in base64 -> grid. */
export function unpack({ width, height, data }) {
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  return { width, height, values: new Float32Array(bytes.buffer) };
}

/** The largest difference of two grids of the same size. */
export function difference(a, b) {
  if (a.width !== b.width || a.height !== b.height) return Infinity;
  return a.values.reduce((most, value, i) => Math.max(most, Math.abs(value - b.values[i])), 0);
}

/** What is wrong with `found`, the JSON of a map, if `expected` is right; an empty list if nothing is. */
export function complaints(found, expected, grid) {
  const { width, height } = expected.picture_size;
  const cell = Math.max(width / grid.width, height / grid.height, 1) + 0.01;
  const wrong = [];
  const near = (label, a, b, tolerance) => {
    if (!(Math.abs(a - b) <= tolerance)) wrong.push(`${label}: ${a} instead of ${b}`);
  };
  const boxes = (label, a, b) => {
    for (const side in b) near(`${label}, ${side}`, a[side], b[side], cell);
  };
  near("bits", found.bits, expected.bits, TOLERANCE);
  if (expected.screen !== undefined) near("screen", found.screen, expected.screen, TOLERANCE);
  near("peaks", found.peaks.length, expected.peaks.length, 0);
  expected.peaks.forEach((peak, i) => {
    near(`peak ${i + 1}, x`, found.peaks[i]?.x, peak.x, cell);
    near(`peak ${i + 1}, y`, found.peaks[i]?.y, peak.y, cell);
    near(`peak ${i + 1}, mass`, found.peaks[i]?.mass, peak.mass, TOLERANCE);
  });
  expected.crops.forEach(({ ratio, windows }, i) => {
    near(`${ratio}: windows`, found.crops[i]?.windows.length, windows.length, 0);
    windows.forEach((window, j) => {
      const other = found.crops[i]?.windows[j];
      if (!other) return;
      boxes(`${ratio}, window ${j + 1}`, other.box, window.box);
      near(`${ratio}, window ${j + 1}, mass`, other.mass, window.mass, 5 * TOLERANCE);
      near(`${ratio}, window ${j + 1}, gain`, other.gain, window.gain, 5 * TOLERANCE);
      near(`${ratio}, window ${j + 1}, focal x`, other.focal_point.x, window.focal_point.x, cell);
      near(`${ratio}, window ${j + 1}, focal y`, other.focal_point.y, window.focal_point.y, cell);
    });
  });
  expected.regions?.forEach((region, i) => {
    for (const side in region.box) near(`region ${region.name}, ${side}`, found.regions[i].box[side], region.box[side], 0);
    near(`region ${region.name}, share`, found.regions[i].share, region.share, TOLERANCE);
    near(`region ${region.name}, lift`, found.regions[i].lift, region.lift, 10 * TOLERANCE);
    near(`region ${region.name}, rank`, found.regions[i].rank, region.rank, 0);
    near(`region ${region.name}, seen`, found.regions[i].seen, region.seen, 5 * TOLERANCE);
  });
  return wrong;
}
