"""Batches are a pure function of seed and step."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from fastgaze.core.errors import ArgumentError
from fastgaze.training.stream import Batch, Stream, in_order
from tests.training.helpers import source


def _equal(a: Batch, b: Batch) -> bool:
    return all(torch.equal(x, y) for x, y in zip(vars(a).values(), vars(b).values(), strict=True))


def test_a_batch_depends_on_seed_and_step_alone() -> None:
    one, two = (Stream([source()], batch=4, seed=1, flips=True) for _ in range(2))
    for step in range(20):
        one.batch(step)
    assert _equal(one.batch(7), two.batch(7))
    assert not _equal(one.batch(7), one.batch(8))
    assert not _equal(one.batch(7), Stream([source()], batch=4, seed=2, flips=True).batch(7))


def test_prefetched_batches_are_the_same_batches() -> None:
    stream = Stream([source()], batch=4, seed=1, flips=True)
    for step, batch in enumerate(stream.prefetched(3, 9), 3):
        assert _equal(batch, stream.batch(step))


def test_an_epoch_shows_every_image_once() -> None:
    stream = Stream([source(24)], batch=4, seed=0, flips=False)
    for epoch in range(2):
        seen = Counter(i for step in range(6) for _, i in stream._items(6 * epoch + step))
        assert seen == Counter(range(24))


def test_sources_are_mixed_by_weight() -> None:
    first, second = source(40, weight=0.9), replace(source(30, seed=1, weight=0.1), name="other")
    stream = Stream([first, second], batch=8, seed=0, flips=False)
    names = Counter(s.name for step in range(100) for s, _ in stream._items(step))
    assert names["other"] == pytest.approx(80, abs=2)
    assert names.total() == 800


def test_sizes_never_mix_in_a_batch_and_take_turns_by_weight() -> None:
    wide, tall = source(10, (32, 96), weight=3), source(10, (96, 32), weight=1)
    stream = Stream([wide, tall], batch=4, seed=0, flips=False)
    shapes = Counter(tuple(stream.batch(step).inputs.shape[2:]) for step in range(100))
    assert shapes[(32, 96)] == pytest.approx(75, abs=2)
    assert shapes[(96, 32)] == pytest.approx(25, abs=2)


def test_ranks_share_a_batch_without_overlap() -> None:
    stream = Stream([source()], batch=6, seed=0, flips=True)
    whole, parts = stream.batch(5), [stream.batch(5, rank, 2) for rank in (0, 1)]
    for rank, part in enumerate(parts):
        assert torch.equal(part.inputs, whole.inputs[rank::2])
        assert torch.equal(part.targets, whole.targets[rank::2])


def test_a_flip_turns_image_target_and_center_bias_together() -> None:
    ramp = np.tile(np.arange(64, dtype=np.float32), (48, 1))
    squares = replace(source(), center_bias=ramp)
    plain, flipped = (Stream([squares], batch=16, seed=0, flips=flips).batch(0) for flips in (False, True))
    turned = [i for i in range(16) if not torch.equal(plain.inputs[i], flipped.inputs[i])]
    assert 3 < len(turned) < 13
    for i in range(16):
        for a, b in zip(vars(plain).values(), vars(flipped).values(), strict=True):
            assert torch.equal(b[i], a[i].flip(-1) if i in turned else a[i])


def test_in_order_gives_every_item_once() -> None:
    squares = source(10)
    sizes = [len(batch.inputs) for batch in in_order(squares, 4)]
    assert sizes == [4, 4, 2]
    last = list(in_order(squares, 4))[-1]
    np.testing.assert_array_equal(last.targets[-1].numpy(), squares.targets[9])


def test_empty_sources_are_refused() -> None:
    with pytest.raises(ArgumentError, match="at least one source"):
        Stream([], batch=4, seed=0, flips=False)
