"""The page's account of the run: losses, data, time and memory, parameters."""

from collections.abc import Mapping
from io import StringIO
from typing import Any

from ruamel.yaml import YAML

from vlm.reporting import charts
from vlm.reporting.inputs import STAGES, TRAININGS, Inputs
from vlm.reporting.markup import (
    MISSING,
    Html,
    counted,
    duration,
    element,
    figure,
    number,
    paragraph,
    percent,
    percent_interval,
    section,
    table,
)

SPLITS = ("train", "val", "test")


def training(inputs: Inputs) -> Html:
    """Loss curves, and what each training kept."""
    panels = []
    rows = []
    for name in TRAININGS:
        figures = inputs.metrics[name]
        kept = figures.get("kept_step")
        unit = "1 - cosine" if name == "align" else "nats"
        label = f"training and validation losses of {name}"
        words = f"{name}: losses against the step; dotted on train, solid on validation."
        if kept is not None:
            words += f" Kept: step {kept}."
        curve = inputs.curves[name]
        panels.append(figure(charts.loss_curves(curve, kept, unit, label), words))
        if "val_exact_match" in curve:
            label = f"exact match on the validation split while {name} trains"
            words = f"{name}: share of validation questions answered exactly right."
            panels.append(figure(charts.score_curve(curve, "exact_match", label), words))
        rows.append(
            [
                name,
                f"{number(kept)} of {number(figures.get('steps'))}",
                number(figures.get("val", {}).get("loss")),
                number(figures.get("last_train_loss")),
                number(figures.get("parameters")),
                number(figures.get("trained_parameters")),
            ]
        )
    header = ["stage", "kept step", "validation loss", "last training loss"]
    header += ["parameters", "of them trained"]
    caption = "What each training kept. Losses are in nats, but for align's: 1 - cosine"
    shown = element("div", *panels, class_="charts")
    return section("training", "Training", shown, table(header, rows, caption))


def data(inputs: Inputs) -> Html:
    """Sizes and answer shares of the splits, and what they have in common."""
    figures = inputs.metrics["generate"]
    sizes = [
        [split, number(figures[split].get("scenes")), number(figures[split].get("questions"))]
        for split in SPLITS
    ]
    answers = [figures[split].get("answers", {}) for split in SPLITS]
    rows = [
        [
            f"{family}: {answer}",
            *(percent(part.get(family, {}).get(answer, 0.0)) for part in answers),
        ]
        for family in sorted({family for part in answers for family in part})
        for answer in sorted({a for part in answers for a in part.get(family, {})})
    ]
    twins = number(figures.get("duplicate_pictures_across_splits"))
    shared = f"Pictures that two splits share pixel by pixel: {twins}."
    told = _of_drawn(figures, inputs) if inputs.is_drawn else _of_own(figures)
    return section(
        "data",
        "Data",
        table(["split", "pictures", "questions"], sizes, "Sizes of the splits"),
        *(paragraph(words) for words in (f"{shared} {told[0]}", *told[1:])),
        table(
            ["family: answer", *SPLITS],
            rows,
            "How often each answer is the true one, within its family. Equal columns mean that the"
            " splits are alike; a large share is an easy guess",
        ),
    )


def _of_drawn(figures: Mapping[str, Any], inputs: Inputs) -> list[str]:
    """What is known of drawn scenes alone."""
    known = percent(figures.get("test_layouts_in_train"))
    return [
        "Test pictures whose layout (the same objects at the same places, under other noise) also"
        f" occurs in train: {known}; on those a model may remember instead of see."
        f" {_unseen(inputs)}",
        _guessed(figures),
    ]


def _of_own(figures: Mapping[str, Any]) -> list[str]:
    """What became of the source's rows, and of test's answers that train never gives."""
    rows = figures.get("rows", {})
    known = percent(figures["test"].get("answers_in_train"))
    return [
        f"The source had {counted(rows.get('in', 0), 'row')}, of which"
        f" {number(rows.get('skipped'))} couldn't be used (data/skipped.jsonl lists them). Of the"
        f" answers in test, {known} are given in train, too."
    ]


def _guessed(figures: Mapping[str, Any]) -> str:
    """What may be had of test without seeing or without hearing."""
    floors = figures.get("floors", {})
    majority, asked, shown = (
        percent(floors.get(name)) for name in ("majority", "question_only", "image_only")
    )
    return (
        f"Of all test questions, train's commonest answer is right on {majority}, its commonest"
        f" answer to the question's words on {asked}, its commonest answer about the picture's"
        f" shapes and colours on {shown}. Never given in train: the answers to"
        f" {percent(figures.get('test_answers_not_in_train'))}."
    )


def _unseen(inputs: Inputs) -> str:
    """Accuracy on the other pictures."""
    found = inputs.metrics["evaluate"].get("unseen_layouts")
    if not found:
        return f"Accuracy on the others: {MISSING}."
    told = []
    for head in ("classifier", "generator"):
        value, low, high = (found[head].get(f"exact_match{end}") for end in ("", "_low", "_high"))
        told.append(f"{percent(value)} [{percent_interval(low, high)}] ({head})")
    return (
        f"On the other pictures, with {number(found.get('questions'))} questions, families weighing"
        f" the same, right are {' and '.join(told)}."
    )


def run_record(inputs: Inputs) -> Html:
    """Time and memory of each stage, and every parameter."""
    rows = []
    for name in STAGES:
        ran = inputs.runtime.get(name, {})
        memory = ran.get("peak_memory_mib")
        rows.append(
            [
                name,
                duration(ran["seconds"]) if "seconds" in ran else f"{MISSING} in this checkout",
                "—" if memory is None else f"{memory:,.0f} MiB",
                f"{ran.get('threads', '—')} of {ran.get('cores', '—')}",
                ran.get("machine", "—"),
            ]
        )
    measured = [ran["seconds"] for ran in inputs.runtime.values() if "seconds" in ran]
    total = f"{duration(sum(measured))} ({len(measured)} of {len(STAGES)} stages)"
    rows.append(["total", total if measured else f"{MISSING} in this checkout", "—", "—", "—"])
    header = ["stage", "time", "peak memory", "threads of cores", "machine"]
    text = StringIO()
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.dump(dict(inputs.params), text)
    return section(
        "run",
        "Run record",
        table(header, rows, "Wall time and peak memory of each stage's last run in this checkout"),
        element(
            "details",
            element("summary", "All parameters of this run (params.yaml)"),
            element("pre", text.getvalue()),
        ),
    )
