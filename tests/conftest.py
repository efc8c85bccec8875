"""Fixtures that several test folders use."""

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real data beside the checkout; tests that need it are skipped, loudly, where it is absent."""
    if not (SHARED / "data").is_dir():
        pytest.skip(f"no real data at {SHARED / 'data'}")
    return SHARED / "data"


@pytest.fixture(scope="session")
def peer() -> Path:
    """Twitter's production FastGaze, beside the checkout."""
    path = SHARED / "peers" / "twitter-fastgaze.vxm"
    if not path.is_file():
        pytest.skip(f"no peer model at {path}")
    return path
