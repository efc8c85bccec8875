"""What runs the convolutional part: onnxruntime, or openvino where it is installed.

An engine maps float32 images (N, 3, H, W), H and W multiples of the model's stride, to the outputs of the model's file:
saliency (N, 1, H / 16, W / 16) and, in files that have it, the summary (N, k), the mean of each of the deepest feature
maps. Engines may be shared between threads, pickled and forked. Both give the same log density within ``TOLERANCE``
(fp32); bf16 trades that for speed.
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fastgaze.core.errors import ArgumentError, ModelError, require

Array = npt.NDArray[np.float32]

DEFAULT_ENGINE = "onnxruntime"
ENGINES = (DEFAULT_ENGINE, "openvino", "openvino-bf16")
TOLERANCE = 1e-3
"""Largest difference of log densities between the fp32 engines, in nats."""


class Engine(Protocol):
    """The convolutional part of one model."""

    def __call__(self, images: Array, /) -> Sequence[Array]:
        """images (N, 3, H, W) -> the outputs of the file, float32."""
        ...


def make_engine(path: Path, content: bytes, engine: str = "onnxruntime", threads: int | None = None) -> Engine:
    """The engine of that name for an ONNX file whose bytes are ``content``; ``path`` names it in errors.

    ``threads``: compute threads of one prediction, all cores of this process by default.
    """
    threads = available_cores() if threads is None else threads
    if not 1 <= threads <= 1024:
        raise ArgumentError(f"threads={threads} is not between 1 and 1024")
    if engine == "onnxruntime":
        return PerProcess(OnnxRuntime, path, content, threads)
    if engine == "openvino":
        return PerProcess(OpenVino, path, content, threads)
    if engine == "openvino-bf16":
        return PerProcess(OpenVinoBf16, path, content, threads)
    raise no_engine(engine)


def no_engine(name: str) -> ArgumentError:
    """The error about an engine that does not exist."""
    return ArgumentError(f"no engine {name!r}; choose from {', '.join(ENGINES)}")


def available_cores() -> int:
    """Cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS or Windows
        return os.cpu_count() or 1


class PerProcess:
    """An engine that each process loads for itself: threads and handles survive neither fork nor pickle."""

    def __init__(self, kind: Callable[[Path, bytes, int], Engine], path: Path, content: bytes, threads: int) -> None:
        self._recipe = (kind, path, content, threads)
        # By process. What a fork inherits is kept: to free it would wait for threads that only the parent has.
        self._loaded = {os.getpid(): kind(path, content, threads)}

    def __call__(self, images: Array) -> Sequence[Array]:
        """images (N, 3, H, W) -> the outputs of the file, float32."""
        engine = self._loaded.get(os.getpid())
        if engine is None:
            kind, path, content, threads = self._recipe
            engine = self._loaded[os.getpid()] = kind(path, content, threads)
        return engine(images)

    def with_threads(self, threads: int) -> "PerProcess":
        """The same network, computed by another number of threads."""
        kind, path, content, own = self._recipe
        return self if own == threads else PerProcess(kind, path, content, threads)

    def inherit(self) -> None:
        """In a fork of a process that had one thread: use what that process loaded."""
        self._loaded[os.getpid()] = next(iter(self._loaded.values()))

    def __reduce__(self) -> "tuple[type[PerProcess], tuple[object, ...]]":
        return PerProcess, self._recipe


class OnnxRuntime:
    """onnxruntime on the CPU; idle threads sleep instead of spinning, so that a server's cores stay free."""

    def __init__(self, path: Path, content: bytes, threads: int) -> None:
        import onnxruntime

        self._path = path
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 4
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own exception types are not public
            raise ModelError(f"onnxruntime cannot load {path}: {_first_line(error)}") from error

    def __call__(self, images: Array) -> Sequence[Array]:
        """images (N, 3, H, W) -> the outputs of the file, float32."""
        try:
            outputs: list[Array] = self._session.run(None, {"image": images})
        except Exception as error:  # as above
            raise ModelError(f"onnxruntime cannot run {self._path}: {_first_line(error)}") from error
        return outputs


def fold_constants(path: Path, content: bytes) -> bytes:
    """An ONNX file that computes the same, prepared for engines that must start fast, such as those of browsers.

    What does not depend on the image is computed (weights of half precision become float32, twice the size), and
    operators stay the standard ones. ``path`` names the file in errors.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 4
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = str(Path(folder) / "folded.onnx")
        try:
            onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # as above
            raise ModelError(f"onnxruntime cannot load {path}: {_first_line(error)}") from error
        return Path(options.optimized_model_filepath).read_bytes()


class OpenVino:
    """openvino on the CPU."""

    precision = "f32"

    def __init__(self, path: Path, content: bytes, threads: int) -> None:
        openvino = require("openvino", "openvino")
        settings = {
            "INFERENCE_NUM_THREADS": str(threads),
            "INFERENCE_PRECISION_HINT": self.precision,
            "PERFORMANCE_HINT": "LATENCY",
        }
        try:
            core = openvino.Core()
            self._compiled = core.compile_model(core.read_model(model=content), "CPU", settings)
        except Exception as error:  # openvino raises RuntimeError and its own kinds
            raise ModelError(f"openvino cannot load {path}: {_first_line(error)}") from error

    def __call__(self, images: Array) -> Sequence[Array]:
        """images (N, 3, H, W) -> the outputs of the file, float32."""
        # One request per call: requests are not safe to share between threads, compiled models are.
        request = self._compiled.create_infer_request()
        request.infer({"image": images})
        count = len(self._compiled.outputs)
        return [np.array(request.get_output_tensor(index).data, dtype=np.float32) for index in range(count)]


class OpenVinoBf16(OpenVino):
    """The same with 16-bit arithmetic, on CPUs that have it."""

    precision = "bf16"


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
