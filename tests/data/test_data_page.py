"""The page on own data: its parameters hold, and its walk-through works as it stands."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from project import ROOT, read_preset
from ruamel.yaml import YAML

from vlm.config.data import Source
from vlm.config.loading import parse_params
from vlm.data.importers.clevr_programs import FUNCTIONS
from vlm.data.importing import import_own

PAGE = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
YAMLS = re.findall(r"^```yaml\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


def merged(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Values after a change of some keys, however deep."""
    deep = {
        key: merged(values[key], value) if isinstance(value, dict) else value
        for key, value in changes.items()
    }
    return values | deep


@pytest.mark.parametrize("preset", ["default", "tiny"])
@pytest.mark.parametrize("block", YAMLS)
def test_the_parameters_of_the_page_are_valid(block: str, preset: str):
    params = parse_params(merged(read_preset(preset), YAML(typ="safe").load(block)))
    assert not params.data.is_drawn


def test_every_source_has_its_section_and_its_parameters():
    sections = re.findall(r"^## (\w+)$", PAGE, flags=re.MULTILINE)
    assert sorted(sections) == sorted(get_args(Source))
    told = {YAML(typ="safe").load(block)["data"]["source"] for block in YAMLS}
    assert told == {*sections} - {"scenes"}


def test_the_families_of_clevr_are_those_of_the_table():
    told = dict(re.findall(r"^\| `(\w+)` \| (`.*) \|$", PAGE, flags=re.MULTILINE))
    for family in {function.family for function in FUNCTIONS.values()} - {""}:
        named = {name for name, function in FUNCTIONS.items() if function.family == family}
        assert set(re.findall("`(\\w+)`", told[family])) == named


def test_the_walk_through_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/data.md", "exec"), {})
    params = parse_params(merged(read_preset("tiny"), YAML(typ="safe").load(YAMLS[0])))
    metrics = import_own(params.data, params.seed, Path(), Path("data"), workers=1)
    assert metrics["rows"] == {"in": 300, "out": 300, "skipped": 0}
    assert metrics["train"]["scenes"] >= params.pretrain.batch_size
    assert set(metrics["train"]["families"]) == {"color", "question"}
