"""A workshop with three small data sets."""

from pathlib import Path

import pytest

from fastgaze.training.config import Config, read_config
from tests.training.helpers import WORKSHOP, write_sets

STAGES = """
[teacher]
members = 2
starts = 2
large_share = 0.5
fit = { steps = 6, validate_every = 3 }
folds = { steps = 4, validate_every = 2 }
[prune]
marks = [0.09, 0.05]
steps = 2
maps = 1
[tune]
fit = { steps = 4, validate_every = 2, precision = "fp32" }
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Settings of every stage, for a few steps each."""
    write_sets(tmp_path / "data")
    (tmp_path / "run.toml").write_text(WORKSHOP + STAGES)
    return read_config(tmp_path / "run.toml")
