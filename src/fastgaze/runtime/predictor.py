"""From a picture to a gaze map: decode, prepare, network (``look``), then the tail (``at``). There is no other way."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal, TypeVar, overload

import numpy as np
import numpy.typing as npt

from fastgaze.core.center_bias import KINDS, CenterBias
from fastgaze.core.errors import ArgumentError, FastGazeError, ImageError, ModelError
from fastgaze.core.pictures import Picture, Source, is_one_picture, open_picture
from fastgaze.core.progress import Clock, Progress
from fastgaze.core.sizes import Size, format_size
from fastgaze.runtime import tail, zoo
from fastgaze.runtime.card import ModelCard, WorkingSize
from fastgaze.runtime.engines import Engine, PerProcess, available_cores, make_engine
from fastgaze.runtime.gazemap import GazeMap, LogDensity, checked_size
from fastgaze.runtime.many import counted, in_threads
from fastgaze.runtime.resize import prepare

Array = npt.NDArray[np.float32]
S = TypeVar("S", bound=Source)


@dataclass(frozen=True, eq=False)
class View:
    """What a model made of one picture. ``at`` gives its map, of any size and with any centre bias, at little cost."""

    predictor: "Predictor"
    saliency: Array
    """The network's output, (h, w)."""
    screen: float | None
    """How likely the picture is a screen, a page or a poster rather than a photograph, 0..1; None if the model does not
    tell."""
    working: Size
    """(height, width) that the network saw."""
    picture_size: Size
    """(height, width) of the picture."""
    picture: Picture | None = None
    """The opened picture; None where only its pixels were given, as with the frames of a video."""
    clock: Clock = field(default_factory=Clock)
    """What decode, prepare, network and, later, tail took."""

    def __repr__(self) -> str:
        return f"<View of {format_size(self.picture_size)} pixels, model {self.predictor.name}>"

    @property
    def milliseconds(self) -> Mapping[str, float]:
        """Wall time of the steps so far."""
        return self.clock.milliseconds()

    def at(self, size: Size | None = None, center_bias: CenterBias = "model") -> GazeMap:
        """The gaze map; its log density has ``size`` (height, width), that of the picture by default.

        center_bias: "model" (its own for a picture like this one), "photograph" or "screen" (its own for such
        pictures), None (uniform) or a log density (h, w) of any size.
        """
        density = self._density(center_bias)
        named = "none" if center_bias is None else center_bias if isinstance(center_bias, str) else "given"
        name, picture = self.predictor.name, self.picture
        return GazeMap(density, self.picture_size, size, name, named, picture, self.clock, self.screen)

    def _density(self, center_bias: CenterBias) -> LogDensity:
        """What ``at`` gives a size to."""
        bias, card = self.predictor._bias_of(center_bias, self.screen), self.predictor.card
        return tail.Field(self.saliency, self.working, card.sigma, bias, card.temperature)


