// What the user does, what the page then knows, and what it shows.

import * as boxes from "./boxes.js";
import { picture as comparison } from "./compare.js";
import { closeComparison, compareWith, measureRegions, startComparing } from "./design.js";
import { engine, Refusal } from "./engine.js";
import { copyLink, recall, remember } from "./link.js";
import { anyRefused, calm, complain, forgive, refuse, report, say } from "./messages.js";
import * as panel from "./panel.js";
import { layerOf, predict, showAsServerSeesIt, WINDOWS } from "./pictures.js";
import * as saving from "./save.js";
import * as stage from "./stage.js";
import { $, options, state, windows } from "./state.js";

const MOST_PICTURES = 24;
const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
// What was changed is on the screen; in a tab that nobody sees, nothing is painted.
const painted = () => Promise.race([new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve))), pause(0.25)]);

// -- what is shown --------------------------------------------------------------------------------

function enter(name) {
  const focused = document.activeElement;
  document.body.dataset.state = name;
  $("drop").hidden = name !== "empty";
  $("panel").hidden = $("another").hidden = name === "empty";
  $("view").hidden = name === "empty" || state.other !== null;
  $("panel").inert = !state.current?.result;
  $("view").setAttribute("aria-busy", String(name === "loading"));
  // What had the focus may be gone now; its counterpart takes it.
  if ($("drop").contains(focused) && name !== "empty") $("another").focus({ preventScroll: true });
  if (focused === $("another") && name === "empty") $("choose").focus({ preventScroll: true });
}

function showResult() {
  const picture = state.current;
  if (state.wanted?.regions.length) picture.regions = state.wanted.regions;
  const { result, file, regions } = picture;
  const size = result.picture_size;
  stage.setSize(size);
  stage.showMarks(result.peaks, size);
  panel.showPeaks(result.peaks, stage.light);
  panel.showKind(result.screen);
  boxes.show(regions, size);
  const window = state.wanted?.window > 0 ? state.wanted.window : 0;
  state.wanted = null;
  chooseRatio(state.ratio, window);
  painted().then(() => findCrops(picture, window));
  const { network, total } = result.milliseconds;
  showName(picture, ` · ${size.width} × ${size.height}`);
  $("timing").textContent = `${panel.time(total)} in all, ${panel.time(network)} in the network`;
  $("photo").alt = `${file.name}, with where people look in it`;
  const places = result.peaks.length === 1 ? "One place draws" : `${result.peaks.length} places draw`;
  say(`Done in ${panel.time(total)}. ${places} the eye; the first gets ${panel.share(result.peaks[0].mass)} of the attention.`);
  showPictures();
  measureRegions(true);
  if (state.other) compareWith(state.other);
}

function showName({ file }, size = "") {
  $("name").textContent = $("name").title = file.name;
  $("pixels").textContent = size;
}

function showPictures() {
  const { pictures, current } = state;
  panel.showStrip(pictures, current, show, remove);
  panel.showOthers(pictures, current, state.other);
}

// Where windows come after the map.
async function findCrops(picture, window) {
  const { result } = picture;
  const [ratio, missing] = [state.ratio, panel.RATIOS.filter((each) => !result.crops.some((crop) => crop.ratio === each))];
  if (!missing.length) return;
  try {
    const { model, center_bias } = result;
    result.crops = await engine.crops(picture.file, { model, center_bias, ratio: missing.join(","), n: WINDOWS });
    if (state.current?.result === result) chooseRatio(state.ratio, state.ratio === ratio ? window : 0);
  } catch (error) {
    report(error, "The crops cannot be found.");
  }
}

function chooseRatio(ratio, index = 0) {
  state.ratio = ratio;
  panel.checkRatio(ratio);
  const found = windows();
  const first = Math.min(index, Math.max(found.length - 1, 0));
  chooseWindow(first);
  $("crop-hint").hidden = ratio !== "";
  $("save-crop").disabled = ratio === "";
  panel.showWindows(found, $("photo"), state.current.result.picture_size, first, chooseWindow);
}

