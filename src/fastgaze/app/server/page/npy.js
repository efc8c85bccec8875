// NumPy's file format, for one float32 grid.

const MAGIC = "\x93NUMPY\x01\x00";
const PREFIX = 10; // magic, version and the length of the header

export function readNpy(buffer) {
  const view = new DataView(buffer);
  const length = view.getUint16(8, true);
  const header = new TextDecoder("latin1").decode(new Uint8Array(buffer, PREFIX, length));
  const [, height, width] = /'shape': \((\d+), (\d+)\)/.exec(header);
  return { width: Number(width), height: Number(height), values: new Float32Array(buffer.slice(PREFIX + length)) };
}

export function writeNpy({ width, height, values }) {
  const facts = `{'descr': '<f4', 'fortran_order': False, 'shape': (${height}, ${width}), }`;
  const header = facts.padEnd(64 * Math.ceil((PREFIX + facts.length + 1) / 64) - PREFIX - 1) + "\n";
  const start = Uint8Array.from(MAGIC + "  " + header, (character) => character.charCodeAt(0));
  new DataView(start.buffer).setUint16(8, header.length, true);
  return new Blob([start, values], { type: "application/octet-stream" });
}
