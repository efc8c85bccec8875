// The browser's own engine: a worker runs the model, so that the page stays quick; no picture leaves the computer.

import { paint } from "./gaze/heat.js";
import { writeNpy } from "./npy.js";
import { Refusal } from "./refusal.js";

const waiting = new Map();
// The worker gets a copy with every message; the number tells it that it is the same file.
const numbers = new WeakMap();
let count = 0;
// Storing everything for offline use waits a little, so that it does not delay a map that is on its way.
const AFTER_FIRST_MAP = 1500;

// Here and not in `start`: the engine gets ready while the page still loads, and while the user chooses a picture.
const { engine, model } = document.documentElement.dataset;
const worker = engine === "browser" ? begin() : null;

function begin() {
  const begun = new Worker(new URL("./worker.js", import.meta.url), { type: "module", name: model });
  begun.addEventListener("message", ({ data }) => settle(data));
  begun.addEventListener("error", () => giveUp("This browser cannot run the model. A current Chrome, Edge, Firefox or Safari can."));
  return begun;
}

export async function start() {
  const [facts, { examples }] = await Promise.all([read("models.json"), read("examples.json")]);
  // What goes wrong is said with the first picture.
  tell("load", { name: facts.default }).then(() => setTimeout(keepForOffline, AFTER_FIRST_MAP), () => {});
  return { ...facts, examples, promise: "Pictures stay in this browser: nothing is sent anywhere." };
}

export async function look(file, options, signal) {
  const { grid, ...result } = await tell("look", asked(file, options), signal);
  return { ...result, heat: heatAddress(grid) };
}

export const crops = (file, options, signal) => tell("crops", asked(file, options), signal);

export const grid = (file, options, signal) => tell("grid", asked(file, options), signal);

export async function file(file, options) {
  return writeNpy(await tell("density", asked(file, options)));
}

export const picture = () => Promise.reject(new Refusal("This browser cannot show a picture of this format. Save it as PNG or JPEG."));

function asked(file, options) {
  if (!numbers.has(file)) numbers.set(file, ++count);
  return { file, number: numbers.get(file), options };
}

async function read(path) {
  try {
    return await (await fetch(path)).json();
  } catch {
    throw new Refusal("The page is not complete. Build it again with “fastgaze site”.");
  }
}

function tell(verb, message, signal) {
  const id = ++count;
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    signal?.addEventListener("abort", () => { waiting.delete(id); reject(signal.reason); });
    waiting.set(id, { resolve, reject });
    worker.postMessage({ id, verb, ...message });
  });
}

function settle({ id, answer, refusal }) {
  const asked = waiting.get(id);
  waiting.delete(id);
  if (refusal) asked?.reject(new Refusal(refusal));
  else asked?.resolve(answer);
}

function giveUp(text) {
  for (const { reject } of waiting.values()) reject(new Refusal(text));
  waiting.clear();
}

function heatAddress(grid) {
  const canvas = Object.assign(document.createElement("canvas"), { width: grid.width, height: grid.height });
  canvas.getContext("2d").putImageData(new ImageData(paint(grid), grid.width, grid.height), 0, 0);
  return canvas.toDataURL("image/png");
}

async function keepForOffline() {
  try {
    await navigator.serviceWorker?.register("sw.js");
  } catch (error) {
    console.info("The page will not work offline:", error.message);
  }
}
