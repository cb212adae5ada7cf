"""Scores on scenes drawn besides the splits: every question weighs the same.

A test split of a few hundred questions leaves an interval of several points; a synthetic world can
be asked for as many more as one likes.
"""

from collections.abc import Mapping

from vlm.data.drawn import picture_hash
from vlm.data.tables import Images
from vlm.evaluation.floors import AskedColumns, floor_correct_within_families
from vlm.evaluation.scoring import Bools, Figures, Scorer, lift, score_floors_per_question
from vlm.evaluation.vqa_metrics import family_accuracy


def score_fresh(
    scorer: Scorer, right: Mapping[str, Bools], train: AskedColumns, fresh: AskedColumns
) -> Figures:
    """The floors under a share of all questions, and each head's share of right answers.

    Args:
        scorer: of the fresh questions.
        right: by head, whether each of its answers is right.
        train: what the floors learn from.
        fresh: what they answer.
    """
    floors = score_floors_per_question(scorer, train, fresh)
    within = floor_correct_within_families(train, fresh)
    figures: Figures = {
        **floors,
        "floors_by_family": {
            name: family_accuracy(correct, fresh.families) for name, correct in within.items()
        },
    }
    for head, correct in right.items():
        share = scorer.per_question("exact_match", correct)
        figures[head] = {
            **share,
            "lift": lift(share["exact_match"], floors),
            **scorer.by_family(correct),
        }
    return figures


def count_shared(images: Images, others: Images) -> int:
    """How many of the pictures (N, C, H, W) are, pixel for pixel, among others."""
    known = {picture_hash(image) for image in others}
    return sum(picture_hash(image) in known for image in images)
