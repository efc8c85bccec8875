"""Features of a frozen trunk, computed once and kept as float16 in a memory-mapped file.

It takes half an hour for 10,000 images of 240x320 on two cores; after that a pass over the data trains a readout
in under a minute. Killed at any point, the extraction continues after the last finished batch.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastgaze.core.files import new_array
from fastgaze.core.jsonable import Json
from fastgaze.core.progress import Progress, silent
from fastgaze.core.spec import STRIDE, VGGSpec
from fastgaze.networks.gaze import GazeModel
from fastgaze.networks.vgg import VGG
from fastgaze.training.datasets import PreparedSet, Workshop, channels_last, normalise, reduced_precision
from fastgaze.training.fit import device
from fastgaze.training.runs import Facts, differences, names_digest, read_json, write_json

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
    place = device()
    trunk = _storing_trunk(model).to(place)
    height, width = data.size
    maps = sum(trunk.spec.width(tap) for tap in trunk.taps)
    shape = (len(data), maps, height // STRIDE, width // STRIDE)
    progress = file.with_suffix(".json")
    facts: dict[str, Json] = {"size": [height, width], "names": names_digest(data.names), "trunk": _magnitudes(trunk)}
    done = _finished(file, progress, shape, facts)
    if done:
        write_json(progress, facts | {"done": done})
    else:
        progress.unlink(missing_ok=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    features = np.lib.format.open_memmap(file, "r+") if done else new_array(file, np.float16, shape)
    while done < len(data):
        end = min(done + batch, len(data))
        with torch.inference_mode(), reduced_precision(place, "bf16"):
            values = trunk(normalise(data.images[done:end]).to(place, memory_format=torch.channels_last))
        features[done:end] = values.half().cpu().numpy()
        done = end
        write_json(progress, facts | {"done": done})
        yield done


def _finished(file: Path, progress: Path, shape: tuple[int, ...], facts: Facts) -> int:
    """How many images of ``file`` can be kept; where an older version left no facts, its shape must do."""
    if not (progress.is_file() and file.is_file()) or np.load(file, mmap_mode="r").shape != shape:
        return 0
    known = read_json(progress)
    done = known["done"]
    assert isinstance(done, int)
    # The trunk was rescaled on sample images, which may give other last digits on another machine.
    return 0 if differences(known, facts, defaults=facts, near=["trunk"]) else done


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


def extract_workshop(workshop: Workshop, model: GazeModel, progress: Progress = silent) -> None:
    """Compute the features of all sets as far as they are missing."""
    for name in (*workshop.eye_tracking, workshop.validation, workshop.pretraining):
        data = workshop.prepared(name)
        for done in extract_features(model, data, workshop.features_file(name)):
            progress(done, len(data), f"features of {name}")


def eye_tracking_features(workshop: Workshop) -> list[tuple[PreparedSet, Features]]:
    """Each eye-tracking set with its stored features, without the images that are kept out."""
    pairs = []
    for name, data in zip(workshop.eye_tracking, workshop.small, strict=True):
        keep = np.flatnonzero(~workshop.held_out(workshop.load(name)))
        pairs.append((data, open_features(workshop.features_file(name))[keep]))
    return pairs
