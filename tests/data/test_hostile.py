"""Damaged and hostile data files: one error each, no crash, and no other file is read."""

import io
from pathlib import Path

import h5py
import numpy as np
import pytest

from fastgaze.core.errors import DataError
from fastgaze.data.fixations import file_name
from fastgaze.data.formats import hdf5, npz
from fastgaze.data.formats.mat import read_mat

CORPUS = Path(__file__).parents[1] / "corpus"


def test_a_mat_file_that_crashes_scipy_is_one_error_and_the_next_one_is_read(tmp_path: Path) -> None:
    import scipy.io

    scipy.io.savemat(tmp_path / "good.mat", {"x": np.arange(3.0), "s": {"a": "text", "b": np.eye(2)}})
    assert list(read_mat(tmp_path / "good.mat")["x"]) == [0, 1, 2]
    with pytest.raises(DataError, match="not a readable"):
        read_mat(CORPUS / "mat-scipy-crash")
    again = read_mat(tmp_path / "good.mat")
    assert again["s"]["a"] == "text"
    assert np.array_equal(again["s"]["b"], np.eye(2))
    with pytest.raises(DataError, match="no such file"):
        read_mat(tmp_path / "missing.mat")


def write_pysaliency(folder: Path) -> None:
    with h5py.File(folder / "stimuli.hdf5", "w") as file:
        hdf5._write_stimuli(h5py, file, ["a.png"], [(10, 20)])
    with h5py.File(folder / "fixations.hdf5", "w") as file:
        hdf5._attributes(file, "Fixations", "1.0", [])
        for name in ("x", "y"):
            file[name] = np.array([1.0, 2.0])
        file["n"] = np.array([0, 0])


def test_a_sound_pysaliency_file_is_read(tmp_path: Path) -> None:
    write_pysaliency(tmp_path)
    assert len(hdf5.read(tmp_path).x) == 2


@pytest.mark.parametrize("way", ["external storage", "external link", "virtual", "link in a group"])
def test_data_of_other_files_are_not_read(way: str, tmp_path: Path) -> None:
    write_pysaliency(tmp_path)
    (tmp_path / "secret").write_bytes(np.array([7.0, 8.0]).tobytes())
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file["x"] = np.array([7.0, 8.0])
    with h5py.File(tmp_path / "fixations.hdf5", "a") as file:
        del file["x"]
        if way == "external storage":
            file.create_dataset("x", (2,), "f8", external=[(str(tmp_path / "secret"), 0, 16)])
        elif way == "external link":
            file["x"] = h5py.ExternalLink("other.hdf5", "x")
        elif way == "virtual":
            layout = h5py.VirtualLayout((2,), "f8")
            layout[:] = h5py.VirtualSource(str(tmp_path / "other.hdf5"), "x", (2,))
            file.create_virtual_dataset("x", layout)
        else:
            file.create_group("g")["x"] = h5py.ExternalLink("other.hdf5", "x")
            file["x"] = h5py.SoftLink("/g/x")
    with pytest.raises(DataError, match="another file"):
        hdf5.read(tmp_path)


def test_unequal_columns_are_one_error(tmp_path: Path) -> None:
    write_pysaliency(tmp_path)
    with h5py.File(tmp_path / "fixations.hdf5", "a") as file:
        del file["y"]
        file["y"] = np.array([1.0])
    with pytest.raises(DataError, match="damaged"):
        hdf5.read(tmp_path)


def arrays() -> dict[str, np.ndarray]:
    points = {"x": np.zeros(2, "f4"), "y": np.zeros(2, "f4"), "observer": np.zeros(2, "i4")}
    return {
        "name": np.array(["a"]), "width": np.array([4]), "height": np.array([4]), "start": np.array([0, 2]), **points,
    }  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        {"y": np.zeros(1, "f4")},
        {"x": np.float32(1)},
        {"x": np.array(["text", "more"])},
        {"width": np.array(["wide"])},
        {"start": np.array([[0, 2]])},
        {"name": np.array([["a"]])},
        {"height": np.array([np.nan])},
    ],
    ids=["unequal", "no axis", "text", "text width", "matrix", "names", "no number"],
)
def test_an_npz_file_with_wrong_arrays_is_one_error(wrong: dict[str, np.ndarray], tmp_path: Path) -> None:
    np.savez(tmp_path / npz.FILE, allow_pickle=True, **(arrays() | wrong))
    with np.errstate(invalid="ignore"), pytest.raises(DataError):
        npz.read(tmp_path)


def test_damaged_npz_and_hdf5_files_are_one_error_each(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    write_pysaliency(tmp_path)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=True, **arrays())
    contents = {npz.FILE: buffer.getvalue(), "fixations.hdf5": (tmp_path / "fixations.hdf5").read_bytes()}
    for name, read in ((npz.FILE, npz.read), ("fixations.hdf5", hdf5.read)):
        refused = 0
        for _ in range(60):
            damaged = bytearray(contents[name])
            for place in generator.integers(0, len(damaged), 3):
                damaged[place] ^= 1 << int(generator.integers(8))
            (tmp_path / name).write_bytes(damaged[: int(generator.integers(1, len(damaged) + 1))])
            try:
                read(tmp_path)
            except DataError:  # any other error fails the test; a harmless change raises none
                refused += 1
        assert refused > 30, name


def test_a_converted_name_is_no_formula() -> None:
    assert file_name("=HYPERLINK(1)") == "_=HYPERLINK(1)"
    assert file_name("@a/b") == "_@a-b"
    assert file_name("a=b") == "a=b"
