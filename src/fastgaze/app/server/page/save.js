// Downloads: what is on the screen, at the picture's own size.

import { outline } from "./outline.js";

// Larger canvases fail on phones.
const LONGEST_SIDE = 4096;

export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export function stem(name) {
  return name.replace(/\.[^.]+$/, "") || "picture";
}

function paint(width, height, draw) {
  const factor = Math.min(1, LONGEST_SIDE / Math.max(width, height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(Math.round(width * factor), 1);
  canvas.height = Math.max(Math.round(height * factor), 1);
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  draw(context, canvas.width, canvas.height);
  return canvas;
}

// A photograph stays a JPEG; everything else may have transparency and becomes a PNG.
function encode(canvas, type) {
  const kept = type === "image/jpeg" ? type : "image/png";
  return new Promise((resolve) => canvas.toBlob(resolve, kept, 0.93));
}

const suffix = (blob) => (blob.type === "image/jpeg" ? "jpg" : "png");

export async function saveOverlay(photo, heat, opacity, { file, regions, result }) {
  const canvas = paint(photo.naturalWidth, photo.naturalHeight, (context, width, height) => {
    context.drawImage(photo, 0, 0, width, height);
    context.globalAlpha = opacity;
    context.drawImage(heat, 0, 0, width, height);
    context.globalAlpha = 1;
    outline(context, regions, result.picture_size);
  });
  const blob = await encode(canvas, file.type);
  save(blob, `${stem(file.name)}.gaze.${suffix(blob)}`);
}

export async function saveCrop(photo, size, box, ratio, file) {
  const x = photo.naturalWidth / size.width;
  const y = photo.naturalHeight / size.height;
  const canvas = paint(box.width * x, box.height * y, (context, width, height) =>
    context.drawImage(photo, box.left * x, box.top * y, box.width * x, box.height * y, 0, 0, width, height),
  );
  const blob = await encode(canvas, file.type);
  save(blob, `${stem(file.name)}.${ratio.replace(":", "x")}.${suffix(blob)}`);
}

export async function saveComparison(canvas, first, second) {
  save(await encode(canvas, "image/png"), `${stem(first.name)} and ${stem(second.name)}.png`);
}

export async function saveHeat(heat, size, file) {
  const canvas = paint(size.width, size.height, (context, width, height) => context.drawImage(heat, 0, 0, width, height));
  save(await encode(canvas, "image/png"), `${stem(file.name)}.map.png`);
}
