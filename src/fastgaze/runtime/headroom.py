"""Where a cut would hurt: how likely each part of a picture belongs to a head, from crown to chin.

People look at eyes and mouth, so attention alone never sees the hair, and of two windows that keep the same attention
one may clip a crown. The trunk of a small gaze network has learned what heads look like, because people look at them:
one convolution on top of its feature maps reads them out (``bundled/parts/heads.onnx``, made by
``python -m experiments.heads fit``). Its only use is to choose among windows that keep nearly the same attention. It
draws no boxes, counts nobody and tells nobody apart.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fastgaze.core.pictures import Picture
from fastgaze.runtime import zoo
from fastgaze.runtime.card import ModelCard
from fastgaze.runtime.engines import Engine, make_engine
from fastgaze.runtime.resize import prepare

FILE = zoo.BUNDLED / "parts" / "heads.onnx"


def head_map(picture: Picture) -> npt.NDArray[np.float32]:
    """How likely each cell of a grid over the picture belongs to a head: float32 (h, w), 0..1."""
    card, engine = _network()
    working = card.working_size(picture.size)
    heads: npt.NDArray[np.float32] = engine(prepare(picture.pixels(working), working, card)[None])[0, 0]
    return heads


@lru_cache(maxsize=1)
def _network() -> tuple[ModelCard, Engine]:
    path, content, card = zoo.read_model(FILE)
    return card, make_engine(path, content, threads=1)
