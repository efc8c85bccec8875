"""How long does the page without a server take for a map, and how does that compare with Python?

    python -m experiments.site_speed        # results/site_speed.json, which experiments.site_docs reads

Browser and Python share one core. The first map counts from the page's load event to the frame that shows the result,
by the page's own clock, with compiling the engine and loading the model, in a browser that runs but has never seen the
page. Later maps are timed in turns with Python, from the bytes of a JPEG file to the log density on the grid, and the
median of several rounds counts: what else runs on the machine only makes a round slower. CPU seconds are those of all
processes of the browser.

Needs Playwright's Python, a Chromium and the package of onnxruntime-web (see docs/site.md).
"""

import base64
import functools
import gzip
import http.server
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from playwright.sync_api import Page, sync_playwright

import fastgaze
from experiments.common import EXAMPLES, RESULTS, about, make_parser, parse, write_record
from experiments.page_screenshots import SWITCHES
from fastgaze.app.site import RUNTIME_VERSION, build_site
from fastgaze.runtime import zoo
from fastgaze.runtime.predictor import Predictor

STEPS = ("decode", "prepare", "network", "tail")
LOOK = """async ([model, content]) => {
  const { look } = await import(new URL("page/browser.js", location).href);
  const bytes = Uint8Array.from(atob(content), (character) => character.charCodeAt(0));
  const file = new File([bytes], "photo.jpg", { type: "image/jpeg" });
  return (await look(file, { model, center_bias: "model", ratio: "16:9", n: "1" })).milliseconds;
}"""


# Playwright asks for a selector in ever longer steps, up to half a second: too coarse for a clock.
SHOWN = """
window.shown = new Promise((resolve) => addEventListener("DOMContentLoaded", () => new MutationObserver(() => {
  if (document.body.dataset.state !== "result") return;
  const { loadEventEnd } = performance.getEntriesByType("navigation")[0];
  requestAnimationFrame(() => setTimeout(() => resolve((performance.now() - loadEventEnd) / 1000)));
}).observe(document.body, { attributeFilter: ["data-state"] })));
"""
SETTLED = 1.0  # seconds after which a new tab of the browser is at rest


class _Quiet(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept, as every host keeps them

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address of a server for the files of ``folder``."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()


def cpu_seconds() -> float:
    """That the processes below this one have used so far."""
    parents, times = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        number = int(stat.parent.name)
        parents[number] = int(fields[1])
        times[number] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    below = {os.getpid()}
    while more := {number for number, parent in parents.items() if parent in below} - below:
        below |= more
    return sum(times[number] for number in below - {os.getpid()} if number in times)


def first_map(page: Page, url: str, photo: Path) -> dict[str, float]:
    """Seconds from the load event to the frame with the first result."""
    page.goto("about:blank")
    time.sleep(SETTLED)
    page.add_init_script(SHOWN)
    page.goto(url, wait_until="load")
    used = cpu_seconds()
    page.set_input_files("#file", photo)
    page.wait_for_selector("body[data-state=result]", timeout=120_000)
    seconds: float = page.evaluate("window.shown")
    return {"seconds": seconds, "cpu_seconds": cpu_seconds() - used}


def in_browser(page: Page, model: str, photo: bytes) -> dict[str, float]:
    """Milliseconds of the steps."""
    times: dict[str, float] = page.evaluate(LOOK, [model, base64.b64encode(photo).decode()])
    return times


def in_python(predictor: Predictor, photo: bytes) -> dict[str, float]:
    """Milliseconds of the steps."""
    gaze = predictor.predict(photo)
    assert gaze.grid.size
    return dict(gaze.milliseconds)


def medians(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    """Milliseconds of every step, and of all steps together."""
    steps = {step: median(times[step] for times in rounds) for step in STEPS}
    return {**steps, "total": median(sum(times[step] for step in STEPS) for times in rounds)}


def sizes(folder: Path, first_visit: int) -> dict[str, int]:
    """Bytes of the folder, of what a browser without WebGPU loads, of the engine in that, and of that after gzip."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    webgpu = ("webgpu", "asyncify")
    first = [path for path in files if not any(word in path.name for word in webgpu)]
    loaded = sum(path.stat().st_size for path in first)
    assert loaded == first_visit, (loaded, first_visit)
    return {
        "folder": sum(path.stat().st_size for path in files),
        "first_visit": loaded,
        "engine": sum(path.stat().st_size for path in first if path.parent.name == "ort"),
        "first_visit_gzip": sum(len(gzip.compress(path.read_bytes(), 6)) for path in first),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__, __file__, data=False, out=RESULTS / "site_speed.json", rounds=20)
    parser.add_argument("--browser", default="/usr/bin/chromium")
    options = parse(parser, arguments)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    predictor = fastgaze.load(threads=1)
    photos = sorted(EXAMPLES.glob("*.jpg"))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        site = build_site(Path(folder), [zoo.default_name()], EXAMPLES)
        size = sizes(Path(folder), site.first_visit)
        with serving(Path(folder)) as url:
            browser = driver.chromium.launch(executable_path=options.browser, args=SWITCHES)
            first = []
            for photo in photos:
                context = browser.new_context()
                page = context.new_page()
                first.append(first_map(page, url, photo))
                if photo != photos[-1]:
                    context.close()
            later: dict[str, list[dict[str, float]]] = {"browser": [], "python": []}
            for index in range(options.rounds):
                content = photos[index % len(photos)].read_bytes()
                later["browser"].append(in_browser(page, predictor.name, content))
                later["python"].append(in_python(predictor, content))
            version = browser.version
            browser.close()
    ours, theirs = medians(later["browser"]), medians(later["python"])
    record = about(options, model=predictor.name, threads=1, onnxruntime_web=RUNTIME_VERSION, chromium=version)
    record |= {
        "bytes": size,
        "first_map": first,
        "later_ms": {"browser": ours, "python": theirs},
        "ratio": {step: ours[step] / theirs[step] for step in ("network", "total")},
    }
    write_record(options.out, record)
    seconds, used = (median(each[kind] for each in first) for kind in ("seconds", "cpu_seconds"))
    print(f"first map after {seconds:.2f} s, {used:.2f} s of CPU")
    print(f"later maps in {ours['total']:.1f} ms, in Python {theirs['total']:.1f} ms; ratios {record['ratio']}")


if __name__ == "__main__":
    main()
