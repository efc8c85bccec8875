// Gathers the package in dist/: the modules that it shares with the page, the bundled models, and types.

import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, rmSync } from "node:fs";

const here = new URL("./", import.meta.url);
const product = new URL("../src/fastgaze/", here);
const dist = new URL("dist/", here);

rmSync(dist, { recursive: true, force: true });
cpSync(new URL("src/", here), dist, { recursive: true });
cpSync(new URL("app/server/page/gaze/", product), new URL("gaze/", dist), { recursive: true });

const bundled = new URL("runtime/bundled/", product);
const { default: name } = JSON.parse(readFileSync(new URL("models.json", bundled), "utf8"));
mkdirSync(new URL("models/", dist));
cpSync(new URL(`${name}.onnx`, bundled), new URL("models/default.onnx", dist));
cpSync(new URL("parts/heads.onnx", bundled), new URL("models/heads.onnx", dist));

execFileSync(process.execPath, ["node_modules/typescript/bin/tsc", "-p", "."], { cwd: here, stdio: "inherit" });
