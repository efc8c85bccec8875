"""Calibrate a model for other pictures and viewers: its temperature, its blur and its centre bias, in seconds.

A network that is asked about pictures unlike those it learned from is often right about the places and too sure of
them, and every group of viewers has a centre bias of its own. Both are settled by a few numbers of the tail:

    log Q = T A X B^T + w C - logsumexp

``tail_fit`` has the likelihood and its maximum.

A part of the tail is changed only if images that it was not fitted to say so: parts are added one by one, the most
useful first, as long as the cross-validated gain is larger than ``STANDARD_ERRORS`` times its standard error.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastgaze.core.center_bias import GRID, fit_center_bias, resample_log_density
from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.core.files import write_whole
from fastgaze.core.jsonable import Json
from fastgaze.data.fixations import FixationSet
from fastgaze.evaluation.tail_fit import Setting, Study, look
from fastgaze.runtime import zoo
from fastgaze.runtime.card import ModelCard, with_card
from fastgaze.runtime.engines import make_engine
from fastgaze.runtime.predictor import Predictor

Array = NDArray[np.float32]

NEEDED = {"temperature": 12, "blur": 12, "center_bias_weight": 12, "center_bias": 24}
"""The parts, and how many images each needs: a centre bias is a map, the others are numbers."""
MOST_IMAGES = 200
"""Of a larger set as many images, evenly spread, are used: four numbers do not need more."""
STANDARD_ERRORS = 2.0


@dataclass(frozen=True)
class Part:
    """A part of the tail, and what became of it.

    name: a key of ``NEEDED``. before, after: its value in the model and as fitted; a centre bias is that of the "model"
    or of the "data". gain: bits per fixation on images that it was not fitted to, beyond the parts adopted before it;
    error: standard error of the gain; both None if there were too few images to try. adopted: whether it was changed.
    """

    name: str
    before: float | str
    after: float | str
    gain: float | None
    error: float | None
    adopted: bool


@dataclass(frozen=True, eq=False)
class Calibration:
    """What ``calibrate`` found.

    before, after: bits per fixation over a uniform density, mean over images; ``after`` is of images that were left
    out of the fit. error: standard error of the difference.
    """

    model: str
    data: str
    images: int
    fixations: int
    before: float
    after: float
    error: float
    parts: tuple[Part, ...]
    card: ModelCard = field(repr=False)
    """That of the calibrated model."""
    _content: bytes = field(repr=False)

    @property
    def changed(self) -> bool:
        """Whether any part was adopted; otherwise the model is best left as it is."""
        return any(part.adopted for part in self.parts)

    def write(self, path: str | Path) -> None:
        """Write the calibrated model to ``path``, an .onnx file: the same network with another card."""
        path = Path(path)
        if path.suffix != ".onnx":
            raise ArgumentError(f"{path} does not end in .onnx, by which models are recognised")
        card = replace(self.card, name=path.name.removesuffix(".onnx"))
        write_whole(path, with_card(self._content, card))

    def to_json(self) -> dict[str, Json]:
        """Values that ``json`` can write."""
        facts = {key: getattr(self, key) for key in ("model", "data", "images", "fixations", "before", "after")}
        return {**facts, "error": self.error, "parts": [asdict(part) for part in self.parts]}


def calibrate(
    model: str | Path | None,
    data: FixationSet,
    data_name: str = "",
    threads: int | None = None,
    track: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> Calibration:
    """Fit the tail of a bundled model or an .onnx file to recorded fixations; ``write`` the result to a file.

    model: the default model if None. threads: of the network. track: wraps the numbers of the images while the network
    works through them, for a progress bar.
    """
    path, content, card = zoo.read_model(zoo.default_name() if model is None else model)
    predictor = Predictor(card, make_engine(path, content, threads=threads))
    looked = [look(predictor, data, i) for i in track(_chosen(data))]
    study = Study(looked, card)
    parts, adopted = _select(study)
    before, after = study.scores(study.start, study.everyone), study.left_out(adopted)
    name = data_name or "data of the user's own"
    return Calibration(
        model=card.name,
        data=data_name,
        images=len(looked),
        fixations=sum(len(each.cells) for each in looked),
        before=float(before.mean()),
        after=float(after.mean()),
        error=_standard_error(after - before),
        parts=parts,
        card=_calibrated(card, study.fit(adopted, study.everyone), f"calibrated on {name} ({len(looked)} images)"),
        _content=content,
    )


def fitted_temperature(predictor: Predictor, data: FixationSet, chosen: Iterable[int]) -> float:
    """The temperature that fits the chosen images best, with the centre bias of ``data`` and all else as it is.

    It is relative to the model's own: at 1 the model is calibrated, below 1 it is too sure of itself.
    """
    bias = fit_center_bias(np.sum([data.counts(i, GRID) for i in range(len(data))], axis=0))
    looked = [look(predictor, data, int(i)) for i in chosen if data.inside(int(i)).any()]
    study = Study(looked, predictor.card, bias)
    return study.fit(("temperature",), study.everyone).temperature / predictor.card.temperature


def _chosen(data: FixationSet) -> list[int]:
    """Numbers of the images that are used; too few are refused."""
    found = [i for i in range(len(data)) if data.inside(i).any()]
    if len(found) < (least := min(NEEDED.values())):
        raise DataError(
            f"{len(found)} images with fixations are too few to calibrate on; give at least {least}, better "
            f"{max(NEEDED.values())} or more"
        )
    return [found[k] for k in np.linspace(0, len(found) - 1, min(len(found), MOST_IMAGES)).astype(int)]


def _calibrated(card: ModelCard, setting: Setting, remark: str) -> ModelCard:
    """Scores of the card are those of the model as it was, and go; so do the centre biases of photographs and screens
    if the viewers have one of their own."""

    def weighted(bias: Array) -> Array:
        return resample_log_density(setting.weight * bias.astype(np.float64), bias.shape).astype(np.float32)

    kinds, bias = card.kinds, card.center_bias
    if setting.center_bias is not None:
        kinds, bias = None, setting.center_bias
    elif kinds is not None:
        kinds = replace(kinds, photograph=weighted(kinds.photograph), screen=weighted(kinds.screen))
    return replace(
        card,
        temperature=setting.temperature,
        sigma=setting.sigma,
        center_bias=weighted(bias),
        kinds=kinds,
        scores={},
        data="; ".join(filter(None, (card.data, remark))),
    )


def _select(study: Study) -> tuple[tuple[Part, ...], tuple[str, ...]]:
    """What became of every part, and the names of those to adopt, in the order in which they were."""
    scores = study.left_out(())
    gains: dict[str, tuple[float, float]] = {}
    adopted: tuple[str, ...] = ()
    waiting = [name for name, images in NEEDED.items() if len(study.everyone) >= images]
    while waiting:
        tried = {name: study.left_out((*adopted, name)) for name in waiting}
        gains |= {
            name: (float((found - scores).mean()), _standard_error(found - scores)) for name, found in tried.items()
        }
        best = max(waiting, key=lambda name: gains[name][0])
        if gains[best][0] <= STANDARD_ERRORS * gains[best][1]:
            break
        scores, adopted = tried[best], (*adopted, best)
        waiting.remove(best)
    fitted = study.fit(adopted, study.everyone)
    parts = []
    for name in NEEDED:
        setting = fitted if name in adopted or name not in gains else study.fit((*adopted, name), study.everyone)
        before, after = _value(study.start, name), _value(setting, name)
        gain, error = gains.get(name, (None, None))
        parts.append(Part(name, before, after, gain, error, name in adopted))
    return tuple(parts), adopted


def _value(setting: Setting, name: str) -> float | str:
    if name == "center_bias":
        return "model" if setting.center_bias is None else "data"
    return float({"temperature": setting.temperature, "blur": setting.sigma}.get(name, setting.weight))


def _standard_error(differences: NDArray[np.float64]) -> float:
    return float(differences.std(ddof=1) / np.sqrt(len(differences)))
