"""A model for benchmarks: the one asked for, the bundled default, or an untrained network of the same cost."""

from pathlib import Path

from fastgaze.runtime import zoo

BLOCKS = ((16,), (16,), (16, 32), (32, 32), (48, 64))
READOUT = (8, 4, 1)


def choose(name: str | None, folder: Path) -> str:
    """Name or path of the model; the untrained one, 1.2 GFLOP at 640x480, is written into ``folder``."""
    if name is not None:
        return name
    default = zoo.read_index()["default"]
    return default if isinstance(default, str) else str(_untrained(folder / "untrained.onnx"))


def _untrained(path: Path) -> Path:
    from fastgaze.core.spec import GazeSpec, VGGSpec
    from fastgaze.networks import create_model
    from fastgaze.onnx.write import Facts, export_onnx

    spec = GazeSpec("fastgaze", VGGSpec(BLOCKS, ("relu5_2",)), READOUT, "prelu")
    export_onnx(create_model("fastgaze", spec), path, Facts("untrained"))
    return path