function chooseWindow(index) {
  state.chosen = index;
  const window = windows()[index];
  stage.showWindow(window?.box ?? null, state.current.result.picture_size);
  if (window) say(`${state.ratio} window ${index + 1} keeps ${panel.share(window.mass)} of the attention.`);
  remember();
}

function setOpacity() {
  $("opacity-value").textContent = `${$("opacity").value}%`;
  stage.setOpacity($("opacity").value / 100);
}

async function setStyle() {
  const { current } = state;
  stage.showLegend($("style").value);
  remember();
  try {
    const layer = await layerOf(current);
    if (state.current === current) await stage.showLayer(layer);
  } catch (error) {
    $("style").value = "heat";
    stage.showLegend($("style").value);
    report(error, "The map cannot be drawn.");
  }
}

function setMarks() {
  $("marks").hidden = !$("show-marks").checked;
}

function showSettings() {
  stage.showLegend($("style").value);
  setOpacity();
  setMarks();
  showModelFacts();
}

function showModelFacts() {
  const model = state.models.find((each) => each.name === $("model").value);
  $("model-facts").textContent = model ? panel.describe(model) : "";
}

// -- from files to results ------------------------------------------------------------------------

function take(files, example = null) {
  if (!files?.length) return;
  forgive();
  const accepted = [...files].filter(isAccepted).map(plainlyNamed);
  const fitting = accepted.slice(0, MOST_PICTURES);
  accepted.slice(MOST_PICTURES).forEach((file) => refuse(file, `It is one too many; the page keeps ${MOST_PICTURES} pictures.`));
  if (!fitting.length) return;
  const added = fitting.map((file) => ({ file, example, url: URL.createObjectURL(file), result: null, asked: "", regions: [] }));
  state.pictures.push(...added);
  while (state.pictures.length > MOST_PICTURES) URL.revokeObjectURL(state.pictures.shift().url);
  show(added[0]);
}

function isAccepted(file) {
  const most = state.limits?.bytes ?? Infinity;
  const megabytes = (bytes) => Math.floor(bytes / 2 ** 20);
  if (file.size === 0) refuse(file, "The file is empty.");
  else if (file.size > most) refuse(file, `The file has ${megabytes(file.size)} MB; at most ${megabytes(most)} MB are accepted.`);
  return file.size > 0 && file.size <= most;
}

