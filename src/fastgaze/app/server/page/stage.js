// The picture with what lies over it: heat map, numbered marks, crop window.

import { palette } from "./gaze/heat.js";

const $ = (id) => document.getElementById(id);
const LONG = 0.5; // width by height, below which a picture can be seen at its own width
const percent = (part, whole) => `${(100 * part) / whole}%`;

export function setSize({ width, height }) {
  $("frame").style.aspectRatio = `${width} / ${height}`;
  $("view").style.setProperty("--ratio", width / height);
  $("view").style.setProperty("--pixels", `${width}px`);
  $("wide-choice").hidden = width > LONG * height;
  setWide();
}

// Fitted into the window, a long page would be a narrow strip that nobody can read.
export function setWide() {
  $("view").classList.toggle("wide", !$("wide-choice").hidden && $("wide").checked);
}

// Resolves to the size that the browser sees, or null when it cannot show the file.
export async function showPhoto(url) {
  const photo = $("photo");
  photo.src = url;
  try {
    await photo.decode();
    return { width: photo.naturalWidth, height: photo.naturalHeight };
  } catch {
    return null;
  }
}

export async function showLayer(url) {
  $("heat").src = url;
  await $("heat").decode();
}

export function showLegend(style) {
  $("heat-legend").hidden = style !== "heat";
  $("focus-legend").hidden = style !== "focus";
  const rgba = palette();
  const colour = (level) => `rgb(${rgba.slice(4 * level, 4 * level + 3).join(" ")} / ${rgba[4 * level + 3] / 255})`;
  $("legend-bar").style.background = `linear-gradient(90deg, ${Array.from({ length: 18 }, (_, i) => colour(15 * i)).join(", ")})`;
}

export function setOpacity(share) {
  $("heat").style.opacity = share;
}

// A ring around the spot leaves it in sight; its number stands beside it, on the side where there is room.
export function showMarks(peaks, { width, height }) {
  $("marks").replaceChildren(
    ...peaks.map((peak, index) => {
      const mark = document.createElement("li");
      const number = document.createElement("b");
      number.textContent = index + 1;
      mark.append(number);
      mark.style.setProperty("--x", percent(peak.x, width));
      mark.style.setProperty("--y", percent(peak.y, height));
      mark.classList.toggle("leftward", peak.x > 0.9 * width);
      mark.classList.toggle("downward", peak.y < 0.1 * height);
      return mark;
    }),
  );
}

export function light(index) {
  [...$("marks").children].forEach((mark, i) => mark.classList.toggle("lit", i === index));
}

export function place(element, { left, top, width, height }, size) {
  element.style.left = percent(left, size.width);
  element.style.top = percent(top, size.height);
  element.style.width = percent(width, size.width);
  element.style.height = percent(height, size.height);
}

export function showWindow(box, size) {
  $("window").hidden = box === null;
  if (box !== null) place($("window"), box, size);
}
