// Regions: boxes that are drawn, named, moved and resized, with mouse, finger or keyboard.

import { FIXATIONS } from "./gaze/regions.js";
import { place } from "./stage.js";

const $ = (id) => document.getElementById(id);
const LEAST = 0.01; // of a side: what is smaller was a click
const STEP = 0.01;
const EDGE = 0.07; // of the picture: here a name has no room outside of its box

let shown = { regions: [], size: { width: 1, height: 1 } };
let changed = () => {};

// onChange(settled): a region was changed; settled is false while it is being dragged.
export function listen(onChange) {
  changed = onChange;
  $("frame").addEventListener("pointerdown", draw);
  $("add-region").addEventListener("click", () => add(shown.size));
}

export function show(regions, size) {
  shown = { regions, size };
  for (const region of regions) region.box = inside(region.box);
  $("boxes").replaceChildren(...regions.map(makeBox));
  $("region-list").replaceChildren(...regions.map(makeRow));
}

// facts: by name, as GazeMap.regions gives them.
export function showFacts(facts) {
  shown.regions.forEach((region, index) => {
    const found = facts.find(({ name }) => name === region.name);
    const row = $("region-list").children[index];
    if (!found || !row) return;
    region.share = found.share;
    $("boxes").children[index].querySelector("span").textContent = `${region.name} ${percent(found.share)}`;
    row.querySelector(".facts").textContent = describe(found, facts.length);
  });
}

function describe({ share, lift, rank, seen }, count) {
  const times = lift < 0.1 ? lift.toFixed(2) : lift < 10 ? lift.toFixed(1) : Math.round(lift);
  const order = count > 1 ? `, rank ${rank} of ${count}` : "";
  return `${percent(share)} of the attention, ${times} times its share of the area${order}; ${percent(seen)} chance of being seen in the first ${FIXATIONS} fixations, about a second`;
}

// As maps take boxes.
export const edges = ({ left, top, width, height }) => [left, top, left + width, top + height];

export function percent(share) {
  return share > 0 && share < 0.0995 ? `${(100 * share).toFixed(1)}%` : `${Math.round(100 * share)}%`;
}

function newName() {
  const taken = new Set(shown.regions.map(({ name }) => name));
  for (let number = 1; ; number++) if (!taken.has(`region ${number}`)) return `region ${number}`;
}

function append(box) {
  const region = { name: newName(), box };
  shown.regions.push(region);
  show(shown.regions, shown.size);
  return region;
}

function add({ width, height }) {
  const offset = 0.04 * (shown.regions.length % 5);
  append(rounded({ left: (0.35 + offset) * width, top: (0.35 + offset) * height, width: 0.3 * width, height: 0.3 * height }));
  changed(true);
  $("boxes").lastElementChild.focus({ preventScroll: true });
}

function remove(index) {
  shown.regions.splice(index, 1);
  show(shown.regions, shown.size);
  changed(true);
  (($("region-list").children[Math.min(index, shown.regions.length - 1)]?.querySelector("input")) ?? $("add-region")).focus();
}

// The name stands above its box, where it covers nothing of what is inside, or below it at the upper end of the picture.
function put(element, box) {
  const { size } = shown;
  place(element, box, size);
  element.classList.toggle("high", box.top < EDGE * size.height);
  element.classList.toggle("low", box.top + box.height > (1 - EDGE) * size.height);
  element.classList.toggle("far", box.left > (1 - 2 * EDGE) * size.width);
}

function makeBox(region, index) {
  const box = document.createElement("div");
  box.className = "region";
  box.tabIndex = 0;
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", `Region ${region.name}. Arrow keys move it, with Shift they resize it, Delete removes it.`);
  const label = Object.assign(document.createElement("span"), { textContent: region.name });
  const handle = Object.assign(document.createElement("i"), { className: "handle" });
  box.append(label, handle);
  put(box, region.box);
  box.addEventListener("keydown", (event) => nudge(event, region, index));
  box.addEventListener("pointerdown", (event) => grab(event, region, box, event.target === handle));
  return box;
}

