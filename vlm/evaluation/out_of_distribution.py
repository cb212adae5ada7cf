"""Accuracy on scenes unlike those of training, by the way in which they are unlike."""

from collections.abc import Mapping

import numpy as np

from vlm.evaluation.altering import Split
from vlm.evaluation.floors import AskedColumns
from vlm.evaluation.scoring import Bools, Figures, Scorer, score_floors, score_head
from vlm.scenes.out_of_distribution import has_held_out
from vlm.scenes.scene import CELLS, cell_name, cell_of

KINDS = ("combination", "crowd")


def score_unlike(
    unlike: Split,
    right: Mapping[str, Bools],
    asked: AskedColumns,
    train: AskedColumns,
    test: Split,
    test_right: Mapping[str, Bools],
    scorer: Scorer,
) -> Figures:
    """The figures of `test_ood`, kind by kind and cell by cell.

    Args:
        unlike: the split.
        right: by head, whether each answer to its questions is right.
        asked: its questions, for the floors.
        train: what the floors learn from.
        test, test_right: of the split that is like train, for comparison.
        scorer: of that split.
    """
    known = set(train.answers)
    figures: Figures = {
        "pictures": len(unlike.scenes),
        "questions": len(unlike.questions),
        "answers_outside_vocabulary": float(np.mean([a not in known for a in asked.answers])),
    }
    held_out = has_held_out(unlike.layout, unlike.data.world)[unlike.questions.scene_index]
    whole = Scorer(asked.families, unlike.questions.scene_id, scorer.resamples, scorer.seed)
    for kind, rows in zip(KINDS, (held_out, ~held_out), strict=True):
        if rows.any():
            part = whole.of_rows(rows)
            floors = score_floors(part, train, asked.of_rows(np.flatnonzero(rows)))
            figures[kind] = {
                "questions": int(rows.sum()),
                "floors": floors,
                **{
                    head: score_head(part, correct[rows], floors) for head, correct in right.items()
                },
            }
    if held_out.any():
        figures["by_cell"] = _by_cell(unlike, right, whole)
        figures["by_cell_in_test"] = _by_cell_in_test(test, test_right, scorer)
    return figures


def _by_cell(split: Split, right: Mapping[str, Bools], scorer: Scorer) -> Figures:
    """Accuracy on the scenes of each held-out combination; every question weighs the same."""
    world = split.data.world
    masks = {
        one: has_held_out(split.layout, world.model_copy(update={"held_out": [one]}))
        for one in world.held_out
    }
    return _shares(masks, split, right, scorer)


def _by_cell_in_test(split: Split, right: Mapping[str, Bools], scorer: Scorer) -> Figures:
    """Likewise where another shape lies in that cell, as train has seen: what to compare with."""
    masks = {}
    cell = cell_of(split.layout.row, split.layout.col, split.data.world.image_size)
    for combination in split.data.world.held_out:
        place = [cell_name(name) for name in CELLS].index(combination.partition("@")[2])
        masks[combination] = ((cell == place) & split.layout.present).any(axis=1)
    return _shares(masks, split, right, scorer)


def _shares(
    masks: Mapping[str, Bools], split: Split, right: Mapping[str, Bools], scorer: Scorer
) -> Figures:
    figures: Figures = {}
    for head, correct in right.items():
        for combination, scenes in masks.items():
            rows = scenes[split.questions.scene_index]
            if rows.any():
                shares = scorer.of_rows(rows).per_question(combination, correct[rows])
                for name, value in shares.items():
                    ending = name.removeprefix(combination)
                    figures.setdefault(head + ending, {})[combination] = value
    return figures
