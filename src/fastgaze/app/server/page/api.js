// Requests to the server, and its refusals in words.

export class Refusal extends Error {
  constructor(message, retriable) {
    super(message);
    this.retriable = retriable;
  }
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
export const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));

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

export async function get(path) {
  const response = await send(path);
  if (!response.ok) throw await refusal(response);
  return response.json();
}

// A busy server says when to come back; three attempts before the user hears of it.
export async function ask(file, options, signal) {
  const query = new URLSearchParams(options);
  for (let attempt = 0; ; attempt++) {
    const response = await send(`/v1/gaze?${query}`, {
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