class Predictor:
    """One model, ready to predict; may be shared between threads, pickled and forked."""

    def __init__(self, card: ModelCard, engine: Engine) -> None:
        self.card = card
        self._engine = engine
        self._bias = tail.make_bias(card.center_bias)

    def __repr__(self) -> str:
        return f"<Predictor {self.name}>"

    @property
    def name(self) -> str:
        """The model's name."""
        return self.card.name

    def inherit(self) -> None:
        """In a fork of a process that had one thread: use the engine that it loaded. Any other fork loads its own."""
        if isinstance(self._engine, PerProcess):
            self._engine.inherit()

    @overload
    def predict(
        self, image: list[S] | tuple[S, ...], size: Size | None = ..., center_bias: CenterBias = ..., bgr: bool = ...
    ) -> list[GazeMap]: ...

    @overload
    def predict(
        self, image: Source, size: Size | None = ..., center_bias: CenterBias = ..., bgr: bool = ...
    ) -> GazeMap: ...

    def predict(
        self,
        image: Source | list[S] | tuple[S, ...],
        size: Size | None = None,
        center_bias: CenterBias = "model",
        bgr: bool = False,
    ) -> GazeMap | list[GazeMap]:
        """Where people look in ``image``: a path, bytes, a stream, a PIL image, an array, a tensor; or a list of them.

        size: (height, width) of the map, that of the picture by default; a float32 map takes 4 bytes per pixel.
        center_bias: where people look by habit: "model" (its own for a picture like this one), "photograph" or "screen"
        (its own for such pictures), None (uniform) or a log density (h, w) of any size.
        bgr: arrays have their channels as blue, green, red. ``core.sources`` says which arrays are pictures.
        """
        if isinstance(image, (list, tuple)):
            return list(self.predict_many(image, size, center_bias, bgr))
        return self.look(image, bgr=bgr).at(size, center_bias)

    @overload
    def predict_many(
        self,
        images: Iterable[Source],
        size: Size | None = ...,
        center_bias: CenterBias = ...,
        bgr: bool = ...,
        *,
        threads: int | None = ...,
        progress: Progress | bool = ...,
        return_errors: Literal[False] = ...,
    ) -> Iterator[GazeMap]: ...

    @overload
    def predict_many(
        self,
        images: Iterable[Source],
        size: Size | None = ...,
        center_bias: CenterBias = ...,
        bgr: bool = ...,
        *,
        threads: int | None = ...,
        progress: Progress | bool = ...,
        return_errors: Literal[True],
    ) -> Iterator[GazeMap | FastGazeError]: ...

    def predict_many(
        self,
        images: Iterable[Source],
        size: Size | None = None,
        center_bias: CenterBias = "model",
        bgr: bool = False,
        *,
        threads: int | None = None,
        progress: Progress | bool = False,
        return_errors: bool = False,
    ) -> Iterator[GazeMap] | Iterator[GazeMap | FastGazeError]:
        """The maps of ``images`` in their order, as they are asked for; few are held at a time.

        threads: pictures that are decoded and predicted at once, as many as there are cores by default.
        progress: True for a bar on stderr, or a function that is called with (done, total, note).
        return_errors: a picture that cannot be used gives its error in place of a map instead of ending everything.
        """
        if is_one_picture(images):
            raise ArgumentError(
                "predict_many takes several pictures, such as a list of paths; for one there is predict"
            )
        threads = available_cores() if threads is None else threads
        if not 1 <= threads <= 1024:
            raise ArgumentError(f"threads={threads} is not between 1 and 1024")
        size, _ = checked_size(size), self._bias_of(center_bias)
        model = self if threads == 1 else self._one_threaded

        def work(image: Source) -> GazeMap | FastGazeError:
            try:
                return model.look(image, bgr=bgr).at(size, center_bias)
            except (ImageError, ArgumentError) as error:
                if not return_errors:
                    raise
                return error

        total = len(images) if isinstance(images, Sized) else None
        return counted(in_threads(work, images, threads), total, progress)

    @cached_property
    def _one_threaded(self) -> "Predictor":
        """The same model for several pictures at once: threads inside the network would only wait for each other."""
        if not isinstance(self._engine, PerProcess):
            return self
        return Predictor(self.card, self._engine.with_threads(1))

    def look(self, image: Source, at_least: Size | None = None, bgr: bool = False) -> View:
        """Decode ``image`` and run the network on it, once.

        at_least: (height, width) that will be needed of the picture later, for an overlay or a crop: it is
        then decoded once, at that size, instead of once for the network and once more.
        bgr: an array has its channels as blue, green, red.
        """
        clock = Clock()
        with clock("decode"):
            picture = open_picture(image, bgr)
            working = self.card.working_size(picture.size)
            if at_least is not None:
                picture.rgb(at_least)
            photo = picture.pixels(working)
        with clock("prepare"):
            pixels = prepare(photo, working, self.card, picture.size)
        return self._run(pixels, picture.size, picture, clock)

    def see(self, pixels: Array, picture_size: Size | None = None) -> View:
        """Run the network on ``pixels`` as it takes them: normalised RGB, float32 (3, h, w), multiples of the stride.

        picture_size: (height, width) of the picture that they are of, their own by default.
        """
        return self._run(pixels, picture_size or (pixels.shape[1], pixels.shape[2]), None, Clock())

    def _run(self, pixels: Array, picture_size: Size, picture: Picture | None, clock: Clock) -> View:
        with clock("network"):
            found = self._engine(pixels[None])
        saliency = _checked(found[0], pixels.shape[1:], self.name)
        return View(
            self, saliency, self._screen(found[1:]), (pixels.shape[1], pixels.shape[2]), picture_size, picture, clock
        )

    def _screen(self, summaries: Sequence[Array]) -> float | None:
        """How likely the picture is a screen, from the file's further outputs; None if the model does not tell."""
        kinds = self.card.kinds
        if kinds is None:
            return None
        if not summaries or summaries[0].shape != (1, len(kinds.weights)) or not np.isfinite(summaries[0]).all():
            raise ModelError(f"model {self.name} gives no summary of the picture that fits its card; export it again")
        return kinds.is_screen(summaries[0][0])

    def _bias_of(self, center_bias: CenterBias, screen: float | None = None) -> tail.Bias:
        """The centre bias as the tail takes it, for a picture that is a ``screen`` with this probability."""
        if center_bias is None:
            return tail.NO_BIAS
        if not isinstance(center_bias, str):
            return tail.make_bias(center_bias)
        kinds = self.card.kinds
        if center_bias == "model":
            return self._bias if kinds is None or screen is None else tail.bias_of_kind(kinds, screen)
        if center_bias not in KINDS:
            valid = "'model', 'photograph', 'screen', None or a log density (h, w)"
            raise ArgumentError(f"center_bias {center_bias!r} is not {valid}")
        if kinds is None:
            reason = f"model {self.name} has one centre bias for all kinds of pictures"
            raise ArgumentError(f"center_bias {center_bias!r}: {reason}; use 'model', None or a log density (h, w)")
        return tail.bias_of_kind(kinds, float(center_bias == "screen"))

    def working_at(self, working_size: WorkingSize) -> "Predictor":
        """The same model, in the same engine, with another working size."""
        return Predictor(self.card.with_working_size(working_size), self._engine)