// Characters that turn the direction of writing would make a name look like another one.
function plainlyNamed(file) {
  const name = file.name.replace(/[\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "");
  return name === file.name ? file : new File([file], name, { type: file.type });
}

async function show(picture) {
  closeComparison();
  state.request?.abort();
  state.request = null;
  state.current = picture;
  showPictures();
  showName(picture);
  $("timing").textContent = $("photo").alt = "";
  stage.showWindow(null);
  boxes.show([], { width: 1, height: 1 });
  if (picture.size) stage.setSize(picture.size);
  const decoding = stage.showPhoto(picture.url).then((size) => {
    picture.size ??= size;
    if (state.current === picture) stage.setSize(picture.size ?? { width: 4, height: 3 });
  });
  picture.decoding = decoding;
  // Most pictures are there at once and come without a flicker; a large one is sent while it is being decoded.
  await Promise.race([decoding, pause(0.15)]);
  if (state.current === picture) await look();
}

async function look() {
  const picture = state.current;
  state.request?.abort();
  const request = (state.request = new AbortController());
  enter("loading");
  say(`Looking at ${picture.file.name}.`);
  try {
    await predict(picture, request.signal);
    await Promise.all([layerOf(picture).then(stage.showLayer), picture.decoding]);
    await showAsServerSeesIt(picture, request.signal);
    if (state.request !== request) return;
    if (!anyRefused()) calm();
    enter("result");
    showResult();
  } catch (error) {
    if (error.name === "AbortError" || state.request !== request) return;
    await fail(picture, error);
  }
}

async function fail(picture, error) {
  const known = error instanceof Refusal;
  const retriable = known && error.retriable;
  if (!known) complain("Something went wrong in this page. Reload it.");
  else if (picture.result || retriable) complain(`${picture.file.name}: ${error.message}`, retriable);
  else refuse(picture.file, error.message);
  say("");
  if (!picture.result && !retriable) await leave(picture);
  else enter(picture.result ? "result" : "failed");
  if (state.current?.result) $("model").value = state.current.result.model;
  if (!known) console.error(error);
}

// A picture that cannot be looked at goes; the next one takes its place, or the last one that could be looked at.
async function leave(picture) {
  const index = state.pictures.indexOf(picture);
  URL.revokeObjectURL(picture.url);
  state.pictures.splice(index, 1);
  const next = state.pictures[index] ?? state.pictures.findLast((each) => each.result) ?? null;
  state.current = next;
  showPictures();
  if (next) await show(next);
  else enter("empty");
}

function remove(picture) {
  const index = state.pictures.indexOf(picture);
  if (picture === state.other) closeComparison();
  URL.revokeObjectURL(picture.url);
  state.pictures.splice(index, 1);
  if (picture === state.current) show(state.pictures[Math.min(index, state.pictures.length - 1)]);
  else showPictures();
}

// -- what the user does ---------------------------------------------------------------------------

function choose() {
  $("file").value = "";
  $("file").click();
}

async function openExample(name) {
  try {
    const response = await fetch(`examples/${encodeURIComponent(name)}`);
    if (!response.ok) throw new Error(String(response.status));
    const blob = await response.blob();
    take([new File([blob], name, { type: blob.type })], name);
  } catch {
    complain("The example cannot be loaded.");
  }
}

// Another link was opened in the same window.
function follow() {
  const example = recall();
  const { current } = state;
  showSettings();
  if (example && example !== current?.example) openExample(example);
  else if (current) {
    current.regions = state.wanted.regions;
    closeComparison();
    look();
  }
}

async function saveData() {
  const { file } = state.current;
  try {
    saving.save(await engine.file(file, options()), `${saving.stem(file.name)}.npy`);
  } catch (error) {
    report(error, "The map cannot be saved.");
  }
}

function listen() {
  const on = (id, kind, act) => $(id).addEventListener(kind, act);
  const size = () => state.current.result.picture_size;
  on("choose", "click", choose);
  on("another", "click", choose);
  on("file", "change", () => take($("file").files));
  on("retry", "click", look);
  on("dismiss", "click", forgive);
  on("style", "change", setStyle);
  on("opacity", "input", setOpacity);
  on("opacity", "change", remember);
  on("show-marks", "change", () => { setMarks(); remember(); });
  on("wide", "change", stage.setWide);
  on("model", "change", () => { showModelFacts(); if (state.current) look(); });
  on("bias", "change", () => { if (state.current) look(); });
  on("compare", "change", startComparing);
  on("stop-comparing", "click", () => { closeComparison(); $("compare").focus(); });
  on("save-comparison", "click", () => saving.saveComparison(comparison(), state.current.file, state.other.file));
  on("copy-link", "click", copyLink);
  on("save-overlay", "click", () => saving.saveOverlay($("photo"), $("heat"), $("opacity").value / 100, state.current));
  on("save-crop", "click", () => saving.saveCrop($("photo"), size(), windows()[state.chosen].box, state.ratio, state.current.file));
  on("save-heat", "click", () => saving.saveHeat($("heat"), size(), state.current.file));
  on("save-npy", "click", saveData);
  boxes.listen(measureRegions);
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
  panel.showRatios(chooseRatio);
  $("api-link").hidden = document.documentElement.dataset.engine === "browser";
  try {
    const { models, default: first, limits, examples, promise } = await engine.start();
    Object.assign(state, { models, limits });
    panel.showModels(models);
    $("model").value = first;
    panel.showExamples(examples, openExample);
    const most = `Up to ${Math.floor(limits.bytes / 2 ** 20)} MB and ${Math.floor(limits.pixels / 1e6)} megapixels.`;
    $("hint").textContent = `JPEG, PNG, WebP, AVIF or GIF. ${most} ${promise}`;
    const example = recall();
    if (examples.includes(example)) openExample(example);
  } catch (error) {
    complain(error.message);
  }
  showSettings();
  window.addEventListener("hashchange", follow);
}

start();
