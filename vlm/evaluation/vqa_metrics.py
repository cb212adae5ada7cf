"""Accuracy of short answers: exact match, VQA v2 accuracy, and means by question family."""

import re
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from vlm.errors import UserError
from vlm.evaluation.contractions import CONTRACTIONS

VqaMode = Literal["official", "always"]

# Annotators who must agree with an answer, the one left out aside, for it to count in full.
FULL_AGREEMENT = 3

# In the published code these two are one slip: a flag of regular expressions is passed where the
# number of replacements belongs, so only the first 32 full stops of an answer go.
_STOP = re.compile(r"\.(?!\d)")
MAX_STOPS = 32

_PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'
_ARTICLES = frozenset({"a", "an", "the"})
_NUMBER_WORDS = "zero one two three four five six seven eight nine ten"
_REWRITES = (
    CONTRACTIONS
    | {word: str(number) for number, word in enumerate(_NUMBER_WORDS.split())}
    | {"none": "0"}
)


def vqa_exact_match(predictions: Sequence[object], references: Sequence[object]) -> float:
    """Share of predictions that equal their reference, in [0, 1].

    Nothing is normalised; `vqa_normalized_match` does that.

    Example: `vqa_exact_match(["yes", "2"], ["yes", "two"])` is 0.5.

    Raises:
        UserError: nothing to score, or lengths that differ.
    """
    if len(predictions) != len(references):
        raise UserError(f"got {len(predictions)} predictions but {len(references)} references")
    if len(predictions) == 0:
        raise UserError("exact match needs at least 1 prediction, got 0")
    equal = sum(bool(p == r) for p, r in zip(predictions, references, strict=True))
    return equal / len(predictions)


def vqa_normalized_match(predictions: Sequence[str], references: Sequence[str]) -> float:
    """Share of predictions that equal their reference once both are normalised, in [0, 1].

    Example: `vqa_normalized_match(["Yes.", "2"], ["yes", "two"])` is 1.0.

    Raises:
        UserError: nothing to score, or lengths that differ.
    """
    return vqa_exact_match(
        [normalize_answer(answer) for answer in predictions],
        [normalize_answer(answer) for answer in references],
    )


def normalize_answer(answer: str) -> str:
    """Rewrites an answer so that spelling alone makes no difference, as VQA v2's evaluation does.

    Punctuation goes (or becomes a space inside a word), then case, articles and spacing; number
    words become digits and common contractions get their apostrophe back.

    Example: `normalize_answer("The two  cats.")` is `"2 cats"`.
    """
    words = _strip_punctuation(_on_one_line(answer)).lower().split()
    return " ".join(_REWRITES.get(word, word) for word in words if word not in _ARTICLES)


def vqa_accuracy(prediction: str, answers: Sequence[str], mode: VqaMode = "official") -> float:
    """VQA v2 accuracy of one prediction in its leave-one-out form, in [0, 1].

    Each annotator is left out in turn and the prediction scores min(1, matches / 3) against the
    others; the result is the mean. Of ten annotators, 0, 1, 2, 3, 4 and more who agree are worth
    0, 0.3, 0.6, 0.9, 1.

    With a single annotator there is nobody left, and the published code gives 0 whatever is said;
    here it is the exact match instead, raw or (`always`) normalised.

    Source: Antol et al., 2015, and the evaluation code published with VQA v2 in its last revision,
    whose number this is for every answer, oddities included. An earlier revision normalised the
    prediction always, and the annotators' answers by their punctuation alone.

    Args:
        prediction: The model's answer.
        answers: The annotators' answers, at least one.
        mode: `official` normalises only where annotators disagree, as the published code does
            (so "Two" misses where all ten say "two"); `always` normalises every time.

    Raises:
        UserError: no answers, or an unknown mode.
    """
    if mode not in get_args(VqaMode):
        raise UserError(f"vqa mode {mode!r} not in {list(get_args(VqaMode))}")
    if not answers:
        raise UserError("vqa_accuracy needs at least 1 annotator's answer, got 0")
    prediction, annotated = _on_one_line(prediction), [_on_one_line(answer) for answer in answers]
    if mode == "always" or len(set(annotated)) > 1:
        prediction, annotated = (
            normalize_answer(prediction),
            [normalize_answer(answer) for answer in annotated],
        )
    agreeing = annotated.count(prediction)
    if len(annotated) == 1:
        return float(agreeing)
    # Leaving out one who agrees costs a match; leaving out another costs none.
    without_one = agreeing * min(1.0, (agreeing - 1) / FULL_AGREEMENT)
    without_other = (len(annotated) - agreeing) * min(1.0, agreeing / FULL_AGREEMENT)
    return (without_one + without_other) / len(annotated)


def family_accuracy(correct: ArrayLike, families: Sequence[str]) -> dict[str, float]:
    """Mean score of each question family, sorted by name.

    Example: `family_accuracy([1, 0, 1], ["count", "count", "exists"])` is
    `{"count": 0.5, "exists": 1.0}`.

    Args:
        correct: (Q,) right or wrong, or scores in [0, 1].
        families: (Q,) the family of each question.

    Raises:
        UserError: nothing to score, or lengths that differ.
    """
    scores = np.asarray(correct, dtype=np.float64)
    if scores.shape != (len(families),):
        raise UserError(f"got scores of shape {scores.shape} but {len(families)} families")
    if scores.size == 0:
        raise UserError("accuracy needs at least 1 question, got 0")
    labels = np.asarray(families)
    return {str(name): float(scores[labels == name].mean()) for name in np.unique(labels)}


def macro_accuracy(correct: ArrayLike, families: Sequence[str]) -> float:
    """Mean over families of their accuracy: each family weighs the same, however many it asks.

    Raises:
        UserError: nothing to score, or lengths that differ.
    """
    return float(np.mean(list(family_accuracy(correct, families).values())))


def _on_one_line(answer: str) -> str:
    """Without white space at the ends; inside, only newlines and tabs become spaces."""
    return answer.replace("\n", " ").replace("\t", " ").strip()


def _strip_punctuation(text: str) -> str:
    """Drops marks that stand beside a space, turns the rest into spaces, keeps decimal points.

    A comma between digits ("1,000") drops every mark: the published code's rule, kept so that the
    figures are comparable.
    """
    groups_digits = re.search(r"\d,\d", text) is not None
    stripped = text
    for mark in _PUNCTUATION:
        beside_space = f"{mark} " in text or f" {mark}" in text
        stripped = stripped.replace(mark, "" if beside_space or groups_digits else " ")
    return _STOP.sub("", stripped, count=MAX_STOPS)
