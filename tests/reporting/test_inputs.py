"""Files that are broken: one line that names file and stage, or the page without them."""

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from example_run import PARAMS, write_run
from page_reader import text_of

from vlm.errors import UserError
from vlm.reporting.inputs import STAGES, read_inputs
from vlm.reporting.page import build_page


@pytest.fixture(autouse=True)
def _a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path, scenes=10)


def refusal() -> str:
    with pytest.raises(UserError) as error:
        read_inputs(Path(), PARAMS)
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "got"),
    [
        ("evaluate", b"[1]", "a list"),
        ("evaluate", b"3", "a int"),
        ("evaluate", b"{}", "no classifier"),
        ("evaluate", b'{"classifier": 3}', "classifier that is no dict"),
        ("evaluate", b"\xff\xfe{}", "'utf-8' codec can't decode byte 0xff in position 0"),
        ("evaluate", b"", "Expecting value: line 1 column 1 (char 0)"),
        ("generate", b'{"train": {}, "val": {}}', "no test"),
        ("pretrain", b"[]", "a list"),
    ],
)
def test_figures_of_another_form_name_file_and_stage(name: str, content: bytes, got: str) -> None:
    Path(f"metrics/{name}.json").write_bytes(content)
    line = refusal()
    assert line.startswith(f"metrics/{name}.json: got {got}")
    assert line.endswith(f", expected the JSON of the stage {name}") and "\n" not in line


@pytest.mark.parametrize("name", [name for name in STAGES if name not in ("evaluate", "generate")])
def test_figures_that_say_nothing_still_make_a_page(name: str) -> None:
    Path(f"metrics/{name}.json").write_text("{}")
    assert "not measured" in text_of(build_page(read_inputs(Path(), PARAMS)))


@pytest.mark.parametrize(
    ("path", "stage"),
    [
        ("plots/align.tsv", "align"),
        ("plots/benchmark_kv_cache/sweep.tsv", "benchmark_kv_cache"),
        ("plots/evaluate/calibration_generator_before.csv", "evaluate"),
    ],
)
def test_what_is_no_number_names_row_and_stage(path: str, stage: str) -> None:
    text = Path(path).read_text()
    header, *rows = text.splitlines()
    mark = "\t" if path.endswith("tsv") else ","
    rows[1] = mark.join(["x: y", *rows[1].split(mark)[1:]])
    Path(path).write_text("\n".join([header, *rows]) + "\n")
    expected = rf"{path} row 1: values: got '?(x: )?y', expected numbers of the stage {stage}"
    assert re.fullmatch(expected, refusal())


def test_a_table_that_is_no_text_names_its_stage() -> None:
    Path("plots/pretrain.tsv").write_bytes(b"step\t\xff\n1\t2\n")
    line = refusal()
    assert line.startswith("plots/pretrain.tsv: got no rows that can be read ('utf-8'")
    assert line.endswith(", expected those of the stage pretrain")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"\xff", b'{"seconds": null}', b'{"seconds": "long"}']
)
def test_a_broken_record_is_left_out(content: bytes) -> None:
    Path(".runtime/pretrain.json").write_bytes(content)
    inputs = read_inputs(Path(), PARAMS)
    assert list(inputs.runtime) == ["align"]
    text = text_of(build_page(inputs))
    assert "pretrain not measured in this checkout" in text
    assert "total 1 min 23 s (1 of 7 stages)" in text


def test_predictions_without_the_generators_confidence_are_shown_without() -> None:
    path = Path("data/predictions/questions.parquet")
    whole = text_of(build_page(read_inputs(Path(), PARAMS)))
    pq.write_table(pq.read_table(path).drop_columns(["generator_confidence"]), path)
    less = text_of(build_page(read_inputs(Path(), PARAMS)))
    for head, known in (("classifier", True), ("generator", False)):
        title = f"The {head}'s failures, the one it is surest of first:".replace("'", "&#x27;")
        assert title in whole
        assert (title in less) == known
    assert 0 < less.count(" sure)") < whole.count(" sure)")
