// What the user does, what the page then knows, and what it shows.

import { ask, get, pause, Refusal } from "./api.js";
import * as panel from "./panel.js";
import * as saving from "./save.js";
import * as stage from "./stage.js";

const $ = (id) => document.getElementById(id);
const state = {
  models: [], limits: null, file: null, url: null, decoding: null, shown: null, result: null, ratio: "", chosen: 0, request: null,
};

// -- what is shown --------------------------------------------------------------------------------

function enter(name) {
  const focused = document.activeElement;
  document.body.dataset.state = name;
  $("drop").hidden = name !== "empty";
  $("view").hidden = $("panel").hidden = $("another").hidden = name === "empty";
  $("panel").inert = !state.result;
  $("view").setAttribute("aria-busy", String(name === "loading"));
  // What had the focus may be gone now; its counterpart takes it.
  if ($("drop").contains(focused) && name !== "empty") $("another").focus({ preventScroll: true });
  if (focused === $("another") && name === "empty") $("choose").focus({ preventScroll: true });
}

const say = (text) => { $("status").textContent = text; };

function complain(text, retriable = false) {
  $("alert-text").textContent = text;
  $("retry").hidden = !retriable || !state.file;
  $("alert").hidden = false;
}

const calm = () => { $("alert").hidden = true; };

function showResult() {
  const { result } = state;
  const size = result.picture_size;
  stage.setSize(size);
  stage.showMarks(result.peaks, size);
  panel.showPeaks(result.peaks, stage.light);
  chooseRatio(state.ratio);
  const { network, total } = result.milliseconds;
  const time = (ms) => (ms < 10 ? `${ms.toFixed(1)} ms` : ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);
  $("caption").textContent = `${state.file.name} · ${size.width} × ${size.height}`;
  $("timing").textContent = `${time(total)} in all, ${time(network)} in the network`;
  $("photo").alt = `${state.file.name}, with where people look in it`;
  const places = result.peaks.length === 1 ? "One place draws" : `${result.peaks.length} places draw`;
  say(`Done in ${time(total)}. ${places} the eye; the first gets ${panel.share(result.peaks[0].mass)} of the attention.`);
}

const windows = () => state.result?.crops.find((crop) => crop.ratio === state.ratio)?.windows ?? [];

function chooseRatio(ratio) {
  state.ratio = ratio;
  chooseWindow(0);
  $("crop-hint").hidden = ratio !== "";
  $("save-crop").disabled = ratio === "";
  panel.showWindows(windows(), $("photo"), state.result.picture_size, 0, chooseWindow);
}

function chooseWindow(index) {
  state.chosen = index;
  const window = windows()[index];
  stage.showWindow(window?.box ?? null, state.result.picture_size);
  if (window) say(`${state.ratio} window ${index + 1} keeps ${panel.share(window.mass)} of the attention.`);
}

function setOpacity() {
  $("opacity-value").textContent = `${$("opacity").value}%`;
  stage.setOpacity($("opacity").value / 100);
}

function showModelFacts() {
  const model = state.models.find((each) => each.name === $("model").value);
  $("model-facts").textContent = model ? panel.describe(model) : "";
}

// -- from a file to a result ----------------------------------------------------------------------

const options = (more) => ({ model: $("model").value, center_bias: $("bias").checked ? "model" : "none", ...more });

async function open(file) {
  calm();
  if (state.limits && file.size > state.limits.bytes) {
    complain(`${file.name} has ${(file.size / 2 ** 20).toFixed(0)} MB; at most ${Math.floor(state.limits.bytes / 2 ** 20)} MB are accepted.`);
    return;
  }
  state.request?.abort();
  state.request = null;
  if (state.url) URL.revokeObjectURL(state.url);
  Object.assign(state, { file, url: URL.createObjectURL(file), result: null, shown: null });
  $("caption").textContent = file.name;
  $("timing").textContent = $("photo").alt = "";
  state.decoding = stage.showPhoto(state.url).then((size) => {
    if (state.file !== file) return;
    state.shown = size;
    stage.setSize(size ?? { width: 4, height: 3 });
  });
  // Most pictures are there at once and come without a flicker; a large one is sent while it is being decoded.
  await Promise.race([state.decoding, pause(0.15)]);
  if (state.file === file) await look();
}

async function look() {
  const { file } = state;
  state.request?.abort();
  const request = (state.request = new AbortController());
  enter("loading");
  say(`Looking at ${file.name}.`);
  try {
    const asked = options({ heat: "true", ratio: panel.RATIOS.join(","), n: "3" });
    const result = await (await ask(file, asked, request.signal)).json();
    await Promise.all([stage.showHeat(result.heat), state.decoding]);
    await showAsServerSeesIt(file, result, request.signal);
    if (state.request !== request) return;
    state.result = result;
    calm();
    enter("result");
    showResult();
  } catch (error) {
    if (error.name === "AbortError" || state.request !== request) return;
    fail(error);
  }
}