def _checked(found: Array, size: tuple[int, ...], name: str) -> Array:
    """The saliency map in what an engine gave for an image of ``size``: a model file may compute anything."""
    fits = (
        found.ndim == 4
        and found.shape[:2] == (1, 1)
        and 0 < found.shape[2] <= size[0]
        and 0 < found.shape[3] <= size[1]
    )
    if not fits or found.dtype != np.float32:
        raise ModelError(f"model {name} gives an array {found.shape} of {found.dtype}, not float32 (1, 1, h, w)")
    saliency: Array = found[0, 0]
    if not np.isfinite(saliency).all():
        raise ModelError(f"model {name} gives NaN or infinity for this picture; its weights are damaged")
    return saliency


def load(
    name: str | os.PathLike[str] | None = None, engine: str = "onnxruntime", threads: int | None = None
) -> Predictor:
    """A bundled model by name (the default one without a name), or the exported .onnx file at a path.

    engine: "onnxruntime", "openvino" or "openvino-bf16". threads: of the network, all cores by default.
    """
    path, content, card = zoo.read_model(zoo.default_name() if name is None else Path(name))
    return Predictor(card, make_engine(path, content, engine, threads))


@lru_cache(maxsize=4)
def _shared(name: str | None) -> Predictor:
    return load(name)


@overload
def predict(
    image: list[S] | tuple[S, ...],
    model: str | None = ...,
    size: Size | None = ...,
    center_bias: CenterBias = ...,
    bgr: bool = ...,
) -> list[GazeMap]: ...


@overload
def predict(
    image: Source, model: str | None = ..., size: Size | None = ..., center_bias: CenterBias = ..., bgr: bool = ...
) -> GazeMap: ...


def predict(
    image: Source | list[S] | tuple[S, ...],
    model: str | None = None,
    size: Size | None = None,
    center_bias: CenterBias = "model",
    bgr: bool = False,
) -> GazeMap | list[GazeMap]:
    """Where people look in ``image``; the model is loaded at the first call and kept. See ``Predictor.predict``."""
    return _shared(model).predict(image, size, center_bias, bgr)
