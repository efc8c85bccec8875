"""Files that we write, read by pysaliency itself, and the other way round."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastgaze.data.fixations import from_lists
from fastgaze.data.formats import hdf5, load

vars(np).update(trapz=np.trapezoid, string_=np.bytes_)  # names of NumPy 1, which pysaliency asks for
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pysaliency = pytest.importorskip("pysaliency")

# pysaliency leaves image files open.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def images(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "a.png", tmp_path / "b.png"]
    for path, size in zip(paths, ((64, 48), (20, 30)), strict=True):
        Image.new("RGB", size, 90).save(path)
    return paths


def test_pysaliency_reads_what_we_write(tmp_path: Path, images: list[Path]) -> None:
    points = [[[1.5, 2], [3.0, 7]], [[5.0, 6]]]
    hdf5.write(tmp_path / "set", from_lists(["a", "b"], images, [(48, 64), (30, 20)], points, [[0, 1], [2]]))
    stimuli = pysaliency.read_hdf5(tmp_path / "set" / "stimuli.hdf5")
    fixations = pysaliency.read_hdf5(tmp_path / "set" / "fixations.hdf5")
    assert list(stimuli.sizes) == [(48, 64), (30, 20)]
    assert stimuli[0].stimulus_data.shape == (48, 64, 3)
    np.testing.assert_array_equal(
        np.stack([fixations.x, fixations.y, fixations.n], axis=1), [[1.5, 2, 0], [3, 7, 0], [5, 6, 1]]
    )
    assert fixations.subjects.tolist() == [0, 1, 2]


@pytest.mark.parametrize("trains", [True, False])
def test_we_read_what_pysaliency_writes(tmp_path: Path, images: list[Path], trains: bool) -> None:
    stimuli = pysaliency.FileStimuli([str(p) for p in images])
    fixations = pysaliency.FixationTrains.from_fixation_trains(
        [[1.0, 2.0], [3.0]], [[4.0, 5.0], [6.0]], [[0, 1], [0]], [1, 0], [3, 4]
    )
    if not trains:
        fixations = fixations[np.arange(3)]
    stimuli.to_hdf5(str(tmp_path / "stimuli.hdf5"))
    fixations.to_hdf5(str(tmp_path / "fixations.hdf5"))
    data = load("auto", tmp_path)
    assert data.names == ("a", "b")
    np.testing.assert_array_equal(data.fixations(0), [[3, 6]])
    np.testing.assert_array_equal(data.fixations(1), [[1, 4], [2, 5]])
    assert data.observers(1).tolist() == [3, 3]
    assert data.size(0) == (48, 64)
