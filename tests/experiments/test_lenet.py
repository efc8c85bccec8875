"""LeNet-5 and MNIST: the network that the paper prunes, and the files that it is trained on."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from experiments.lenet import LeNet5, lenet_flops, load_lenet, load_mnist, read_idx, save_lenet
from fastgaze.core.errors import DataError, ModelError
from fastgaze.pruning import ChannelGraph, Flops
from tests.experiments.digits import write_idx


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


def test_real_files_have_the_paper_s_sizes(real_data: Path) -> None:
    data = load_mnist(real_data / "mnist")
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
    with pytest.raises(DataError, match="each image needs one label"):
        load_mnist(tmp_path)


@pytest.mark.parametrize("widths", [(20, 50, 500, 10), (3, 15, 453, 10)])
def test_flops_by_the_formula_are_those_that_pruning_counts(widths: tuple[int, int, int, int]) -> None:
    graph = ChannelGraph.trace(LeNet5(widths), torch.zeros(1, 1, 28, 28))
    assert lenet_flops(widths) == Flops().total(graph)
    assert len(graph.maps) == sum(widths)


def test_a_network_of_any_widths_is_saved_with_its_facts(tmp_path: Path) -> None:
    net = LeNet5((2, 3, 4, 10))
    save_lenet(net, tmp_path / "net.safetensors", {"cost_percent": 9.5})
    loaded, facts = load_lenet(tmp_path / "net.safetensors")
    assert (loaded.widths, facts) == ((2, 3, 4, 10), {"cost_percent": 9.5})
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name]), name
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ModelError, match="holds no LeNet-5"):
        load_lenet(tmp_path / "other.safetensors")
