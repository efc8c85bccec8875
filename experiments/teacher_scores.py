"""Score the teacher: one readout before the eye-tracking stage, the ensemble after it, and the folds it did not see.

    python -m experiments.teacher_scores

Works on the trunk's stored features, at the workshop's size (`experiments.front` has CAT2000, which is never stored).
Tuebingen protocol, each set's own centre bias.
"out of fold": every image that was trained on is scored by the one readout that was stopped on it, not trained on it.
Written after each row; a run that was stopped continues with the rows that are missing.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from experiments import common, scoring
from experiments.common import CONFIGS, RESULTS
from fastgaze.core.center_bias import CenterBias
from fastgaze.core.sizes import Size
from fastgaze.data.fixations import FixationSet, held_out
from fastgaze.evaluation.evaluate import Evaluation, evaluate
from fastgaze.networks import GazeModel, load_checkpoint
from fastgaze.networks.ensemble import GazeEnsemble, Member
from fastgaze.training.config import read_config
from fastgaze.training.datasets import Workshop
from fastgaze.training.features import Features, open_features, restore_taps
from fastgaze.training.teacher import fold_of

Predict = Callable[[int, Tensor, Size, Tensor], Tensor]  # image, its features (1, maps, h, w), size, centre bias


class Stored:
    """A teacher fed with stored features; ``follow`` tells it which image is at hand."""

    def __init__(self, features: Features, predict: Predict) -> None:
        self._features, self._predict, self._current = features, predict, 0

    def follow(self, indices: Iterable[int]) -> Iterator[int]:
        for self._current in indices:
            yield self._current

    def log_density(self, image: NDArray[np.uint8], size: Size, center_bias: CenterBias) -> NDArray[np.floating]:
        del image  # its features are stored
        assert isinstance(center_bias, np.ndarray)
        stored = torch.from_numpy(np.array(self._features[self._current : self._current + 1])).float()
        bias = torch.from_numpy(center_bias.astype(np.float32))
        with torch.inference_mode():
            return np.asarray(self._predict(self._current, stored, size, bias)[0].double())


class Teacher:
    """The two checkpoints of ``fastgaze teacher`` and the three ways to predict with them."""

    def __init__(self, workshop: Workshop) -> None:
        folder = workshop.runs / "teacher"
        single, ensemble = (load_checkpoint(folder / f"{name}.safetensors")[0] for name in ("single", "ensemble"))
        assert isinstance(single, GazeModel)
        assert isinstance(ensemble, GazeEnsemble)
        self.workshop, self.single, self.ensemble = workshop, single, ensemble

    def before(self, _: int, stored: Tensor, size: Size, bias: Tensor) -> Tensor:
        log_density: Tensor = self.single.tail(self.single.readout(self._taps(stored)), self.workshop.size, size, bias)
        return log_density

    def after(self, _: int, stored: Tensor, size: Size, bias: Tensor) -> Tensor:
        return self.ensemble.from_features(self._taps(stored), self.workshop.size, size, bias)

    def out_of_fold(self, data: FixationSet) -> Predict:
        trained = np.flatnonzero(~held_out(data.names))
        folds = dict(zip(trained.tolist(), fold_of(len(trained), len(self.ensemble.heads)).tolist(), strict=True))

        def predict(image: int, stored: Tensor, size: Size, bias: Tensor) -> Tensor:
            head = self.ensemble.heads[folds[image]]
            assert isinstance(head, Member)
            log_density: Tensor = head(self._taps(stored), self.workshop.size, size, bias)
            return log_density

        return predict

    def _taps(self, stored: Tensor) -> Tensor:
        trunk = self.single.spec.trunk
        return restore_taps(stored, trunk)  # type: ignore[arg-type]  # DeepGaze II's trunk is a VGG


def rows(workshop: Workshop) -> Iterator[tuple[str, str, Callable[[], Evaluation]]]:
    """(model, set, how to score it) of every row."""
    teacher = Teacher(workshop)

    def stored(name: str, predict: Predict, only: NDArray[np.int64] | None = None) -> Callable[[], Evaluation]:
        model = Stored(open_features(workshop.features_file(name)), predict)
        return lambda: evaluate(model, workshop.load(name), only=only, track=model.follow)

    yield "one readout", workshop.validation, stored(workshop.validation, teacher.before)
    yield "ensemble", workshop.validation, stored(workshop.validation, teacher.after)
    for name in workshop.eye_tracking:
        data = workshop.load(name)
        kept = held_out(data.names)
        yield "one readout", name, stored(name, teacher.before)
        yield "out of fold", name, stored(name, teacher.out_of_fold(data), np.flatnonzero(~kept))
        yield "one readout", f"{name}, held out", stored(name, teacher.before, np.flatnonzero(kept))
        yield "ensemble", f"{name}, held out", stored(name, teacher.after, np.flatnonzero(kept))


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, data=False, out=RESULTS / "deepgaze2.json")
    parser.add_argument("--config", type=Path, default=CONFIGS / "deepgaze2.toml", help="settings that trained it")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Score the rows that are missing."""
    options = common.parse(make_parser(), arguments)
    record = common.read_record(options.out) or common.about(options, config=options.config.name) | {"rows": []}
    for model, data, score in rows(read_config(options.config).workshop):
        if any((row["model"], row["data"]) == (model, data) for row in record["rows"]):
            continue
        found = score()
        record["rows"].append({"model": model, "data": data, **scoring.facts(found)})
        common.write_record(options.out, record)
        print(f"{model} on {data}: {scoring.shown(found.means)}", flush=True)


if __name__ == "__main__":
    main()
