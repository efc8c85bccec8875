// Settings and regions as a link, and back.

import * as address from "./address.js";
import { say } from "./messages.js";
import { RATIOS } from "./panel.js";
import { $, state } from "./state.js";

export function remember() {
  const { current, ratio, chosen } = state;
  if (!current?.result || state.wanted) return;
  const [first] = state.models;
  address.write({
    model: $("model").value === first?.name ? "" : $("model").value,
    bias: $("bias").value,
    ratio,
    window: chosen,
    opacity: Number($("opacity").value),
    style: $("style").value,
    marks: $("show-marks").checked,
    example: current.example,
    regions: current.regions,
  });
}

// From the address; the name of the example in it is the caller's to open.
export function recall() {
  const wanted = (state.wanted = address.read());
  const model = state.models.find(({ name }) => name === wanted.model) ?? state.models[0];
  if (model) $("model").value = model.name;
  $("bias").value = ["photograph", "screen", "none"].includes(wanted.bias) ? wanted.bias : "model";
  $("style").value = wanted.style;
  $("show-marks").checked = wanted.marks;
  $("opacity").value = wanted.opacity >= 0 && wanted.opacity <= 100 ? wanted.opacity : address.STRENGTH;
  state.ratio = RATIOS.includes(wanted.ratio) ? wanted.ratio : "";
  return wanted.example;
}

export async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    $("link-hint").textContent = state.current.example
      ? "Copied. Whoever opens it sees this example with these settings and regions."
      : "Copied. Whoever opens it adds the picture and sees these settings and regions.";
  } catch {
    $("link-hint").textContent = "This browser does not let the page copy; take the address from its bar.";
  }
  say($("link-hint").textContent);
}