// A TIFF, or a turned picture that this browser does not turn: show the one that the server decoded.
async function showAsServerSeesIt(file, result, signal) {
  const { width, height } = result.picture_size;
  if (state.shown?.width === width && state.shown?.height === height) return;
  const picture = await ask(file, { format: "overlay", opacity: "0" }, signal);
  const url = URL.createObjectURL(await picture.blob());
  await stage.showPhoto(url);
  URL.revokeObjectURL(state.url);
  Object.assign(state, { url, shown: result.picture_size });
}

function fail(error) {
  const known = error instanceof Refusal;
  enter(state.result ? "result" : "empty");
  if (state.result) $("model").value = state.result.model;
  complain(known ? `${state.file.name}: ${error.message}` : "Something went wrong in this page. Reload it.", known && error.retriable);
  say("");
  if (!known) console.error(error);
}

// -- what the user does ---------------------------------------------------------------------------

function take(files) {
  const file = [...(files ?? [])][0];
  if (file) open(file);
}

function choose() {
  $("file").value = "";
  $("file").click();
}

async function openExample(name) {
  try {
    const response = await fetch(`/examples/${encodeURIComponent(name)}`);
    if (!response.ok) throw new Error(String(response.status));
    const blob = await response.blob();
    await open(new File([blob], name, { type: blob.type }));
  } catch {
    complain("The example cannot be loaded.");
  }
}

function showExamples(names) {
  $("examples").hidden = names.length === 0;
  const items = names.map((name) => {
    const image = Object.assign(new Image(), { src: `/examples/${encodeURIComponent(name)}`, alt: `Example: ${saving.stem(name)}` });
    const button = Object.assign(document.createElement("button"), { type: "button" });
    button.append(image);
    button.addEventListener("click", () => openExample(name));
    const item = document.createElement("li");
    item.append(button);
    return item;
  });
  $("example-list").replaceChildren(...items);
}

async function saveData() {
  try {
    const response = await ask(state.file, options({ format: "npy" }));
    saving.save(await response.blob(), `${saving.stem(state.file.name)}.npy`);
  } catch (error) {
    complain(error instanceof Refusal ? error.message : "The map cannot be saved.");
  }
}

function listen() {
  $("choose").addEventListener("click", choose);
  $("another").addEventListener("click", choose);
  $("file").addEventListener("change", () => take($("file").files));
  $("retry").addEventListener("click", look);
  $("dismiss").addEventListener("click", calm);
  $("opacity").addEventListener("input", setOpacity);
  $("show-marks").addEventListener("change", () => { $("marks").hidden = !$("show-marks").checked; });
  $("model").addEventListener("change", () => { showModelFacts(); if (state.file) look(); });
  $("bias").addEventListener("change", () => { if (state.file) look(); });
  $("save-overlay").addEventListener("click", () => saving.saveOverlay($("photo"), $("heat"), $("opacity").value / 100, state.file));
  $("save-crop").addEventListener("click", () => saving.saveCrop($("photo"), state.result.picture_size, windows()[state.chosen].box, state.ratio, state.file));
  $("save-heat").addEventListener("click", () => saving.saveHeat(state.result.heat, state.file));
  $("save-npy").addEventListener("click", saveData);
  document.addEventListener("paste", (event) => take(event.clipboardData?.files));
  listenToDrops();
}

function listenToDrops() {
  const drag = (on) => document.body.classList.toggle("dragging", on);
  document.addEventListener("dragover", (event) => { event.preventDefault(); drag(true); });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) drag(false); });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    drag(false);
    if (event.dataTransfer.files.length) take(event.dataTransfer.files);
    else complain("That was not a picture file. Drop one from a folder, or paste a copied picture.");
  });
}

async function start() {
  listen();
  setOpacity();
  panel.showRatios(chooseRatio);
  try {
    const [{ models, default: first, limits }, { examples }] = await Promise.all([get("/v1/models"), get("/examples")]);
    Object.assign(state, { models, limits });
    panel.showModels(models);
    $("model").value = first;
    showModelFacts();
    showExamples(examples);
    const most = `Up to ${Math.floor(limits.bytes / 2 ** 20)} MB and ${Math.floor(limits.pixels / 1e6)} megapixels.`;
    $("hint").textContent = `JPEG, PNG, WebP, AVIF, GIF or TIFF. ${most} It is sent to this server only and is not kept.`;
  } catch (error) {
    complain(error.message);
  }
}

start();
