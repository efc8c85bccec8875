"""How good teachers are, alone and together: what a student is taught can be no better than its targets.

    python -m experiments.teacher_ladder checkpoints/{densegaze-m,litegaze-lite1,litegaze-large}.safetensors

Every teacher predicts the validation images of SALICON and the images of the eye-tracking sets that were kept out of
training as it labels training images: the mean density of image and mirror image. The last two teachers are averaged,
the last three and so on, so name the best one last. The score is the log-likelihood in bits per fixation over a uniform
density, on the grid that training uses, with a 95% bootstrap interval over images. Writes results/teacher_ladder.json
and a part of docs/models.md.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments import common
from experiments.common import CONFIGS, DOCS, RESULTS, Record
from experiments.pages import fill, table
from experiments.reporting.verdicts import bootstrapped
from fastgaze.networks.checkpoint import load_gaze_model
from fastgaze.training.config import read_config
from fastgaze.training.datasets import PreparedSet, Workshop
from fastgaze.training.soft_targets import student_densities

Densities = list[NDArray[np.float32]]  # relative to uniform, (n, h, w), one array for each part of a set


def scored_sets(workshop: Workshop) -> dict[str, list[PreparedSet]]:
    """The validation images and what was kept out of every eye-tracking set, which may have several shapes."""
    return {workshop.validation: [workshop.validation_set], **workshop.kept_out()}


def predict(checkpoint: Path, parts: Sequence[PreparedSet]) -> Densities:
    """What a teacher would write as targets for every image of a set."""
    model, record = load_gaze_model(checkpoint)
    return [np.concatenate(list(student_densities(model, part, record))).astype(np.float32) for part in parts]


def bits(densities: Densities, parts: Sequence[PreparedSet]) -> NDArray[np.float64]:
    """Bits per fixation over uniform of every image that somebody looked at."""
    found = []
    for density, part in zip(densities, parts, strict=True):
        counts = part.counts.astype(np.float64)
        total = counts.sum(axis=(1, 2))
        log_density = np.log2(np.maximum(density, 1e-7))
        found.append(((counts * log_density).sum(axis=(1, 2)) / np.maximum(total, 1))[total > 0])
    return np.concatenate(found)


def mean(members: Sequence[Densities]) -> Densities:
    """The mean density of several teachers."""
    return [np.mean(parts, axis=0, dtype=np.float32) for parts in zip(*members, strict=True)]


def ladder(checkpoints: Sequence[Path]) -> dict[str, list[Path]]:
    """The rungs by name: every teacher alone, then the last two together, the last three and so on."""
    alone = {path.stem: [path] for path in checkpoints}
    groups = [list(checkpoints[-count:]) for count in range(2, len(checkpoints) + 1)]
    return alone | {" + ".join(path.stem for path in group): group for group in groups}


def score(checkpoints: Sequence[Path], parts: Sequence[PreparedSet]) -> Mapping[str, NDArray[np.float64]]:
    """Bits of every image of a set, for every rung."""
    predicted = {path: predict(path, parts) for path in checkpoints}
    return {
        name: bits(mean([predicted[path] for path in members]), parts) for name, members in ladder(checkpoints).items()
    }


def shown(record: Record) -> str:
    """The part of the page: one row for each rung, one column for each set."""
    sets = list(dict.fromkeys(row["data"] for row in record["rows"]))
    cells: dict[str, list[str]] = {}
    for row in record["rows"]:
        low, high = row["interval"]
        cells.setdefault(row["teacher"], []).append(f"{row['bits']:.3f} [{low:.3f}, {high:.3f}]")
    images = {row["data"]: row["images"] for row in record["rows"]}
    header = ["teacher", *(f"{name} ({images[name]})" for name in sets)]
    about = (
        "Bits per fixation over a uniform density of what each teacher gives as targets, with 95% intervals over the "
        "images, whose number is in brackets: validation images and those that are kept out of training."
    )
    return f"{table(header, [[name, *found] for name, found in cells.items()])}\n\n{about}"


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, data=False, out=RESULTS / "teacher_ladder.json", threads=True)
    parser.add_argument("checkpoints", type=Path, nargs="+", help="teachers, the best last")
    parser.add_argument("--config", type=Path, default=CONFIGS / "lite1.toml", help="settings that name the data")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Score every rung on every set, and write the file."""
    options = common.parse(make_parser(), arguments)
    record = common.about(options, config=options.config.name) | {"rows": []}
    for data, parts in scored_sets(read_config(options.config).workshop).items():
        for name, found in score(options.checkpoints, parts).items():
            estimate = bootstrapped(found)
            row = {"teacher": name, "data": data, "images": len(found), "bits": estimate.value}
            record["rows"].append(row | {"interval": [estimate.low, estimate.high]})
            print(f"{name} on {data}: {estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}] bits", flush=True)
    common.write_record(options.out, record)
    page = DOCS / "models.md"
    fill(page, "ladder", shown(record))


if __name__ == "__main__":
    main()
