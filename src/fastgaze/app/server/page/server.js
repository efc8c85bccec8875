// The server's answers, and its refusals in words.

import { gridSize } from "./gaze/map.js";
import { readNpy } from "./npy.js";
import { Refusal } from "./refusal.js";

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));

export async function start() {
  const [facts, { examples }] = await Promise.all([get("v1/models"), get("examples")]);
  return { ...facts, examples, promise: "Pictures are sent to this server only and are not kept." };
}

export async function look(file, options, signal) {
  return (await ask(file, { ...options, heat: "true" }, signal)).json();
}

// Windows come with the first answer.
export const crops = () => Promise.resolve([]);

export async function grid(file, options, signal) {
  const { width, height } = gridSize(options.picture_size);
  const { model, center_bias } = options;
  const response = await ask(file, { model, center_bias, format: "npy", size: `${width}x${height}` }, signal);
  return readNpy(await response.arrayBuffer());
}

export async function file(file, options) {
  return (await ask(file, { ...options, format: "npy" })).blob();
}

export async function picture(file, signal) {
  return (await ask(file, { format: "overlay", opacity: "0" }, signal)).blob();
}

async function send(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("The server does not answer. Is “fastgaze serve” still running?", true);
  }
}

async function refusal(response) {
  const retriable = [408, 503, 504].includes(response.status);
  try {
    return new Refusal(sentence((await response.json()).error.message), retriable);
  } catch {
    return new Refusal(`The server refused the picture (status ${response.status}).`, retriable);
  }
}

async function get(path) {
  const response = await send(path);
  if (!response.ok) throw await refusal(response);
  return response.json();
}

// A busy server says when to come back; three attempts before the user hears of it.
async function ask(file, options, signal) {
  const query = new URLSearchParams(options);
  for (let attempt = 0; ; attempt++) {
    const response = await send(`v1/gaze?${query}`, {
      method: "POST",
      body: file,
      headers: { "Content-Type": "application/octet-stream" },
      signal,
    });
    if (response.ok) return response;
    if (response.status !== 503 || attempt === 2) throw await refusal(response);
    await pause(Number(response.headers.get("Retry-After")) || 1);
  }
}
