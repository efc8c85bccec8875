// Who looks at the pictures: the server that this page came from, or, on a page without one, this browser.
//
// Both have the same six functions:
//   start()                        what can be chosen: { models, default, limits, examples, promise }
//   look(file, options, signal)    the answer of /v1/gaze, with the heat map as an address
//   crops(file, options, signal)   windows of every ratio in the options, where the answer has none yet
//   grid(file, options, signal)    the log density on the grid that everything is derived from
//   file(file, options)            the log density at the picture's size, as a .npy file
//   picture(file, signal)          the picture in a format that every browser shows

import * as browser from "./browser.js";
import * as server from "./server.js";

export { Refusal } from "./refusal.js";

export const engine = document.documentElement.dataset.engine === "browser" ? browser : server;
