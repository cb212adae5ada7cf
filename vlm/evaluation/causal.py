"""Whether the heads follow what was changed in the picture or the question.

Where the truth changed, a head must give the new one: `follows`. A head that doesn't see the change
keeps its reply; one that guesses from the question scores the floor beside. Where the truth stays,
a head must stay right: `holds`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vlm.data.tables import QuestionTable
from vlm.evaluation.altering import ALTERATIONS, Altered, Split
from vlm.evaluation.floors import AskedColumns, best_guesses
from vlm.evaluation.heads import HEADS, Answerer, Replies
from vlm.evaluation.scoring import Bools, Figures, Scorer
from vlm.evaluation.vqa_metrics import family_accuracy


@dataclass(frozen=True, eq=False)
class Outcome:
    """One change, and what the heads say before and after."""

    name: str
    altered: Altered
    before: Replies  # to the questions of the split that were asked again
    after: Replies


def outcomes(answerer: Answerer, split: Split, before: Replies) -> Iterator[Outcome]:
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
            yield Outcome(name, altered, before.of_rows(altered.rows), after)


@dataclass(frozen=True, eq=False)
class Guessers:
    """Two who see no picture: what they take for the answer to a question's words.

    Attributes:
        blind: learned on train.
        told: learned on val after the same change, on questions of the same kind (the truth
            changed, or not). It knows, for one, that erasing an object turns yes into no. None
            where val has no such question.
    """

    blind: AskedColumns
    told: AskedColumns | None

    def right(self, asked: QuestionTable) -> dict[str, Bools]:
        """Whether each of them is right about every question."""
        learned = {"blind": self.blind} | ({} if self.told is None else {"told": self.told})
        return {
            name: np.array(
                best_guesses(seen.questions, seen.answers, list(asked.question), seen.weights),
                object,
            )
            == asked.answer
            for name, seen in learned.items()
        }


def score(
    outcome: Outcome, split: Split, scorer: Scorer, train: AskedColumns, val: Split
) -> Figures:
    """The figures of one change.

    `follows` is the share of right replies where the truth changed, `both_right` that of replies
    right before and after, which no one is who doesn't notice the change; `holds` is the share of
    right ones where the truth stays. `same_reply` is the share of answers that are what they were.
    `follows_blind` and `holds_blind` are what one scores who sees no picture and has learned on
    train; `follows_floor` and `holds_floor` the larger of that and what one scores who has learned
    on val after the same change (see `Guessers`).
    """
    altered, asked = outcome.altered, outcome.altered.questions
    own = split.questions
    changed = asked.answer != own.answer[altered.rows]
    whole = Scorer(
        list(asked.family), asked.scene_id, scorer.resamples, scorer.seed, split.scenes.scene_id
    )
    figures: Figures = {
        "pictures": len(np.unique(asked.scene_id)),
        "questions": len(asked),
        "changed_truths": int(changed.sum()),
    }
    parts = {name: rows for name, rows in (("follows", changed), ("holds", ~changed)) if rows.any()}
    twin = ALTERATIONS[outcome.name](val)
    moved = twin.questions.answer != val.questions.answer[twin.rows]
    for name, rows in parts.items():
        told = _columns(twin.questions, moved if name == "follows" else ~moved)
        guessed = Guessers(train, told).right(asked)
        shares = {guesser: float(right[rows].mean()) for guesser, right in guessed.items()}
        figures |= {f"{name}_blind": shares["blind"], f"{name}_floor": max(shares.values())}
        if name == "follows":
            families = whole.of_rows(rows).families
            by_family = [family_accuracy(right[rows], families) for right in guessed.values()]
            figures["follows_floor_by_family"] = {
                family: max(each[family] for each in by_family) for family in by_family[0]
            }
    right = outcome.after.right(asked)
    differs = outcome.after.changed(outcome.before, split.truth.spoken())
    was = outcome.before.equal(own.answer[altered.rows], own.phrase[altered.rows])
    for head in HEADS:
        mine: Figures = whole.per_question("same_reply", ~differs[head])
        for name, rows in parts.items():
            mine |= whole.of_rows(rows).per_question(name, right[head][rows])
        if "follows" in parts:
            part = whole.of_rows(changed)
            mine |= part.by_family(right[head][changed], "follows_")
            mine |= part.per_question("both_right", (right[head] & was[head])[changed])
        figures[head] = mine
    return figures


def _columns(questions: QuestionTable, rows: Bools) -> AskedColumns | None:
    """What a guesser learns from some of the questions."""
    if not rows.any():
        return None
    columns = (questions.question, questions.answer, questions.family)
    return AskedColumns(*(column[rows].tolist() for column in columns))
