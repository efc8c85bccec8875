// What the engine says about a picture; asked once and kept with it.

import { engine } from "./engine.js";
import { paintFocus } from "./focus.js";
import { GazeMap } from "./gaze/map.js";
import { RATIOS } from "./panel.js";
import * as stage from "./stage.js";
import { $, options } from "./state.js";

export const WINDOWS = "3"; // suggested for every ratio

// Results are kept as long as the options stay the same.
export async function predict(picture, signal) {
  const asked = options();
  const key = JSON.stringify(asked);
  if (picture.result && picture.asked === key) return;
  const result = await engine.look(picture.file, { ...asked, ratio: RATIOS.join(","), n: WINDOWS }, signal);
  Object.assign(picture, { result, asked: key, gaze: null });
}

// A TIFF, or a turned picture that this browser does not turn: show the one that the server decoded.
export async function showAsServerSeesIt(picture, signal) {
  const { width, height } = picture.result.picture_size;
  if (picture.size?.width === width && picture.size?.height === height) return;
  const url = URL.createObjectURL(await engine.picture(picture.file, signal));
  await stage.showPhoto(url);
  URL.revokeObjectURL(picture.url);
  Object.assign(picture, { url, size: picture.result.picture_size });
}

// What lies over the picture, as an address.
export async function layerOf(picture) {
  if ($("style").value === "heat") return picture.result.heat;
  const { grid } = await gazeOf(picture);
  const canvas = Object.assign(document.createElement("canvas"), { width: grid.width, height: grid.height });
  canvas.getContext("2d").putImageData(new ImageData(paintFocus(grid), grid.width, grid.height), 0, 0);
  return canvas.toDataURL("image/png");
}

// The map on its grid; asked for once, then every box is measured here.
export async function gazeOf(picture) {
  const { model, center_bias, picture_size } = picture.result;
  picture.gaze ??= engine
    .grid(picture.file, { model, center_bias, picture_size })
    .then((grid) => new GazeMap(grid, picture_size, { model }));
  try {
    return await picture.gaze;
  } catch (error) {
    picture.gaze = null;
    throw error;
  }
}
