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

// Files that were left out since the user last added some. What is said of them stays while others are looked at.
let refused = [];

export const anyRefused = () => refused.length > 0;

export function refuse(file, message) {
  refused.push(file.name);
  const names = refused.length > 4 ? [...refused.slice(0, 3), `${refused.length - 3} more`] : refused;
  complain(refused.length === 1 ? `${file.name}: ${message}` : `${refused.length} files were left out: ${names.join(", ")}.`);
}

export function forgive() {
  refused = [];
  calm();
}

export function report(error, otherwise) {
  complain(error instanceof Refusal ? error.message : otherwise);
  if (!(error instanceof Refusal)) console.error(error);
}
