// Two pictures side by side on one scale, the difference of their maps, and what changed for each region.

import { edges, percent } from "./boxes.js";
import { paint, paintChange, topOf } from "./gaze/heat.js";
import { outline } from "./outline.js";
import { stem } from "./save.js";

const $ = (id) => document.getElementById(id);
const LONGEST = 1000;

// Each of both: { name, url, gaze, regions }.
export async function show(first, second) {
  const top = topOf([first.gaze.grid, second.gaze.grid]);
  const both = [[first, second], [second, first]].map(([picture, other]) => ({ ...picture, regions: measured(picture, other) }));
  const tiles = [await overlay(both[0], top), await overlay(both[1], top), await change(first, second, top)];
  $("tiles").replaceChildren(...tiles, $("compared"));
  $("comparison-hint").textContent =
    "Colours mean the same in both pictures. Orange places get more attention in the second one, blue ones less.";
  showChanges(...both);
}

// A region that only one of two pictures of the same size has is looked up in the other at the same place.
function measured({ gaze, regions }, other) {
  const same = gaze.size.width === other.gaze.size.width && gaze.size.height === other.gaze.size.height;
  const lent = same ? other.regions.filter(({ name }) => !regions.some((each) => each.name === name)) : [];
  return [...regions, ...lent].map(({ name, box }) => ({ name, box, share: gaze.mass(edges(box)) }));
}

function showChanges(first, second) {
  const names = [...new Set([...first.regions, ...second.regions].map(({ name }) => name))];
  const share = ({ regions }, name) => regions.find((each) => each.name === name)?.share ?? null;
  const rows = names.map((name) => [name, share(first, name), share(second, name)]);
  $("changes").hidden = rows.length === 0;
  $("first-name").textContent = stem(first.name);
  $("second-name").textContent = stem(second.name);
  $("change-rows").replaceChildren(...rows.map(row));
  if (!rows.length) $("comparison-hint").textContent += " Close the comparison and draw regions in one of the pictures to compare what they get.";
}

// All tiles in one picture, each under its caption, on white.
export function picture() {
  const figures = [...$("tiles").querySelectorAll("figure")];
  const canvases = figures.map((figure) => figure.querySelector("canvas"));
  const [gap, line] = [24, 40];
  const wide = Math.max(...canvases.map(({ width }) => width));
  const above = Math.max(canvases[0].height, canvases[1].height) + line + gap;
  const canvas = Object.assign(document.createElement("canvas"), {
    width: 2 * wide + 3 * gap,
    height: above + canvases[2].height + line + 2 * gap,
  });
  const context = canvas.getContext("2d");
  Object.assign(context, { fillStyle: "#fff", font: "600 22px system-ui, sans-serif", textBaseline: "middle" });
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = "#202124";
  canvases.forEach((tile, index) => {
    const [x, y] = [gap + (index % 2) * (wide + gap), gap + (index > 1 ? above : 0)];
    context.fillText(figures[index].textContent, x, y + line / 2, wide);
    context.drawImage(tile, x, y + line);
  });
  return canvas;
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
    context.globalAlpha = 1;
    outline(context, picture.regions, picture.gaze.size);
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
