// What the address keeps behind its "#": settings, crop, regions and the example, but never a picture.

// Of the map, in percent, unless another one is chosen.
export const STRENGTH = 70;

export function read() {
  const query = new URLSearchParams(location.hash.slice(1));
  const number = (name) => (query.has(name) ? Number(query.get(name)) : NaN);
  return {
    model: query.get("model"),
    bias: query.get("center_bias") ?? "model",
    ratio: query.get("ratio") ?? "",
    window: number("window") - 1,
    opacity: number("opacity"),
    style: query.get("style") === "focus" ? "focus" : "heat",
    marks: query.get("marks") !== "off",
    example: query.get("example"),
    regions: query.getAll("region").map(parseRegion).filter(Boolean),
  };
}

export function write({ model, bias, ratio, window, opacity, style, marks, example, regions }) {
  const query = new URLSearchParams();
  if (example) query.set("example", example);
  if (ratio) query.set("ratio", ratio);
  if (window > 0) query.set("window", String(window + 1));
  if (opacity !== STRENGTH) query.set("opacity", String(opacity));
  if (style !== "heat") query.set("style", style);
  if (!marks) query.set("marks", "off");
  if (model) query.set("model", model);
  if (bias !== "model") query.set("center_bias", bias);
  for (const { name, box } of regions) query.append("region", `${name}=${box.left},${box.top},${box.width},${box.height}`);
  const hash = query.toString();
  history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
}

// As in the API: name=left,top,width,height in pixels of the picture.
function parseRegion(text) {
  const match = /^([^=,]{1,40})=(\d{1,6}),(\d{1,6}),(\d{1,6}),(\d{1,6})$/.exec(text);
  if (!match) return null;
  const [left, top, width, height] = match.slice(2).map(Number);
  return width && height ? { name: match[1], box: { left, top, width, height } } : null;
}
