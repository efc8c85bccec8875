// Regions of the picture that is shown, and its comparison with another one.

import * as boxes from "./boxes.js";
import * as compare from "./compare.js";
import { remember } from "./link.js";
import { report, say } from "./messages.js";
import { gazeOf, predict } from "./pictures.js";
import { $, state } from "./state.js";

export async function measureRegions(settled) {
  const picture = state.current;
  $("regions-hint").hidden = picture.regions.length > 0;
  if (settled) remember();
  if (!picture.regions.length) return;
  try {
    const gaze = await gazeOf(picture);
    if (state.current !== picture) return;
    boxes.showFacts(gaze.regions(Object.fromEntries(picture.regions.map(({ name, box }) => [name, boxes.edges(box)]))));
  } catch (error) {
    report(error, "The regions cannot be measured.");
  }
}

export function startComparing() {
  const second = state.pictures[Number($("compare").value)];
  return $("compare").value && second ? compareWith(second) : closeComparison();
}

export async function compareWith(second) {
  const first = state.current;
  state.other = second;
  try {
    await predict(second);
    const [a, b] = await Promise.all([gazeOf(first), gazeOf(second)]);
    if (state.current !== first || state.other !== second) return;
    const described = [[first, a], [second, b]].map(([{ file, url, regions }, gaze]) => ({ name: file.name, url, gaze, regions }));
    await compare.show(...described);
    if (state.current !== first || state.other !== second) return;
    const open = !$("comparison").hidden;
    $("compare").value = String(state.pictures.indexOf(second));
    $("view").hidden = true;
    $("comparison").hidden = false;
    if (!open) $("comparison").scrollIntoView({ block: "nearest" });
    say(`${first.file.name} and ${second.file.name} are shown side by side.`);
  } catch (error) {
    closeComparison();
    report(error, "The pictures cannot be compared.");
  }
}

export function closeComparison() {
  const open = state.other !== null;
  state.other = null;
  $("comparison").hidden = true;
  $("compare").value = "";
  if (open) $("view").hidden = false;
}
