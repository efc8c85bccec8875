// Regions drawn into a picture that is saved or compared, as runtime/render.py draws them.

import { percent } from "./boxes.js";

const INK = "rgb(32 33 36)";
const PAPER = "#fff";

// regions: { name, box, share }, in pixels of a picture of `size`; the canvas may have another size.
export function outline(context, regions, size) {
  const { width, height } = context.canvas;
  const [across, down] = [width / size.width, height / size.height];
  const line = Math.max(Math.round(Math.max(width, height) / 500), 1);
  const boxes = regions.map(({ box }) => [box.left * across, box.top * down, box.width * across, box.height * down]);
  for (const [style, thickness] of [[INK, 3 * line], [PAPER, line]]) {
    Object.assign(context, { strokeStyle: style, lineWidth: thickness });
    boxes.forEach((box) => context.strokeRect(...box));
  }
  regions.forEach((region, index) => label(context, region, boxes[index]));
}

// Above the upper left corner of the box, or inside where the picture ends.
function label(context, { name, share }, [left, top]) {
  const { width, height } = context.canvas;
  const font = Math.max(Math.max(width, height) / 60, 11);
  const text = share === undefined ? name : `${name} ${percent(share)}`;
  context.font = `600 ${font}px system-ui, sans-serif`;
  context.textBaseline = "middle";
  const [wide, tall] = [context.measureText(text).width + 0.7 * font, 1.5 * font];
  const x = Math.max(Math.min(left, width - wide), 0);
  const y = top >= tall ? top - tall : top;
  context.fillStyle = INK;
  context.fillRect(x, y, wide, tall);
  context.fillStyle = PAPER;
  context.fillText(text, x + 0.35 * font, y + 0.53 * tall);
}
