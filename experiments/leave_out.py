"""Leave one eye-tracking set out of training and look at it: gain and calibration on pictures of a new kind.

    python -m experiments.leave_out

For every set a network is trained from its pretrained trunk on SALICON and the other sets, and checked on all images of
the one that it never saw; a network that was trained on all sets is checked on the images that are kept out of them.
Figures are those of `experiments.lite_check`: the gain in bits over the set's centre bias, and the temperature that
would fit best (below 1 the network is too sure of itself). A run that was stopped continues. Writes
results/leave_out.json and a part of docs/models.md.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from experiments import common
from experiments.common import CONFIGS, DOCS, RESULTS, Record
from experiments.lite_check import check, trained_scale
from experiments.pages import fill, table
from fastgaze.networks.checkpoint import load_gaze_model
from fastgaze.training.config import Config, read_config
from fastgaze.training.datasets import Workshop
from fastgaze.training.stream import Source, fixation_source
from fastgaze.training.student import distill_student, watched_sources


def without(config: Config, name: str) -> Config:
    """The same training without one of the eye-tracking sets."""
    workshop = _only(config.workshop, lambda other: other != name)
    mixture = config.student.mixture
    if not workshop.mixed_shapes:
        mixture = replace(mixture, mixed_shapes=0.0)
    return replace(config, workshop=workshop, student=replace(config.student, mixture=mixture))


def all_images(workshop: Workshop, name: str) -> list[Source]:
    """Every image of one set, those that are kept out of training and the others."""
    only = _only(workshop, lambda other: other == name)
    parts = [*only.small, *only.shaped, *only.kept_out()[name]]
    sources = [fixation_source(part) for part in parts]
    return [source for source in sources if len(source)]


def names(workshop: Workshop) -> tuple[str, ...]:
    """The eye-tracking sets."""
    return *workshop.eye_tracking, *workshop.mixed_shapes


def _only(workshop: Workshop, wanted: Callable[[str], bool]) -> Workshop:
    """The workshop with those of its eye-tracking sets that are wanted."""
    flat, shaped = (tuple(filter(wanted, sets)) for sets in (workshop.eye_tracking, workshop.mixed_shapes))
    return replace(workshop, eye_tracking=flat, mixed_shapes=shaped)


def trained(config: Config, folder: Path, sources: dict[str, list[Source]]) -> list[Record]:
    """Train or continue the run in ``folder``, and check it on each set."""
    distill_student(config, folder)
    model, record = load_gaze_model(folder / "best.safetensors")
    scale = trained_scale(record, config.workshop.size)
    return [{"data": name, **asdict(check(model, found, scale))} for name, found in sources.items()]


def shown(record: Record) -> str:
    """The part of the page: what a set gains and its temperature, seen in training or not."""

    def cells(row: Record) -> list[str]:
        return [f"{row['gain']:.2f}", f"{row['temperature']:.2f}", f"{row['fitted_gain']:.2f}"]

    rows = {(row["left_out"], row["data"]): row for row in record["rows"]}
    unseen = [name for left_out, name in rows if left_out is not None]
    scores = [[name, *cells(rows[None, name]), *cells(rows[name, name])] for name in unseen]
    header = ["set", "gain, seen", "temperature", "fitted gain", "gain, never seen", "temperature", "fitted gain"]
    about = (
        f"Unpruned networks on EfficientNet-lite0, {record['settings']['steps']} steps each from the pretrained trunk, "
        "on fixations alone (`python -m experiments.leave_out`). Seen: trained on all sets and checked on the images "
        "that are kept out. Never seen: trained without the set and checked on all of it. Gains are bits per fixation "
        "over the set's centre bias; a fitted gain has the temperature before it."
    )
    return f"{table(header, scores)}\n\n{about}"


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, data=False, out=RESULTS / "leave_out.json", threads=True)
    parser.add_argument("--config", type=Path, default=CONFIGS / "leave_out.toml", help="settings of the training")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Train every network that is missing, and write its figures."""
    options = common.parse(make_parser(), arguments)
    config = read_config(options.config)
    record = common.about(options, config=options.config.name, steps=config.student.fit.steps) | {"rows": []}
    runs = config.workshop.runs / "leave-out"
    for left_out in (None, *names(config.workshop)):
        if left_out is None:
            rows = trained(config, runs / "none", watched_sources(config.workshop))
        else:
            unseen = {left_out: all_images(config.workshop, left_out)}
            rows = trained(without(config, left_out), runs / left_out, unseen)
        record["rows"] += [{"left_out": left_out, **row} for row in rows]
        common.write_record(options.out, record)
        for row in rows:
            figures = ", ".join(f"{key} {row[key]:.3f}" for key in ("gain", "temperature", "fitted_gain"))
            print(f"without {left_out}, {row['data']}: {figures}", flush=True)
    page = DOCS / "models.md"
    fill(page, "leave-out", shown(record))


if __name__ == "__main__":
    main()
