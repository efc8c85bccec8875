// Lists: pictures, peaks, ratios, suggested windows, models.

import { stem } from "./save.js";

export const RATIOS = ["1:1", "4:5", "9:16", "3:2", "4:3", "16:9", "3:1"];

const $ = (id) => document.getElementById(id);

function make(tag, className = "", ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

export function share(value) {
  const percent = 100 * value;
  return percent > 0 && percent < 1 ? "<1%" : `${Math.round(percent)}%`;
}

export const time = (ms) => (ms < 10 ? `${ms.toFixed(1)} ms` : ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

export function showPeaks(peaks, onLight) {
  const rows = peaks.map((peak, index) => {
    const fill = make("span", "fill");
    fill.style.width = `${100 * peak.mass}%`;
    const track = make("span", "track", fill);
    const row = make("li", "", make("span", "number", String(index + 1)), track, make("span", "share", share(peak.mass)));
    row.title = `${share(peak.mass)} of the attention is near here`;
    row.addEventListener("pointerenter", () => onLight(index));
    row.addEventListener("pointerleave", () => onLight(-1));
    return row;
  });
  $("peaks").replaceChildren(...rows);
}

function radio(name, value, checked, onChange) {
  const input = document.createElement("input");
  Object.assign(input, { type: "radio", name, value, checked });
  input.addEventListener("change", () => onChange(value));
  return input;
}

function shape(ratio) {
  const glyph = make("i", ratio ? "" : "none");
  glyph.setAttribute("aria-hidden", "true");
  if (ratio) {
    const [width, height] = ratio.split(":").map(Number);
    const side = 26 / Math.max(width, height);
    glyph.style.width = `${Math.max(side * width, 9)}px`;
    glyph.style.height = `${Math.max(side * height, 9)}px`;
  }
  return glyph;
}

export function checkRatio(ratio) {
  $("ratios").querySelectorAll("input").forEach((input) => { input.checked = input.value === ratio; });
}

export function showRatios(onChoose) {
  const chips = ["", ...RATIOS].map((ratio) => {
    const label = make("span", "", shape(ratio), ratio || "None");
    return make("label", "chip", radio("ratio", ratio, ratio === "", onChoose), label);
  });
  $("ratios").replaceChildren(...chips);
}

function thumbnail(photo, size, { left, top, width, height }) {
  const canvas = document.createElement("canvas");
  const pixels = 2 * Math.min(84 / width, 60 / height);
  canvas.width = Math.max(Math.round(pixels * width), 1);
  canvas.height = Math.max(Math.round(pixels * height), 1);
  const x = photo.naturalWidth / size.width;
  const y = photo.naturalHeight / size.height;
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(photo, left * x, top * y, width * x, height * y, 0, 0, canvas.width, canvas.height);
  canvas.setAttribute("aria-hidden", "true");
  return canvas;
}

export function showWindows(windows, photo, size, chosen, onChoose) {
  $("windows-set").hidden = windows.length === 0;
  const names = ["Best window", "Second", "Third"];
  const rows = windows.map((window, index) => {
    const kept = make("small", "", `keeps ${share(window.mass)} of the attention`);
    const text = make("span", "", make("b", "", names[index] ?? `Window ${index + 1}`), kept);
    // The others have to stay away from the best one, so that the middle says nothing about them.
    if (index === 0) text.append(make("small", "", `the middle keeps ${share(window.mass - window.gain)}`));
    const body = make("span", "", make("span", "thumb", thumbnail(photo, size, window.box)), text);
    return make("label", "candidate", radio("window", String(index), index === chosen, (value) => onChoose(Number(value))), body);
  });
  $("windows").replaceChildren(...rows);
}

export function showExamples(names, onOpen) {
  $("examples").hidden = names.length === 0;
  const items = names.map((name) => {
    const image = Object.assign(new Image(), { src: `examples/${encodeURIComponent(name)}`, alt: `Example: ${stem(name)}` });
    const button = Object.assign(make("button", "", image), { type: "button" });
    button.addEventListener("click", () => onOpen(name));
    return make("li", "", button);
  });
  $("example-list").replaceChildren(...items);
}

// The pictures that were added, once there are several.
export function showStrip(pictures, current, onShow, onRemove) {
  $("strip").hidden = pictures.length < 2;
  if (pictures.length < 2) return;
  const items = pictures.map((picture) => {
    const image = Object.assign(new Image(), { src: picture.url, alt: picture.file.name });
    const open = Object.assign(make("button", "thumb", image), { type: "button", title: picture.file.name });
    if (picture === current) open.setAttribute("aria-current", "true");
    open.addEventListener("click", () => onShow(picture));
    const close = Object.assign(make("button", "remove", "×"), { type: "button" });
    close.setAttribute("aria-label", `Remove ${picture.file.name}`);
    close.addEventListener("click", () => onRemove(picture));
    return make("li", "", open, close);
  });
  $("strip-list").replaceChildren(...items);
}

// Values are places in the list of all pictures.
export function showOthers(pictures, current, other) {
  $("compare-section").hidden = pictures.length < 2;
  const others = pictures.map((picture, index) => [picture, new Option(picture.file.name, String(index))]);
  const shown = others.filter(([picture]) => picture !== current).map(([, option]) => option);
  $("compare").replaceChildren(new Option("No other picture", ""), ...shown);
  $("compare").value = other ? String(pictures.indexOf(other)) : "";
}

export function showModels(models) {
  $("model").replaceChildren(...models.map((model) => new Option(model.name, model.name)));
}

export function describe(model) {
  const count = (n) => (n >= 1e6 ? `${(n / 1e6).toFixed(1)} M` : n >= 1e3 ? `${Math.round(n / 1e3)} k` : String(n));
  const cost = model.gflop_640x480 < 0.01 ? model.gflop_640x480.toPrecision(1) : model.gflop_640x480.toFixed(2);
  return `${count(model.parameters)} parameters · ${cost} GFLOP at 640 × 480`;
}

// What the model takes the picture for; null if it does not tell, and then it has one habit for all.
export function showKind(screen) {
  const taken = screen < 0.25 ? "It looks like a photograph." : screen > 0.75 ? "It looks like a screen, a page or a poster." : "It may be a photograph or a screen.";
  $("kind").textContent = screen === null ? "" : taken;
  for (const option of $("bias").options) option.disabled = screen === null && ["photograph", "screen"].includes(option.value);
}
