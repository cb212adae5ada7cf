"""What a guesser scores who sees no picture, or no question: the floors under an accuracy.

Each floor is learned on train and answers the test questions, and comes back question by question,
so that the caller averages it, by family or not, and puts an interval on it exactly as for a model.

- `majority`: the commonest answer of all.
- `question_only`: the commonest answer to this very question.
- `image_only`: the commonest answer about scenes of these shapes and colours, whatever is asked.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vlm.errors import UserError

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class AskedColumns:
    """The columns that the floors learn from, one entry a question.

    Attributes:
        questions: The text of each question.
        answers: Its answer.
        families: Its family.
        facts: A hashable key of its scene, such as the sorted (shape, colour) pairs, without
            positions; None where nobody knows them (own pictures), and then there is no
            `image_only` floor.
    """

    questions: Sequence[str]
    answers: Sequence[str]
    families: Sequence[str]
    facts: Sequence[Hashable] | None = None

    def __post_init__(self) -> None:
        """Refuses columns of different lengths."""
        columns = [self.questions, self.answers, self.families]
        lengths = [len(c) for c in (*columns, *([] if self.facts is None else [self.facts]))]
        if len(set(lengths)) > 1:
            raise UserError(f"question table columns differ in length: {lengths}")

    def of_family(self, family: str) -> "AskedColumns":
        """The rows of one family."""
        rows = [i for i, name in enumerate(self.families) if name == family]
        return AskedColumns(
            [self.questions[i] for i in rows],
            [self.answers[i] for i in rows],
            [family] * len(rows),
            None if self.facts is None else [self.facts[i] for i in rows],
        )


def majority(train_answers: Sequence[str], test_answers: Sequence[str]) -> BoolArray:
    """Answers every question with the commonest train answer.

    Example: `majority(["yes", "yes", "no"], ["no", "yes"])` is `[False, True]`.

    Returns:
        (Q,) whether each test question is answered right.

    Raises:
        UserError: nothing to learn from.
    """
    guess = _commonest(train_answers)
    return np.array([answer == guess for answer in test_answers], dtype=np.bool_)


def question_only(
    train_questions: Sequence[str],
    train_answers: Sequence[str],
    test_questions: Sequence[str],
    test_answers: Sequence[str],
) -> BoolArray:
    """Answers with the commonest train answer to the same question, else the commonest of all.

    Returns:
        (Q,) whether each test question is answered right.

    Raises:
        UserError: nothing to learn from, or columns of different lengths.
    """
    return _lookup(train_questions, train_answers, test_questions, test_answers)


def image_only(
    train_facts: Sequence[Hashable],
    train_answers: Sequence[str],
    test_facts: Sequence[Hashable],
    test_answers: Sequence[str],
) -> BoolArray:
    """Answers with the commonest train answer about like scenes, else the commonest of all.

    Returns:
        (Q,) whether each test question is answered right.

    Raises:
        UserError: nothing to learn from, or columns of different lengths.
    """
    return _lookup(train_facts, train_answers, test_facts, test_answers)


def best_guesses(
    train_keys: Sequence[Hashable], train_answers: Sequence[str], test_keys: Sequence[Hashable]
) -> list[str]:
    """The commonest train answer to each test key; for a key unseen, the commonest of all.

    Raises:
        UserError: nothing to learn from.
    """
    overall = _commonest(train_answers)
    answers_of: dict[Hashable, list[str]] = defaultdict(list)
    for key, answer in zip(train_keys, train_answers, strict=True):
        answers_of[key].append(answer)
    best = {key: _commonest(answers) for key, answers in answers_of.items()}
    return [best.get(key, overall) for key in test_keys]


def floor_correct(train: AskedColumns, test: AskedColumns) -> dict[str, BoolArray]:
    """All floors, learned over all families together: what belongs beside an overall accuracy.

    Returns:
        For `majority`, `question_only` and, where both tables have facts, `image_only`: (Q,)
        whether each test question is answered right.

    Raises:
        UserError: nothing to learn from.
    """
    floors = {
        "majority": majority(train.answers, test.answers),
        "question_only": question_only(
            train.questions, train.answers, test.questions, test.answers
        ),
    }
    if train.facts is not None and test.facts is not None:
        floors["image_only"] = image_only(train.facts, train.answers, test.facts, test.answers)
    return floors


def floor_correct_within_families(train: AskedColumns, test: AskedColumns) -> dict[str, BoolArray]:
    """All floors, learned anew for each family: what belongs beside a family's accuracy.

    A guesser who may know the family is a harder floor than one who may not ("yes" to all that
    can be answered so). A family that train lacks is answered wrong.

    Returns:
        As `floor_correct`, in the order of the test questions.
    """
    has_facts = train.facts is not None and test.facts is not None
    names = ["majority", "question_only", *(["image_only"] if has_facts else [])]
    floors = {name: np.zeros(len(test.answers), dtype=np.bool_) for name in names}
    labels = np.asarray(test.families)
    for family in sorted(set(test.families) & set(train.families)):
        within = floor_correct(train.of_family(family), test.of_family(family))
        for name, correct in within.items():
            floors[name][labels == family] = correct
    return floors


def _lookup(
    train_keys: Sequence[Hashable],
    train_answers: Sequence[str],
    test_keys: Sequence[Hashable],
    test_answers: Sequence[str],
) -> BoolArray:
    """Answers with the commonest train answer of the key, else the commonest of all."""
    if len(train_keys) != len(train_answers) or len(test_keys) != len(test_answers):
        raise UserError(
            f"got {len(train_keys)} train keys for {len(train_answers)} answers and "
            f"{len(test_keys)} test keys for {len(test_answers)} answers"
        )
    guesses = best_guesses(train_keys, train_answers, test_keys)
    return np.array([g == a for g, a in zip(guesses, test_answers, strict=True)], dtype=np.bool_)


def _commonest(answers: Sequence[str]) -> str:
    """The most frequent answer; of several, the first in the alphabet, so that runs agree."""
    if len(answers) == 0:
        raise UserError("a floor needs at least 1 train answer, got 0")
    counts = Counter(answers)
    return min(counts, key=lambda answer: (-counts[answer], answer))
