"""Whether the heads follow what was changed in the picture or the question.

Where the truth changed, a head must give the new one: `follows`. A head that doesn't see the change
keeps its reply; one that guesses from the question scores the floor beside. Where the truth stays,
a head must stay right: `holds`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vlm.evaluation.altering import ALTERATIONS, Altered, Split
from vlm.evaluation.floors import AskedColumns, best_guesses
from vlm.evaluation.heads import HEADS, Answerer, Replies
from vlm.evaluation.scoring import Figures, Scorer
from vlm.evaluation.vqa_metrics import family_accuracy


@dataclass(frozen=True, eq=False)
class Outcome:
    """One change, and what the heads say before and after."""

    altered: Altered
    before: Replies  # to the questions of the split that were asked again
    after: Replies


def outcomes(answerer: Answerer, split: Split, before: Replies) -> Iterator[tuple[str, Outcome]]:
    """Every alteration that leaves something to ask, by name, and what is said to it.

    Args:
        answerer: what is probed.
        split: what is altered.
        before: what the answerer says to the split as it is.
    """
    for name, alter in ALTERATIONS.items():
        altered = alter(split)
        if len(altered.rows):
            after = answerer.reply(altered.scenes, altered.questions)
            yield name, Outcome(altered, before.of_rows(altered.rows), after)


def score(outcome: Outcome, split: Split, scorer: Scorer, train: AskedColumns) -> Figures:
    """The figures of one change.

    `follows` is the share of right replies where the truth changed, `both_right` that of replies
    right before and after; `holds` the share of right ones where the truth stays. `same_reply` is
    the share of replies that are what they were.
    """
    altered, asked = outcome.altered, outcome.altered.questions
    own = split.questions
    changed = asked.answer != own.answer[altered.rows]
    whole = Scorer(
        list(asked.family), asked.scene_id, scorer.resamples, scorer.seed, split.scenes.scene_id
    )
    guesses = best_guesses(train.questions, train.answers, list(asked.question), train.weights)
    guessed = np.array(guesses, object) == asked.answer
    figures: Figures = {
        "pictures": len(np.unique(asked.scene_id)),
        "questions": len(asked),
        "changed_truths": int(changed.sum()),
    }
    parts = {"follows": changed, "holds": ~changed}
    figures |= {f"{name}_floor": guessed[rows].mean() for name, rows in parts.items() if rows.any()}
    if changed.any():
        families = whole.of_rows(changed).families
        figures["follows_floor_by_family"] = family_accuracy(guessed[changed], families)
    right, differs = outcome.after.right(asked), outcome.after.changed(outcome.before)
    was = outcome.before.equal(own.answer[altered.rows], own.phrase[altered.rows])
    for head in HEADS:
        mine: Figures = whole.per_question("same_reply", ~differs[head])
        for name, rows in parts.items():
            if rows.any():
                part = whole.of_rows(rows)
                mine |= part.per_question(name, right[head][rows])
        if changed.any():
            part = whole.of_rows(changed)
            mine |= part.by_family(right[head][changed], "follows_")
            mine |= part.per_question("both_right", (right[head] & was[head])[changed])
        figures[head] = mine
    return figures
