"""Every error that fastgaze raises on purpose.

A message says what was given, what is valid and what to do, in one line.

    FastGazeError
    ├── ArgumentError      a value outside what a function or a command accepts
    ├── DataError          a data set, a fixation file or an image set that cannot be used
    ├── ImageError         one picture that cannot be decoded
    │   └── ImageTooLargeError  one picture with more pixels or scans than are allowed
    ├── ModelError         a spec, a checkpoint or a model file that cannot be used
    │   └── BackboneError  pretrained weights that are missing, damaged or of another shape
    ├── PruningError       a network or a request that pruning refuses
    ├── ExportError        an export whose result differs from the network it came from
    └── MissingExtraError  an optional dependency that is not installed
"""

from importlib import import_module
from types import ModuleType


class FastGazeError(Exception):
    """Base of all errors above: catch this to catch them all."""


class ArgumentError(FastGazeError, ValueError):
    """A value outside what a function or a command accepts."""


class DataError(FastGazeError):
    """A data set, a fixation file or an image set that cannot be used."""


class ImageError(FastGazeError):
    """One picture that cannot be decoded."""


class ImageTooLargeError(ImageError):
    """One picture with more pixels, or more passes over them, than are allowed."""


class ModelError(FastGazeError):
    """A spec, a checkpoint or a model file that cannot be used."""


class BackboneError(ModelError):
    """Pretrained weights that are missing, damaged or of another shape."""


class PruningError(FastGazeError):
    """A network or a request that pruning refuses."""


class ExportError(FastGazeError):
    """An export whose result differs from the network it came from."""


class MissingExtraError(FastGazeError, ImportError):
    """An optional dependency that is not installed."""


def require(module: str, extra: str) -> ModuleType:
    """Import ``module``, or raise an error that names the pip command to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        package = module.split(".")[0]
        hint = _without_gpu(extra) if package == "torch" else ""
        raise MissingExtraError(
            f"{package} is needed for this and is not installed; run pip install 'fastgaze[{extra}]'{hint}"
        ) from error


def _without_gpu(extra: str) -> str:
    """What to add where torch is missing: pip alone fetches a build with gigabytes of CUDA libraries on Linux."""
    return (
        f", or on a machine without a GPU: uv pip install 'fastgaze[{extra}]' --torch-backend=cpu"
        " (without uv: first install torch with the line for CPU on pytorch.org/get-started)"
    )
