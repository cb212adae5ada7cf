"""What the tests of training share."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[], Path]:
    """A new folder each time."""
    numbers = count()
    return lambda: tmp_path / str(next(numbers))
