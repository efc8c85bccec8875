import gzip
from pathlib import Path

import numpy as np
import pytest

from fastgaze.core.errors import DataError
from fastgaze.data.mnist import load_mnist, read_idx


def write_idx(path: Path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    content = header + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_set(folder: Path, train: int = 20, test: int = 6) -> None:
    for part, count in (("train", train), ("t10k", test)):
        images = np.arange(count * 28 * 28).reshape(count, 28, 28) % 251
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte", np.arange(count) % 10)


def test_train_and_validation_part_the_training_files(tmp_path: Path) -> None:
    write_set(tmp_path)
    data = load_mnist(tmp_path, seed=3)
    assert (len(data.train), len(data.validation), len(data.test)) == (10, 10, 6)
    pixels = np.concatenate([data.train.images, data.validation.images])[:, 0, 0]
    assert sorted(pixels) == sorted(np.arange(20) * 784 % 251)
    again, other = load_mnist(tmp_path, seed=3), load_mnist(tmp_path, seed=4)
    assert np.array_equal(data.train.images, again.train.images)
    assert not np.array_equal(data.train.labels, other.train.labels)


def test_real_files_have_the_paper_s_sizes(shared_data: Path) -> None:
    data = load_mnist(shared_data / "mnist")
    assert (len(data.train), len(data.validation), len(data.test)) == (53_000, 7_000, 10_000)
    assert data.test.labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert data.train.images.dtype == np.uint8
    assert data.train.images.max() == 255


def test_damaged_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="put the four MNIST files"):
        load_mnist(tmp_path)
    write_set(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="damaged gzip"):
        load_mnist(tmp_path)
    path.write_bytes(gzip.compress(gzip.decompress(whole)[:-1]))
    with pytest.raises(DataError, match="truncated"):
        read_idx(path)
    path.write_bytes(gzip.compress(b"hello"))
    with pytest.raises(DataError, match="not an IDX file"):
        read_idx(path)
    write_idx(path, np.zeros((3, 28, 28)))
    with pytest.raises(DataError, match="one label an image"):
        load_mnist(tmp_path)
