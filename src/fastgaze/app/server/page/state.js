// What the page knows: the pictures that were added, the one that is shown, and what was chosen for it.

export const $ = (id) => document.getElementById(id);

// A picture: { file, example, url, size, decoding, result, asked, regions, gaze }. `asked` are the options of `result`.
export const state = { models: [], limits: null, pictures: [], current: null, other: null, ratio: "", chosen: 0, request: null, wanted: null };

export const options = () => ({ model: $("model").value, center_bias: $("bias").value });

export const windows = () => state.current?.result?.crops.find((crop) => crop.ratio === state.ratio)?.windows ?? [];
