from dataclasses import replace

import pytest
import torch

from fastgaze.core.errors import ArgumentError
from fastgaze.core.spec import VGGSpec
from fastgaze.networks import create_model
from fastgaze.networks.gaze import GazeModel
from fastgaze.training.student import grow_into
from tests.training.helpers import TINY, tiny_model

WIDE = replace(TINY, trunk=VGGSpec(((6,), (9,), (8,), (8,), (12,)), ("relu5_1",)), readout=(5, 1))


def _wide() -> GazeModel:
    model = create_model("fastgaze", WIDE)
    assert isinstance(model, GazeModel)
    return model


def test_a_grown_network_predicts_what_the_small_one_did_and_can_learn_with_all_its_maps() -> None:
    small, wide = tiny_model(), _wide()
    grow_into(small, wide)
    image = torch.randn(2, 3, 64, 96)
    torch.testing.assert_close(wide(image), small(image))
    wide(image)[:, 3, 5].sum().backward()
    gradient = wide.network.get_submodule("trunk").get_submodule("conv3_1").weight.grad
    assert isinstance(gradient, torch.Tensor)
    assert gradient[:6, 6:].abs().amax() > 0  # from the new maps to the old ones


def test_a_network_does_not_grow_into_a_narrower_one() -> None:
    with pytest.raises(ArgumentError, match="a layer of 6 maps does not fit into one of 4"):
        grow_into(_wide(), tiny_model())


def test_only_plain_trunks_grow() -> None:
    dense = create_model("densegaze")
    assert isinstance(dense, GazeModel)
    with pytest.raises(ArgumentError, match="cannot grow a densegaze"):
        grow_into(dense, _wide())
