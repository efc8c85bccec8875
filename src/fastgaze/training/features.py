"""Features of a frozen trunk, computed once and kept as float16 in a memory-mapped file.

Half an hour for 10,000 images of 240x320 on two cores; after that a pass over the data trains a readout
in under a minute. Killed at any point, the extraction goes on after the last finished batch.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastgaze.core.spec import STRIDE, VGGSpec
from fastgaze.networks.gaze import GazeModel
from fastgaze.networks.vgg import VGG
from fastgaze.training.datasets import PreparedSet, channels_last, names_digest, normalise, write_json

Features = NDArray[np.float16]


def stored_taps(taps: tuple[str, ...]) -> tuple[str, ...]:
    """Taps worth storing: ``relu5_1`` follows from ``conv5_1``."""
    return tuple(tap for tap in taps if not (tap.startswith("relu") and f"conv{tap[4:]}" in taps))


def restore_taps(stored: Tensor, trunk: VGGSpec) -> Tensor:
    """Stored maps (N, maps, h, w) -> all maps that the readout sees, in its order."""
    kept = stored_taps(trunk.taps)
    widths = [trunk.width(tap) for tap in kept]
    maps = dict(zip(kept, torch.split(stored, widths, dim=1), strict=True))
    return torch.cat([maps[tap] if tap in maps else maps[f"conv{tap[4:]}"].relu() for tap in trunk.taps], dim=1)


def extract_features(model: GazeModel, data: PreparedSet, file: Path, batch: int = 8) -> Iterator[int]:
    """Compute what is not yet in ``file``; yields the number of finished images after every batch.

    Features of another trunk, of other images or of another size are replaced.
    """
    trunk = _storing_trunk(model)
    height, width = data.size
    maps = sum(trunk.spec.width(tap) for tap in trunk.taps)
    shape = (len(data), maps, height // STRIDE, width // STRIDE)
    progress = file.with_suffix(".json")
    facts = {"size": [height, width], "names": names_digest(data.names), "trunk": _magnitudes(trunk)}
    done = _finished(file, progress, shape, facts)
    if done:
        write_json(progress, {"done": done} | facts)
    else:
        progress.unlink(missing_ok=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    features = np.lib.format.open_memmap(file, "r+" if done else "w+", np.float16, shape)
    while done < len(data):
        end = min(done + batch, len(data))
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            values = trunk(normalise(data.images[done:end]).contiguous(memory_format=torch.channels_last))
        features[done:end] = values.half().numpy()
        done = end
        write_json(progress, {"done": done} | facts)
        yield done


def _finished(file: Path, progress: Path, shape: tuple[int, ...], facts: dict[str, Any]) -> int:
    """How many images of ``file`` can be kept; where an older version left no facts, its shape must do."""
    if not (progress.is_file() and file.is_file()) or np.load(file, mmap_mode="r").shape != shape:
        return 0
    known = json.loads(progress.read_text())
    same = all(known.get(key, facts[key]) == facts[key] for key in ("size", "names"))
    return int(known["done"]) if same and _alike(known.get("trunk", facts["trunk"]), facts["trunk"]) else 0


def _alike(known: list[float], found: list[float]) -> bool:
    # The trunk was rescaled on sample images, which may give other last digits on another machine.
    return len(known) == len(found) and np.allclose(known, found, rtol=1e-3, atol=0)


def _magnitudes(trunk: VGG) -> list[float]:
    """Mean magnitude of every tensor of the trunk: no two trunks share them."""
    return [float(tensor.double().abs().mean()) for tensor in trunk.state_dict().values()]


def open_features(file: Path) -> Features:
    """The finished file, float16 (n, maps, h, w)."""
    features: Features = np.load(file, mmap_mode="r")
    return features


def _storing_trunk(model: GazeModel) -> VGG:
    """The same convolutions with only the taps that are stored."""
    trunk = model.trunk
    assert isinstance(trunk, VGG)
    slim = VGG(VGGSpec(trunk.spec.blocks, stored_taps(trunk.taps)))
    slim.load_state_dict(trunk.state_dict())
    return channels_last(slim.eval())
