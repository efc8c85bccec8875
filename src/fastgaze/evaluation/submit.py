"""Files for the benchmarks: HDF5 log densities (MIT/Tuebingen), or 8-bit maps (the older MIT benchmark)."""

import zipfile
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastgaze.core.center_bias import CenterBias
from fastgaze.core.errors import ArgumentError, DataError, require
from fastgaze.core.files import replacing, write_whole
from fastgaze.core.pictures import image_files, read_pixels, read_size
from fastgaze.core.sizes import Size
from fastgaze.evaluation.evaluate import LogDensityModel
from fastgaze.evaluation.metrics import check_density

HDF5 = (".hdf5", ".h5")
MAPS = ("density", "log")
_LOWEST = 1e-3  # of the peak: where 8 bits of a log density begin


def submit(
    model: LogDensityModel,
    images: Path,
    out: Path,
    center_bias: CenterBias = "model",
    size: Size | None = None,
    map: str = "density",
    track: Callable[[Iterable[Path]], Iterable[Path]] = iter,
) -> int:
    """Predict every image below ``images`` at its own size and write the result to ``out``; returns their number.

    out: .hdf5 or .h5: float32 log densities under the images' names, as pysaliency's HDF5Model reads them;
         .zip or a folder: 8-bit PNG maps. It must not exist yet.
    size: (height, width) to which images are scaled before the model sees them.
    map: of 8-bit files: "density", stretched from 0 to its peak, or "log", its logarithm over three decades.
    """
    if map not in MAPS:
        raise ArgumentError(f"no map {map!r}; choose from {', '.join(MAPS)}")
    if out.exists():
        raise ArgumentError(f"{out} exists already; give a new name, nothing is overwritten")
    files = image_files(images, below=True) if images.is_dir() else []
    if not files:
        raise DataError(f"no images in {images}; give the folder of the benchmark's images")
    predictions = _predict(model, files, images, center_bias, size, track)
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix in HDF5:
        _write_hdf5(out, predictions)
    elif out.suffix == ".zip":
        _write_zip(out, predictions, map)
    else:
        for name, log_density in predictions:
            target = (out / name).with_suffix(".png")
            write_whole(target, _png(log_density, map))
    return len(files)


def _predict(
    model: LogDensityModel,
    files: list[Path],
    root: Path,
    center_bias: CenterBias,
    size: Size | None,
    track: Callable[[Iterable[Path]], Iterable[Path]],
) -> Iterator[tuple[str, NDArray[np.floating]]]:
    for file in track(files):
        name = file.relative_to(root).as_posix()
        stored = read_size(file)
        log_density = model.log_density(read_pixels(file, size), stored, center_bias)
        check_density(log_density, name, stored)
        yield name, log_density


def _write_hdf5(out: Path, predictions: Iterable[tuple[str, NDArray[np.floating]]]) -> None:
    h5py = require("h5py", "data")
    with replacing(out) as part, h5py.File(part, "w") as file:
        for name, log_density in predictions:
            file.create_dataset(name, data=log_density.astype(np.float32), compression=4, shuffle=True)


def _write_zip(out: Path, predictions: Iterable[tuple[str, NDArray[np.floating]]], map: str) -> None:
    with replacing(out) as part, zipfile.ZipFile(part, "w") as archive:
        for name, log_density in predictions:
            archive.writestr(str(Path(name).with_suffix(".png")), _png(log_density, map))


def to_8_bits(log_density: NDArray[np.floating], map: str) -> NDArray[np.uint8]:
    """A log density as 0..255, 255 at its peak."""
    relative = log_density - log_density.max()
    values = np.exp(relative) if map == "density" else np.clip(1 - relative / np.log(_LOWEST), 0, 1)
    return np.asarray(np.round(255 * values), dtype=np.uint8)


def _png(log_density: NDArray[np.floating], map: str) -> bytes:
    buffer = BytesIO()
    Image.fromarray(to_8_bits(log_density, map)).save(buffer, "PNG")
    return buffer.getvalue()
