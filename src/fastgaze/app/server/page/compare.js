// Two pictures side by side on one scale, the difference of their maps, and what changed for each region.

import { edges, percent } from "./boxes.js";
import { paint, paintChange, topOf } from "./gaze/heat.js";
import { stem } from "./save.js";

const $ = (id) => document.getElementById(id);
const LONGEST = 640;

// Each of both: { name, url, gaze, regions }.
export async function show(first, second) {
  const top = topOf([first.gaze.grid, second.gaze.grid]);
  const tiles = [await overlay(first, top), await overlay(second, top), await change(first, second, top)];
  $("tiles").replaceChildren(...tiles);
  $("comparison-hint").textContent =
    "Colours mean the same in both pictures. Orange places get more attention in the second one, blue ones less.";
  showChanges(first, second);
}

// A region that only one of two pictures of the same size has is looked up in the other at the same place.
function showChanges(first, second) {
  const same = first.gaze.size.width === second.gaze.size.width && first.gaze.size.height === second.gaze.size.height;
  const names = [...new Set([...first.regions, ...second.regions].map(({ name }) => name))];
  const share = (picture, other, name) => {
    const region = picture.regions.find((each) => each.name === name) ?? (same ? other.regions.find((each) => each.name === name) : null);
    return region ? picture.gaze.mass(edges(region.box)) : null;
  };
  const rows = names.map((name) => [name, share(first, second, name), share(second, first, name)]);
  $("changes").hidden = rows.length === 0;
  $("first-name").textContent = stem(first.name);
  $("second-name").textContent = stem(second.name);
  $("change-rows").replaceChildren(...rows.map(row));
  if (!rows.length) $("comparison-hint").textContent += " Draw regions in one of the pictures to compare what they get.";
}

function row([name, before, after]) {
  const line = document.createElement("tr");
  const cell = (text, tag = "td") => Object.assign(document.createElement(tag), { textContent: text });
  const shown = (share) => (share === null ? "not drawn" : percent(share));
  const known = before !== null && after !== null;
  const points = known ? `${after >= before ? "+" : "−"}${(100 * Math.abs(after - before)).toFixed(1)} points` : "";
  const title = cell(name, "th");
  title.scope = "row";
  line.append(title, cell(shown(before)), cell(shown(after)), cell(points));
  return line;
}

function tile(caption, size, draw) {
  const figure = document.createElement("figure");
  const factor = Math.min(1, LONGEST / Math.max(size.width, size.height));
  const canvas = Object.assign(document.createElement("canvas"), {
    width: Math.max(Math.round(size.width * factor), 1),
    height: Math.max(Math.round(size.height * factor), 1),
  });
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  draw(context, canvas.width, canvas.height);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", caption);
  figure.append(canvas, Object.assign(document.createElement("figcaption"), { textContent: caption }));
  return figure;
}

async function photoOf(picture) {
  const photo = Object.assign(new Image(), { src: picture.url });
  await photo.decode();
  return photo;
}

function toCanvas({ width, height }, rgba) {
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  canvas.getContext("2d").putImageData(new ImageData(rgba, width, height), 0, 0);
  return canvas;
}

async function overlay(picture, top) {
  const photo = await photoOf(picture);
  const heat = toCanvas(picture.gaze.grid, paint(picture.gaze.grid, top));
  return tile(picture.name, picture.gaze.size, (context, width, height) => {
    context.drawImage(photo, 0, 0, width, height);
    context.globalAlpha = 0.7;
    context.drawImage(heat, 0, 0, width, height);
  });
}

async function change(first, second, top) {
  const photo = await photoOf(second);
  const difference = toCanvas(second.gaze.grid, paintChange(first.gaze.grid, second.gaze.grid, top));
  return tile("Difference", second.gaze.size, (context, width, height) => {
    context.filter = "grayscale(1)";
    context.globalAlpha = 0.35;
    context.drawImage(photo, 0, 0, width, height);
    context.filter = "none";
    context.globalAlpha = 1;
    context.drawImage(difference, 0, 0, width, height);
  });
}
