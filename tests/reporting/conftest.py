"""A whole invented run, and its page."""

from pathlib import Path

import pytest
from example_run import PARAMS, write_run

from vlm.reporting.inputs import read_inputs
from vlm.reporting.page import build_page


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("run")
    write_run(root)
    return root


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return build_page(read_inputs(root, PARAMS))
