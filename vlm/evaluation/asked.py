"""What is asked of a split, as the floors and the texts' scores see it."""

from collections.abc import Sequence
from typing import Any

from vlm.data.coverage import answer_coverage
from vlm.data.tables import QuestionTable
from vlm.evaluation.altering import Split
from vlm.evaluation.floors import AskedColumns, best_guesses
from vlm.evaluation.heads import Heads
from vlm.evaluation.predicting import Strings
from vlm.evaluation.scoring import Figures, Scorer, bleu_of


def asked(
    questions: QuestionTable, objects: Sequence[Sequence[dict[str, Any]]] | None
) -> AskedColumns:
    """What the floors see: question, answer, and where known the scene's shapes and colours."""
    facts = None
    if objects is not None:
        of_scene = [tuple(sorted((o["shape"], o["color"]) for o in scene)) for scene in objects]
        facts = [of_scene[scene] for scene in questions.scene_index]
    return AskedColumns(
        list(questions.question), list(questions.answer), list(questions.family), facts
    )


def asked_of(split: Split) -> AskedColumns:
    """What the floors see of a split."""
    return asked(split.questions, split.scenes.objects if split.data.is_drawn else None)


def answers_outside(questions: QuestionTable, heads: Heads) -> float:
    """The share of answered questions whose answer the classifier can't give."""
    return 1 - answer_coverage(questions.answer, set(heads.classifier.answers))


def phrase_bleu(
    phrases: Strings, questions: QuestionTable, train: QuestionTable, scorer: Scorer
) -> Figures:
    """Corpus BLEU-4 of the phrases; beside it, that of the commonest phrase to each question."""
    references = [[text] for text in questions.phrase]
    guesses = best_guesses(list(train.question), list(train.phrase), list(questions.question))
    floor = bleu_of(guesses, references)
    return {**scorer.bleu(list(phrases), references), "bleu4_floor": floor}