function makeRow(region, index) {
  const row = document.createElement("li");
  const name = Object.assign(document.createElement("input"), { type: "text", value: region.name, maxLength: 40 });
  name.setAttribute("aria-label", `Name of region ${index + 1}`);
  name.addEventListener("change", () => rename(region, name));
  const close = Object.assign(document.createElement("button"), { type: "button", className: "close", textContent: "×" });
  close.setAttribute("aria-label", `Remove ${region.name}`);
  close.addEventListener("click", () => remove(index));
  const facts = Object.assign(document.createElement("p"), { className: "facts hint" });
  row.append(name, close, facts);
  return row;
}

// Names are keys: "=" and "," separate them in the address.
function rename(region, input) {
  const wanted = input.value.replace(/[=,]/g, " ").trim();
  const taken = shown.regions.some((other) => other !== region && other.name === wanted);
  if (wanted && !taken) region.name = wanted;
  show(shown.regions, shown.size);
  changed(true);
}

// A link may have been made for a larger picture.
function inside({ left, top, width, height }) {
  const { size } = shown;
  const [x, y] = [Math.min(left, size.width - 1), Math.min(top, size.height - 1)];
  return { left: x, top: y, width: Math.min(width, size.width - x), height: Math.min(height, size.height - y) };
}

function rounded({ left, top, width, height }) {
  const { size } = shown;
  const wide = Math.max(Math.min(Math.round(width), size.width), 1);
  const tall = Math.max(Math.min(Math.round(height), size.height), 1);
  return {
    left: Math.min(Math.max(Math.round(left), 0), size.width - wide),
    top: Math.min(Math.max(Math.round(top), 0), size.height - tall),
    width: wide,
    height: tall,
  };
}

function nudge(event, region, index) {
  const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (event.key === "Delete" || event.key === "Backspace") remove(index);
  else if (way) {
    const [x, y] = [way[0] * Math.max(STEP * shown.size.width, 1), way[1] * Math.max(STEP * shown.size.height, 1)];
    const { left, top, width, height } = region.box;
    region.box = rounded(
      event.shiftKey ? { left, top, width: width + x, height: height + y } : { left: left + x, top: top + y, width, height },
    );
    put(event.currentTarget, region.box);
    changed(true);
  } else return;
  event.preventDefault();
}

// -- with the pointer -----------------------------------------------------------------------------

function position(event) {
  const frame = $("frame").getBoundingClientRect();
  const share = (value, start, length) => Math.min(Math.max((value - start) / length, 0), 1);
  return {
    x: share(event.clientX, frame.left, frame.width) * shown.size.width,
    y: share(event.clientY, frame.top, frame.height) * shown.size.height,
  };
}

function follow(event, onMove, onEnd) {
  const target = $("frame");
  target.setPointerCapture(event.pointerId);
  const move = (each) => onMove(position(each));
  const end = () => {
    target.removeEventListener("pointermove", move);
    onEnd();
  };
  target.addEventListener("pointermove", move);
  target.addEventListener("pointerup", end, { once: true });
  target.addEventListener("pointercancel", end, { once: true });
}

function grab(event, region, element, resizing) {
  if (event.button !== 0) return;
  event.stopPropagation();
  event.preventDefault();
  element.focus({ preventScroll: true });
  const from = position(event);
  const { left, top, width, height } = region.box;
  follow(
    event,
    ({ x, y }) => {
      const [dx, dy] = [x - from.x, y - from.y];
      region.box = rounded(
        resizing
          ? { left, top, width: Math.min(width + dx, shown.size.width - left), height: Math.min(height + dy, shown.size.height - top) }
          : { left: left + dx, top: top + dy, width, height },
      );
      put(element, region.box);
      changed(false);
    },
    () => changed(true),
  );
}

// With a finger, a stroke over the picture scrolls the page; boxes are added with the button there.
function draw(event) {
  if (event.pointerType !== "mouse" || event.button !== 0 || document.body.dataset.state !== "result") return;
  event.preventDefault();
  const from = position(event);
  let region = null;
  follow(
    event,
    ({ x, y }) => {
      const box = rounded({ left: Math.min(x, from.x), top: Math.min(y, from.y), width: Math.abs(x - from.x), height: Math.abs(y - from.y) });
      const large = box.width > LEAST * shown.size.width && box.height > LEAST * shown.size.height;
      if (!region && !large) return;
      region ??= append(box);
      region.box = box;
      put($("boxes").lastElementChild, box);
      changed(false);
    },
    () => {
      if (!region) return;
      changed(true);
      const input = $("region-list").lastElementChild.querySelector("input");
      input.focus({ preventScroll: true });
      input.select();
    },
  );
}
