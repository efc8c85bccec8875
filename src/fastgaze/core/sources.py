"""Pictures that are not files: arrays, tensors and streams.

Which arrays are pictures, and what is done to them:

- Shape: (H, W) grey, (H, W, C) or (C, H, W) with C = 1 (grey), 3 (RGB) or 4 (RGBA). Where both the first and the last
  axis could be the channels, the last one is.
- uint8 holds 0..255 and is taken as it is. uint16 holds 0..65535 and keeps its upper 8 bits, as in files. Every other
  integer type holds 0..255.
- Floats hold 0..1. What overshoots by at most ``OVERSHOOT``, as after a sharp resize, is clipped; anything further out,
  such as 0..255 or a picture that was normalised for a network, is refused, because guessing would hide mistakes.
- Anything that numpy can read is an array, and so is a torch tensor on any device, with or without a gradient.

A stream is a file that is open for reading in binary mode. It is read from where it stands to its end.
"""

from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fastgaze.core.errors import ArgumentError, ImageError, ImageTooLargeError

OVERSHOOT = 0.1
_CHUNK = 1 << 24
_CHANNELS = (1, 3, 4)
_SHAPES = "(H, W), (H, W, C) or (C, H, W) with 1, 3 or 4 channels"


@runtime_checkable
class HasArray(Protocol):
    """What numpy can read, such as a tensor of torch, jax or tensorflow."""

    def __array__(self, *arguments: Any, **options: Any) -> npt.NDArray[Any]:
        """The values."""
        ...


def as_array(source: HasArray) -> npt.NDArray[Any]:
    """The values of an array or a tensor; a tensor of torch is detached and brought to the CPU first."""
    if isinstance(source, np.ndarray):
        return source
    tensor: Any = source
    if hasattr(tensor, "detach"):
        tensor = tensor.detach().cpu()
    try:
        return np.asarray(tensor)
    except TypeError:
        if not hasattr(tensor, "float"):
            raise
        return np.asarray(tensor.float())  # numpy has no bfloat16


def picture_array(source: HasArray, bgr: bool = False) -> npt.NDArray[np.uint8]:
    """``source`` as uint8 (H, W), (H, W, 3) or (H, W, 4), RGB; the rules are those of this module.

    bgr: the channels come as blue, green, red, as OpenCV has them.
    """
    array = _channels_last(as_array(source))
    if bgr and array.ndim == 2:
        raise ArgumentError("bgr=True is for pictures with 3 or 4 channels, and this one is grey")
    pixels = _to_8_bits(array)
    if not bgr:
        return pixels
    return np.ascontiguousarray(pixels[:, :, [2, 1, 0, 3][: pixels.shape[2]]])


def _channels_last(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.ndim == 4:
        raise ArgumentError(
            f"an array of shape {array.shape} holds {len(array)} pictures; give it to predict_many, or give one of them"
        )
    if array.size == 0 or array.ndim not in (2, 3):
        raise ArgumentError(f"a picture is an array {_SHAPES}, not one of shape {array.shape}")
    if array.ndim == 3 and array.shape[2] not in _CHANNELS:
        if array.shape[0] not in _CHANNELS:
            raise ArgumentError(f"a picture is an array {_SHAPES}, not one of shape {array.shape}")
        array = array.transpose(1, 2, 0)
    return array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array


def _to_8_bits(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.uint16:
        return (array >> 8).astype(np.uint8)
    if array.dtype.kind not in "iuf":
        raise ArgumentError(f"a picture is an array of integers 0..255 or floats 0..1, not of {array.dtype}")
    low, high = array.min(), array.max()
    if array.dtype.kind == "f":
        # Written so that NaN is refused as well.
        if not (low >= -OVERSHOOT and high <= 1 + OVERSHOOT):
            raise ArgumentError(
                f"a picture of {array.dtype} has values 0..1, not {low:.4g}..{high:.4g}; {_advice(high)}"
            )
        scaled: npt.NDArray[np.uint8] = (array.astype(np.float32).clip(0, 1) * 255 + 0.5).astype(np.uint8)
        return scaled
    if low < 0 or high > 255:
        raise ArgumentError(f"a picture of {array.dtype} has values 0..255, not {low}..{high}; scale it to 8 bits")
    return array.astype(np.uint8)


def _advice(high: float) -> str:
    if np.isnan(high):
        return "replace NaN by numbers"
    if 1 < high <= 255:
        return "divide it by 255, or undo its normalisation"
    return "scale it to 0..1"


@runtime_checkable
class ByteStream(Protocol):
    """A file that is open for reading in binary mode, such as ``open(path, "rb")`` or ``io.BytesIO``."""

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes from where it stands, none at its end."""
        ...


def read_stream(stream: ByteStream, most: int) -> tuple[bytearray, str]:
    """What is left in ``stream``, at most ``most`` bytes, and what to call it in errors."""
    name = getattr(stream, "name", None)
    label = name if isinstance(name, str) else "stream"
    content, chunk = bytearray(), bytes(1)
    while chunk and len(content) <= most:
        try:
            chunk = stream.read(_CHUNK)
        except UnicodeDecodeError as error:
            raise ArgumentError(f"{label}: the stream gives text, not bytes; open it with 'rb'") from error
        except (OSError, ValueError) as error:  # a closed file is a ValueError
            raise ImageError(f"{label}: cannot read the stream ({' '.join(str(error).split())})") from error
        if not isinstance(chunk, bytes):
            raise ArgumentError(f"{label}: the stream gives {type(chunk).__name__}, not bytes; open it with 'rb'")
        content += chunk
    if not content:
        raise ImageError(f"{label}: nothing is left in the stream; if it has been read or written, call seek(0) first")
    if len(content) > most:
        raise ImageTooLargeError(f"{label}: more than {most} bytes; scale the picture down")
    return content, label
