"""What a guesser scores who sees no picture, or no question: the floors under an accuracy.

Each floor is learned on train and answers the test questions, and comes back question by question,
so that the caller averages it, by family or not, and puts an interval on it exactly as for a model.

- `majority`: the commonest answer of all.
- `question_only`: the commonest answer to this very question.
- `image_only`: the commonest answer about scenes of these shapes and colours, whatever is asked.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
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
        weights: how often each row counts; None for once.
    """

    questions: Sequence[str]
    answers: Sequence[str]
    families: Sequence[str]
    facts: Sequence[Hashable] | None = None
    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        """Refuses columns of different lengths."""
        columns = [self.questions, self.answers, self.families]
        more = [column for column in (self.facts, self.weights) if column is not None]
        lengths = [len(column) for column in (*columns, *more)]
        if len(set(lengths)) > 1:
            raise UserError(f"question table columns differ in length: {lengths}")

    def of_family(self, family: str) -> "AskedColumns":
        """The rows of one family."""
        return self.of_rows([i for i, name in enumerate(self.families) if name == family])

    def of_rows(self, rows: Iterable[int]) -> "AskedColumns":
        """Some of the rows."""
        chosen = list(rows)
        return AskedColumns(
            [self.questions[i] for i in chosen],
            [self.answers[i] for i in chosen],
            [self.families[i] for i in chosen],
            None if self.facts is None else [self.facts[i] for i in chosen],
            None if self.weights is None else [self.weights[i] for i in chosen],
        )

    def condensed(self) -> "AskedColumns":
        """Each distinct row once, weighing as much as all its copies: as good to learn from."""
        facts = [None] * len(self.answers) if self.facts is None else self.facts
        rows = zip(self.questions, self.answers, self.families, facts, strict=True)
        counts: Counter[tuple[str, str, str, Hashable]] = Counter()
        if self.weights is None:
            counts.update(rows)
        else:
            for row, weight in zip(rows, self.weights, strict=True):
                counts[row] += weight  # pyright: ignore[reportArgumentType]
        questions, answers, families, known = zip(*counts, strict=True) if counts else ((),) * 4
        weights = list(counts.values())
        return AskedColumns(
            questions, answers, families, None if self.facts is None else known, weights
        )


def best_guesses(
    train_keys: Sequence[Hashable],
    train_answers: Sequence[str],
    test_keys: Sequence[Hashable],
    weights: Sequence[float] | None = None,
) -> list[str]:
    """The commonest train answer to each test key; for a key unseen, the commonest of all.

    Example: `best_guesses(["a", "a", "b"], ["no", "no", "yes"], ["b", "c"])` is `["yes", "no"]`.
    Of several answers equally common the first in the alphabet is taken, so that runs agree.

    Args:
        train_keys, train_answers: what is learned, row by row.
        test_keys: what is guessed.
        weights: of each train row; None for 1 each.

    Raises:
        UserError: nothing to learn from, or columns of different lengths.
    """
    if not len(train_keys) or len(train_keys) != len(train_answers):
        raise UserError(
            f"a floor needs at least 1 train row, and a key for each answer:"
            f" got {len(train_keys)} keys and {len(train_answers)} answers"
        )
    votes: dict[Hashable, Counter[str]] = defaultdict(Counter)
    overall: Counter[str] = Counter()
    for key, answer, weight in zip(
        train_keys, train_answers, weights or [1] * len(train_keys), strict=True
    ):
        votes[key][answer] += weight  # pyright: ignore[reportArgumentType]
        overall[answer] += weight  # pyright: ignore[reportArgumentType]
    best = {key: _commonest(counts) for key, counts in votes.items()}
    commonest = _commonest(overall)
    return [best.get(key, commonest) for key in test_keys]


def floor_correct(
    train: AskedColumns, test: AskedColumns, *, families_alike: bool = True
) -> dict[str, BoolArray]:
    """All floors, learned over all families together: what belongs beside an overall accuracy.

    Args:
        train: what the guesser has seen.
        test: what it is asked.
        families_alike: learn for an accuracy in which families weigh the same, however many
            questions each has; False learns for one in which questions do.

    Returns:
        For `majority`, `question_only` and, where both tables have facts, `image_only`: (Q,)
        whether each test question is answered right.

    Raises:
        UserError: nothing to learn from.
    """
    weights = [1.0] * len(train.answers) if train.weights is None else train.weights
    if families_alike:
        sizes: dict[str, float] = defaultdict(float)
        for family, weight in zip(train.families, weights, strict=True):
            sizes[family] += weight
        pairs = zip(train.families, weights, strict=True)
        weights = [weight / sizes[family] for family, weight in pairs]
    keys: dict[str, tuple[Sequence[Hashable], Sequence[Hashable]]] = {
        "majority": ([None] * len(train.answers), [None] * len(test.answers)),
        "question_only": (train.questions, test.questions),
    }
    if train.facts is not None and test.facts is not None:
        keys["image_only"] = (train.facts, test.facts)
    floors = {}
    for name, (seen, asked) in keys.items():
        guesses = best_guesses(seen, train.answers, asked, weights)
        pairs = zip(guesses, test.answers, strict=True)
        floors[name] = np.array([guess == answer for guess, answer in pairs], dtype=np.bool_)
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


def _commonest(votes: Counter[str]) -> str:
    """The answer with the most votes; rounding must not decide between equals."""
    return min(votes, key=lambda answer: (-round(votes[answer], 9), answer))
