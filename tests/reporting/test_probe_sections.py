"""The sections on the probes: figures as in the metrics, and what is said where there are none."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from example_run import HOSTILE, PARAMS, write_run
from page_reader import Reader, text_of

from vlm.reporting.attention import where
from vlm.reporting.confidence import knows
from vlm.reporting.errors import where_errors_are
from vlm.reporting.inputs import read_inputs
from vlm.reporting.interventions import EXAMPLES, PROBES, examples, looks
from vlm.reporting.page import CONTENTS, build_page
from vlm.reporting.probes import reads
from vlm.reporting.summary import summary
from vlm.reporting.unlike import unlike

SECTIONS = {
    "probes": looks,
    "word_order": reads,
    "whole_pictures": where_errors_are,
    "by_objects": where_errors_are,
    "counting": where_errors_are,
    "calibration": knows,
    "attention": where,
    "ood": unlike,
}
PROBED = (
    *("probes", "whole_pictures", "by_objects", "counting", "calibration", "attention", "ood"),
    "another_picture",
)
DRAWN = ("probes", "by_objects", "counting", "attention", "ood")  # what needs a drawn world


def rebuilt(
    folder: Path, change: dict[str, Any], *without: str, params: dict[str, Any] = PARAMS
) -> str:
    """The page of a run whose `evaluate` metrics are others."""
    write_run(folder, scenes=10)
    path = folder / "metrics/evaluate.json"
    scores = json.loads(path.read_text()) | change
    path.write_text(json.dumps({k: v for k, v in scores.items() if k not in without}))
    page = build_page(read_inputs(folder, params))
    Reader(page)
    return text_of(page)


def test_own_pictures_are_probed_with_another_picture(tmp_path: Path):
    page = rebuilt(tmp_path, {}, *DRAWN, params=PARAMS | {"data": {"source": "imagefolder"}})
    assert "It looks at the picture: with another one before it, it is right less often." in page
    assert "not measured" not in page.split("Answers", 1)[0]
    assert "exactly the facts" not in page and "Fact F1" not in page
    _, own = page.split("Does it look at the picture? With another picture", 1)
    row = "classifier, another 41.3% 40.3 to 42.3%"
    assert row in own.split("Does it read the question?", 1)[0]
    assert "38.6% 37.6 to 39.6%" in own and "is worked out from the scene anew" not in page


@pytest.mark.parametrize(
    "words",
    [
        "Summary It looks at the picture, it reads the question and it reads word order. Of"
        " the answers to questions about new pictures, 95.4% (classifier) and 92.3% (generator) are"
        " right; guessing gets"
        " 52.4% at best (image only). Where one object is erased and the truth is then another,"
        " the answer is right both before and after in 93.1% and 93.1% (ignoring that: 0.0%), and"
        " right after it in 95.7% and 95.7% (guessing: 42.1%). Where another question is asked and",
        "Right before and after where one object is erased (classifier) 93.1% 92.1 to 94.1% 0.0%"
        " (ignoring that) +93.1 points",
        "All of a picture's questions right (classifier) 84.1% 83.1 to 85.1% 31.0% (image only)",
        "For both heads the answer is right both before and after the change nearly always, so it"
        " comes from the objects that are there. It is right both times in 93.1% (classifier) and"
        " 93.1% (generator) of the 61 questions whose truth changed (who ignores the change: in"
        " none), and afterwards in 95.7% (classifier) and 95.7% (generator); the better of two"
        " guessers who see no picture is so in 42.1% (the one that knows nothing of the change:"
        " 40.1%). In relation guesses do so well that following there shows little.",
        "generator 93.1% 92.1 to 94.1% 95.7% 94.7 to 96.7% 42.1% +53.6 points 96.2% 95.2 to 97.2%"
        " 63.3% 51.3%",
        "The answer is the same in 51.3% (classifier) and 51.3% (generator) of all 120 questions;",
        "Exchanging the two nouns, above, changes the truth of 50.8% of 120 questions only.",
        "exists 95.0% 94.0 to 96.0% 95.0% 94.0 to 96.0% 40.0%",
        "so it belongs to the question that is asked",
        "so it hangs on the order of the words",
        "so it comes from where the objects are",
        "For both heads the answer stays what it was nearly always, so the background hardly"
        " matters. It is the same in 97.3% (classifier) and 97.3% (generator) of 120 questions, and"
        " right in 94.3% (classifier) and 94.3% (generator).",
        "classifier 84.1% 83.1 to 85.1% 80.2%",
        "guessing (image only) 31.0%",
        "pictures with more objects are harder (98.0% with 0 objects, 91.0% with 2 objects).",
        "1 95.0% 94.0 to 96.0% 95.0% 94.0 to 96.0% 50.0%",
        "For both heads 10.0% of counts are wrong, most often by +1 (7.0%) (24 counting questions)",
        "head right -1 +1 no number within one 95% interval floor"
        " classifier 90.0% 2.0% 7.0% 1.0% 97.3% 96.3 to 98.3% 70.0%",
        "classifier, as it is 5.00% 4.00 to 6.00% 1.50% 2.50% 1 97.00%",
        "generator, with temperature 2.00% 1.00 to 3.00% 1.50% 2.50% 1.234 94.00%",
        "As it is: for both heads confidence strays from accuracy further than chance explains; ECE"
        " 5.00% (classifier) and 5.00% (generator). With temperature: for both heads confidence"
        " can't be told from a calibrated one; ECE 2.00%",
        "generator's words 60 18.3% 17.3 to 19.3% 8.0% 2.29 (2.28 to 2.30) 1.01 1.12 (1.11 to 1",
        "More objects than any training picture (generator) 61.2% 60.2 to 62.2% 45.0%",
        "plus, top-right 80.0% 79.0 to 81.0% 95.0% 94.0 to 96.0% 80.0%",
        "accuracy falls for plus at the top-right",
        "12.5% of all questions of this section have an answer that no training question has",
        "Such answers occur in count, so nothing there is right.",
    ],
)
def test_figures_stand_with_the_sentences_made_of_them(page: str, words: str) -> None:
    assert words in text_of(page).replace("&#x27;", "'")


def test_every_link_of_the_contents_leads_to_its_section(page: str) -> None:
    sections = [attributes["id"] for tag, attributes in Reader(page).tags if tag == "section"]
    assert sections == list(CONTENTS)


def test_every_probe_has_examples_before_and_after(page: str) -> None:
    alts = [a["alt"] for tag, a in Reader(page).tags if tag == "img"]
    assert all(alts)
    for name in ("erased_object", "moved_object", "erased_background", "shuffled_pictures"):
        assert alts.count(PROBES[name].after) == EXAMPLES
    # Where only the question changes, one picture is enough.
    pairs, single = 4 * EXAMPLES, 2 * EXAMPLES
    looked = 3  # pictures, each beside three overlays
    assert alts.count("a test picture as it was drawn") == pairs + single + looked
    assert sum(str(alt).startswith("the same picture, bright where") for alt in alts) == 3 * looked
    assert "what is swapped_words 0 then: what else is swapped_words 0" in text_of(page)


def test_a_failure_comes_first_and_then_what_is_right(root: Path) -> None:
    chosen = examples(read_inputs(root, PARAMS).examples, "erased_object")
    assert [row["classifier_after"] for row in chosen] == ["yes", "no", "no"]
    assert len({row["question_after"] for row in chosen}) == EXAMPLES


def test_a_run_without_probes_says_so_and_needs_no_files_of_them(tmp_path: Path) -> None:
    write_run(tmp_path, scenes=10)
    for name in ("probes", "attention"):
        (tmp_path / f"data/predictions/{name}.parquet").unlink()
    path = tmp_path / "metrics/evaluate.json"
    scores = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in scores.items() if k not in PROBED}))
    page = build_page(read_inputs(tmp_path, PARAMS))
    Reader(page)
    assert "Whether it looks at the picture was not measured, whether it reads" in text_of(page)
    assert text_of(page).count("In this run: not measured.") == len(PROBES) + 5


@pytest.mark.parametrize("name", SECTIONS)
def test_any_one_probe_may_be_missing(root: Path, name: str) -> None:
    inputs = read_inputs(root, PARAMS)
    scores = {k: v for k, v in inputs.metrics["evaluate"].items() if k != name}
    less = replace(inputs, metrics={**inputs.metrics, "evaluate": scores})
    shown, before = (text_of(SECTIONS[name](one)) for one in (less, inputs))
    assert "not measured" in shown and "not measured" not in before
    assert ("was not measured" in summary(less)) == (name == "probes")


def test_heads_that_differ_are_told_apart(tmp_path: Path) -> None:
    write_run(tmp_path / "run", scenes=10)
    scores = json.loads((tmp_path / "run/metrics/evaluate.json").read_text())
    weak = scores["probes"]["erased_object"]["generator"]
    weak |= {"both_right": 0.02, "both_right_low": 0.01, "both_right_high": 0.03}
    text = rebuilt(tmp_path / "other", scores)
    assert (
        "For the classifier the answer is right both before and after the change nearly always, so"
        " it comes from the objects that are there; for the generator the answer is right both"
        " before and after the change hardly ever: no sign that it comes from the objects"
    ) in text
    assert (
        "Nothing shows that the worse head, the generator, looks at the picture, it reads" in text
    )
    assert "Right before and after where one object is erased (generator) 2.0%" in text


def test_where_no_truth_changed_nothing_is_said_to_follow(tmp_path: Path) -> None:
    write_run(tmp_path / "run", scenes=10)
    scores = json.loads((tmp_path / "run/metrics/evaluate.json").read_text())
    scores["probes"]["moved_object"] = scores["probes"]["erased_background"]
    assert "so its place hardly matters" in rebuilt(tmp_path / "other", scores)


def test_counts_that_are_all_right_need_no_chart(tmp_path: Path) -> None:
    right = {head: {"errors": {"+0": 1.0}} for head in ("classifier", "generator")}
    text = rebuilt(tmp_path, {"counting": {"questions": 1, **right}})
    assert "For both heads every count is right (1 counting question)." in text
    assert "Wrong counts by size" not in text


def test_text_from_examples_is_escaped(root: Path) -> None:
    inputs = read_inputs(root, PARAMS)
    said = {"question_before": HOSTILE, "generator_after": HOSTILE}
    hostile = replace(
        inputs,
        examples=[{**row, **said} for row in inputs.examples],
        attention=[{**row, "question": HOSTILE} for row in inputs.attention],
    )
    page = build_page(hostile)
    assert HOSTILE not in page
    Reader(page)
