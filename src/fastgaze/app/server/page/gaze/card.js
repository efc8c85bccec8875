// What a model file says about itself: the JSON document in the metadata of the ONNX file, under the key "fastgaze".

/** @typedef {import("./numbers.js").Size} Size */
/** @typedef {{ width: number, height: number, values: Float32Array }} Grid */
/**
 * The biases of photographs and screens, and what tells the two apart: with the network's summary of a picture, the mean
 * of each of its deepest feature maps, it is a screen with the probability 1 / (1 + exp(-(weights summary + offset))).
 * @typedef {{ photograph: Grid, screen: Grid, weights: Float32Array, offset: number }} Kinds
 */
/**
 * The part of a model's card that is computed with.
 * @typedef {object} Card
 * @property {string} name
 * @property {{ pixels: number, stride: number, max_ratio: number, least: number }} working
 * @property {number} seenPixels area of the images that training scaled to the working size, 0 if not known
 * @property {readonly number[]} mean of red, green and blue, 0..1
 * @property {readonly number[]} std
 * @property {number} sigma standard deviation of the blur, in pixels of the working size
 * @property {number} temperature factor on the saliency, before the centre bias is added
 * @property {Grid} bias log density, natural log, by rows
 * @property {Kinds | null} kinds what the model knows of photographs and screens
 * @property {Readonly<Record<string, unknown>>} document everything as it stands in the file
 */

const FORMAT = 1;
const KEY = "fastgaze";
// ModelProto.metadata_props and the key and value of its entries.
const METADATA = 14;
const ENTRY_KEY = 1;
const ENTRY_VALUE = 2;

/**
 * The card inside the bytes of an ONNX file.
 * @param {Uint8Array} content
 * @returns {Card}
 */
export function readCard(content) {
  const decoder = new TextDecoder();
  for (const { number, value } of fields(content)) {
    if (number !== METADATA || !value) continue;
    const texts = new Map([...fields(value)].map((field) => [field.number, decoder.decode(field.value ?? undefined)]));
    if (texts.get(ENTRY_KEY) === KEY) return parseCard(JSON.parse(texts.get(ENTRY_VALUE) ?? ""));
  }
  throw new Error("this is not a fastgaze model; make one with `fastgaze export CHECKPOINT`");
}

/**
 * @param {any} document
 * @returns {Card}
 */
export function parseCard(document) {
  if (document.format !== FORMAT) throw new Error(`model format ${document.format} is not ${FORMAT}; export the model again`);
  const { kinds } = document;
  return {
    name: document.name,
    working: document.working_size,
    seenPixels: document.seen_pixels ?? 0,
    mean: document.normalisation.mean,
    std: document.normalisation.std,
    sigma: document.sigma,
    temperature: document.temperature ?? 1,
    bias: unpacked(document.center_bias),
    kinds: kinds ? parseKinds(kinds) : null,
    document,
  };
}

/**
 * @param {any} kinds
 * @returns {Kinds}
 */
const parseKinds = ({ photograph, screen, weights, offset }) => ({
  photograph: unpacked(photograph),
  screen: unpacked(screen),
  weights: unpacked(weights).values,
  offset,
});

/**
 * @param {{ size: [number, number], data: string }} packed
 * @returns {Grid}
 */
const unpacked = ({ size: [height, width], data }) => ({ width, height, values: floats(data) });

/**
 * The size that a picture is scaled to before the network sees it.
 * @param {Card["working"]} policy
 * @param {Size} size
 * @returns {Size}
 */
export function workingSize(policy, { width, height }) {
  const ratio = Math.min(Math.max(height / width, 1 / policy.max_ratio), policy.max_ratio);
  const heights = neighbours(policy, Math.sqrt(policy.pixels * ratio));
  const widths = neighbours(policy, Math.sqrt(policy.pixels / ratio));
  const misfit = (/** @type {Size} */ at) =>
    Math.log((at.height * at.width) / policy.pixels) ** 2 + Math.log(at.height / at.width / ratio) ** 2;
  const candidates = heights.flatMap((h) => widths.map((w) => ({ width: w, height: h })));
  return candidates.reduce((best, each) => (misfit(each) < misfit(best) ? each : best));
}

/**
 * @param {Card["working"]} policy
 * @param {number} side
 */
function neighbours({ stride, least }, side) {
  const below = Math.floor(side / stride) * stride;
  const smallest = Math.ceil(least / stride) * stride;
  return [Math.max(below, smallest), Math.max(below + stride, smallest)];
}

/** @param {string} base64 little-endian float32 */
function floats(base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
}

/**
 * The top-level fields of a protobuf message; `value` is null for numbers.
 * @param {Uint8Array} message
 * @returns {Generator<{ number: number, value: Uint8Array | null }>}
 */
function* fields(message) {
  let position = 0;
  const varint = () => {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = message[position++];
      if (byte === undefined || scale > 2 ** 63) throw new Error("the model file is damaged");
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  };
  while (position < message.length) {
    const tag = varint();
    const [number, kind] = [Math.floor(tag / 8), tag % 8];
    if (kind === 0) {
      varint();
      yield { number, value: null };
      continue;
    }
    const length = kind === 2 ? varint() : kind === 1 ? 8 : kind === 5 ? 4 : NaN;
    if (!(position + length <= message.length)) throw new Error("the model file is damaged");
    yield { number, value: message.subarray(position, position + length) };
    position += length;
  }
}
