"""The troubleshooting page: each of its errors is raised here, and says what the page says."""

import ast
import errno
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from error_page import PAGE, Raiser, groups, says, text_of, texts
from project import ROOT
from raise_data import DATA
from raise_models import MODELS
from raise_own import OWN
from raise_parameters import PARAMETERS, RULES
from raise_published import PUBLISHED
from raise_runs import (
    ENDS,
    MAKING,
    RUNNING,
    TRAINING,
    arms_that_differ,
    full_disk,
    loading_interrupted,
    preset,
    stage_end,
)
from raise_shapes import SHAPES
from raise_showing import SHOWING

from vlm.errors import StoppedError, UserError
from vlm.files import read_json

QUICK = {
    **PARAMETERS,
    **SHAPES,
    **DATA,
    **OWN,
    **PUBLISHED,
    **SHOWING,
    **MODELS,
    **TRAINING,
    **RUNNING,
}
# Pure functions over figures: only a caller of one's own can give them what they refuse.
FOR_CALLERS = {
    f"vlm/evaluation/{name}.py"
    for name in ("floors", "intervals", "retrieval", "text_metrics", "vqa_metrics")
}


def line_of(raiser: Raiser) -> str | None:
    """What a person reads who meets the error."""
    try:
        return raiser()
    except (UserError, StoppedError) as error:
        return str(error)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that paths read as they do in a checkout."""
    monkeypatch.chdir(tmp_path)


def test_every_entry_is_raised_and_every_raiser_has_its_entry():
    assert sorted(texts()) == sorted([*QUICK, *MAKING])


@pytest.mark.parametrize(("text", "raiser"), QUICK.items(), ids=QUICK)
def test_an_error_says_what_the_page_says(text: str, raiser: Raiser):
    line = line_of(raiser)
    assert line is not None
    assert says(text, line), line


@pytest.mark.pipeline
@pytest.mark.parametrize(("text", "raiser"), MAKING.items(), ids=MAKING)
def test_a_process_says_what_the_page_says(text: str, raiser: Callable[[], str]):
    line = raiser()
    assert says(text, line), line


@pytest.mark.pipeline
def test_make_preset_without_a_name_says_the_names():
    assert preset()() == "make preset NAME=...: expected one of default, notebook, tiny"


@pytest.mark.pipeline
def test_make_preset_before_the_first_commit_keeps_edits():
    line = preset("NAME=tiny", committed=False)()
    assert line == "params.yaml has uncommitted edits; commit them, or add FORCE=1"


@pytest.mark.parametrize(("line", "raiser"), RULES.items(), ids=RULES)
def test_the_parameter_file_names_the_section_before_a_rule(line: str, raiser: Raiser):
    assert line_of(raiser) == line


def test_entries_are_sorted_and_of_one_form():
    for title, entries in groups().items():
        listed = [text_of(entry).casefold() for entry in entries]
        assert listed == sorted(listed), title
        for entry in entries:
            cause, *mends = re.split(r"^Mend: ", entry, flags=re.MULTILINE)
            assert len(mends) == 1 and mends[0].strip(), entry
            assert len(cause.splitlines()) > 2, entry  # there is a cause between


@pytest.mark.parametrize(("status", "work"), ENDS.items(), ids=map(str, ENDS))
def test_a_stage_ends_with_a_status_of_its_own(status: int, work: Callable[[], None]):
    assert stage_end(work)[0] == status


def test_a_full_share_of_the_disk_is_a_full_disk():
    status, line = stage_end(lambda: full_disk(errno.EDQUOT))
    assert (status, line) == stage_end(full_disk)
    assert status == 1


def test_nothing_is_timed_where_the_arms_differ():
    with pytest.raises(StoppedError):
        arms_that_differ()
    metrics = read_json("metrics/benchmark_kv_cache.json")
    assert metrics["max_logit_diff"] > metrics["logit_tolerance"]
    assert not {"speedup", "exponent", "cost_model"} & set(metrics)
    assert not Path("plots").exists()


@pytest.mark.pipeline
def test_an_interrupt_while_a_stage_loads_is_the_same_line():
    lines = {
        "pretrain": ["stages.pretrain"],
        "train_vqa_generator": ["stages.train_vqa", "generator"],
    }
    for name, stage in lines.items():
        expected = f"{name}: interrupted; nothing half-written was left\n"
        assert loading_interrupted(*stage) == (130, expected)


def test_the_table_has_every_status_of_a_stage():
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| ([^|\s][^|]*)?\|", page, flags=re.MULTILINE)
    assert [int(status) for status, of_a_stage in rows if of_a_stage] == list(ENDS)


def test_the_code_raises_nothing_that_the_page_leaves_out():
    left_out = {
        f"{module}:{line}": pattern
        for module, line, pattern in raised()
        if not any(re.fullmatch(f"(.+: )?{pattern}", text) for text in texts())
    }
    modules = {place.partition(":")[0] for place in left_out}
    assert modules == FOR_CALLERS, left_out


def raised() -> Iterator[tuple[str, int, str]]:
    """Module, line and pattern of every text that the code gives an error for a user to read."""
    for path in sorted([*ROOT.glob("vlm/**/*.py"), *ROOT.glob("stages/**/*.py")]):
        module = path.relative_to(ROOT).as_posix()
        names = {"UserError", "StoppedError"}
        if module.startswith("vlm/config/"):
            names.add("ValueError")  # which pydantic collects
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and node.args):
                continue
            to_base = isinstance(node.func, ast.Attribute) and node.func.attr == "__init__"
            if to_base or (isinstance(node.func, ast.Name) and node.func.id in names):
                pattern = pattern_of(node.args[0])
                if re.search(r"[a-z]{3}", pattern):
                    yield module, node.lineno, pattern


def pattern_of(text: ast.expr) -> str:
    """The constant parts of a string, anything between; empty where the text is a variable."""
    if isinstance(text, ast.Constant) and isinstance(text.value, str):
        return re.escape(text.value)
    if isinstance(text, ast.JoinedStr):
        return "".join(pattern_of(part) or ".+" for part in text.values)
    return ""
