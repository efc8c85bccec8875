// The parts that need no engine, and the predictor that is given one.

export { readCard, workingSize } from "./card.js";
export { parseRatio } from "./crop.js";
export { paint, paintChange, palette, topOf } from "./heat.js";
export { GazeMap, gridSize } from "./map.js";
export { Network, Predictor } from "./predictor.js";
