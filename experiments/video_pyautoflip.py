"""Where pyautoflip, the peer for reframing, puts its window in every frame of the sequences with recorded gaze.

    PYTHONPATH=. PEER/bin/python -m experiments.video_pyautoflip [--method saliency]

It needs an environment of its own with pyautoflip==0.2.1. Its default face detector downloads weights; where it cannot,
the face detector of MediaPipe stands in, which the package contains. Scenes, cropper and camera motion are its own;
only the writing of the video is left out, and the windows are noted instead. Writes NAME-9x16.json and NAME-1x1.json to
runs/pyautoflip/METHOD, which `experiments.video_reframe` reads; a file that is there is not made again.
"""

import argparse
import importlib
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("FASTGAZE_DATA", ROOT / "data"))
RATIOS = ("9:16", "1:1")


class Windows:
    """Stands in for pyautoflip's writer of videos."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.frames = 0

    def set_input_metadata(self, **_: Any) -> None:
        """Not needed."""

    def write_frame(self, _: Any) -> None:
        """Count."""
        self.frames += 1

    def finalize(self) -> str:
        """There is no file."""
        return ""


class InOrder:
    """Stands in for its pool of threads, so that windows are noted in the order of frames."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> "InOrder":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, function: Any, items: Any) -> Any:
        """The same as the pool's."""
        return map(function, items)

    def submit(self, function: Any, *arguments: Any) -> Any:
        """The same as the pool's."""
        future: Any = importlib.import_module("concurrent.futures").Future()
        future.set_result(function(*arguments))
        return future


def prepare() -> Any:
    """Import pyautoflip with the face detector that needs no download."""
    package = importlib.import_module("importlib.util").find_spec("pyautoflip")
    folder = Path(package.submodule_search_locations[0]) / "detection"
    util = importlib.import_module("importlib.util")
    spec = util.spec_from_file_location("pyautoflip.detection.face_detector", folder / "mediapipe_face_detector.py")
    module = util.module_from_spec(spec)
    sys.modules["pyautoflip.detection.face_detector"] = module
    spec.loader.exec_module(module)
    processor: Any = importlib.import_module("pyautoflip.core.processor")
    processor.VideoWriter = Windows
    processor.VideoReader.extract_audio = lambda _: None
    processor.concurrent = SimpleNamespace(futures=SimpleNamespace(ThreadPoolExecutor=InOrder))
    return processor


def windows(processor: Any, path: Path, ratio: str, method: str) -> dict[str, Any]:
    """(left, top, width, height) of the window in every frame, relative to the frame."""
    noted: list[list[float]] = []

    def note(_self: Any, frame: Any, window: Any) -> Any:
        noted.append([float(side) for side in window])
        return frame[:16, :16]

    for cropper in (processor.SaliencyCropper, processor.SceneCropper):
        cropper.apply_crop_window = note
    processor.SaliencyCropper.needs_split_screen = lambda _: False  # it would show two windows at once
    start = time.process_time()
    processor.AutoFlipProcessor(target_aspect_ratio=ratio, detection_method=method).process_video(str(path), "none.mp4")
    return {"windows": noted, "cpu_seconds": round(time.process_time() - start, 2)}


def main() -> None:
    """All sequences, both ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=("saliency", "detection"), default="saliency")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "pyautoflip")
    options = parser.parse_args()
    processor = prepare()
    folder = options.out / options.method
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted((options.data / "video").glob("*.avi")):
        for ratio in RATIOS:
            target = folder / f"{path.stem}-{ratio.replace(':', 'x')}.json"
            if not target.exists():
                found = windows(processor, path, ratio, options.method)
                target.write_text(json.dumps(found))
                print(path.stem, ratio, len(found["windows"]), found["cpu_seconds"], flush=True)


if __name__ == "__main__":
    main()
