// What the page says: what went wrong, for everybody; what happened, for screen readers.

import { Refusal } from "./refusal.js";
import { $, state } from "./state.js";

export const say = (text) => { $("status").textContent = text; };

export function complain(text, retriable = false) {
  $("alert-text").textContent = text;
  $("retry").hidden = !retriable || !state.current;
  $("alert").hidden = false;
}

export const calm = () => { $("alert").hidden = true; };

export function report(error, otherwise) {
  complain(error instanceof Refusal ? error.message : otherwise);
  if (!(error instanceof Refusal)) console.error(error);
}
