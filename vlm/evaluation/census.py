"""What the drawn splits hold and share, counted as their blocks pass by.

Kept are a hash of each held-out picture, the layouts of test, and how often each distinct thing is
asked; so nothing grows with train.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from vlm.data.drawn import TOLD, Block
from vlm.evaluation.floors import (
    AskedColumns,
    BoolArray,
    floor_correct,
    floor_correct_within_families,
)

TRAIN, TEST = "train", "test"
Asked = Counter[tuple[str, str, str, str | None]]  # question, answer, family, facts


class Census:
    """Counts of all splits. The held-out ones are told first, and train last."""

    def __init__(self, splits: Iterable[str]) -> None:
        self._scenes = dict.fromkeys(splits, 0)
        self._answers: dict[str, Counter[tuple[str, str]]] = {s: Counter() for s in self._scenes}
        self._held_out: dict[bytes, Counter[str]] = {}  # splits of each picture
        self._in_train: set[bytes] = set()  # of these pictures
        self._layouts: Counter[bytes] = Counter()  # of test
        self._known: set[bytes] = set()  # of these layouts, those that train has
        self._asked: dict[str, Asked] = {TRAIN: Counter(), TEST: Counter()}
        self._facts: set[str | None] = set()  # of test

    def add(self, split: str, block: Block) -> None:
        """Count a block."""
        self._scenes[split] += len(block.hashes)
        pictures = block.hashes["picture"].to_pylist()
        layouts = block.hashes["layout"].to_pylist()
        if split == TRAIN:
            self._in_train |= self._held_out.keys() & set(pictures)
            self._known |= self._layouts.keys() & set(layouts)
        else:
            for picture in pictures:
                self._held_out.setdefault(picture, Counter())[split] += 1
        if split == TEST:
            self._layouts.update(layouts)
        columns = [block.asked[name].to_pylist() for name in (*TOLD, "facts", "number")]
        for question, answer, family, facts, number in zip(*columns, strict=True):
            self._answers[split][family, answer] += number
            if split == TEST:
                self._facts.add(facts)
            if split in self._asked:
                # Facts that test lacks teach nothing of it, and there is no end to them.
                known = facts if facts in self._facts else None
                self._asked[split][question, answer, family, known] += number

    def scenes(self, split: str) -> int:
        """How many scenes a split has."""
        return self._scenes[split]

    def questions(self, split: str) -> int:
        """How many questions a split asks."""
        return self._answers[split].total()

    def repeated(self, split: str) -> int:
        """How many of a held-out split's pictures train has, or a split that was told earlier."""
        return sum(
            number[split]
            for picture, number in self._held_out.items()
            if picture in self._in_train or next(iter(number)) != split
        )

    def figures(self) -> dict[str, Any]:
        """All that was counted, ready to be written."""
        splits: dict[str, Any] = {
            split: {
                "scenes": scenes,
                "questions": self.questions(split),
                "answers": _shares(self._answers[split]),
            }
            for split, scenes in self._scenes.items()
        }
        held_out = [split for split in self._scenes if split != TRAIN]
        for split in held_out:
            in_train = sum(self._held_out[picture][split] for picture in self._in_train)
            splits[split]["pictures_also_in_train"] = in_train
        known = sum(self._layouts[layout] for layout in self._known)
        return {
            **splits,
            "duplicate_pictures_across_splits": sum(map(self.repeated, held_out)),
            "test_layouts_in_train": known / self._layouts.total(),
            **self._learnable(),
        }

    def _learnable(self) -> dict[str, Any]:
        """What train alone, without a look at question or picture, says of test."""
        train, test = (_columns(self._asked[split]) for split in (TRAIN, TEST))
        answered = set(train.answers)
        strange = [answer not in answered for answer in test.answers]
        within = floor_correct_within_families(train, test)
        floors: dict[str, Any] = {
            name: _share(correct, test)
            for name, correct in floor_correct(train, test, families_alike=False).items()
        }
        floors["by_family"] = {
            name: {family: _share(correct, test, family) for family in dict.fromkeys(test.families)}
            for name, correct in within.items()
        }
        return {"floors": floors, "test_answers_not_in_train": _share(strange, test)}


def _columns(asked: Asked) -> AskedColumns:
    questions, answers, families, facts = zip(*asked, strict=True)
    return AskedColumns(questions, answers, families, facts, list(asked.values()))


def _share(chosen: BoolArray | list[bool], of: AskedColumns, family: str | None = None) -> float:
    """How large a part of the questions, or of a family's, is chosen."""
    rows = list(zip(chosen, of.weights or (), of.families, strict=True))
    mine = [(chosen, number) for chosen, number, name in rows if family in (None, name)]
    return float(sum(n for chosen, n in mine if chosen) / sum(n for _, n in mine))


def _shares(answers: Counter[tuple[str, str]]) -> dict[str, dict[str, float]]:
    """How often each answer occurs among the questions of a family."""
    totals: Counter[str] = Counter()
    for (family, _), number in answers.items():
        totals[family] += number
    shares: dict[str, dict[str, float]] = {family: {} for family in totals}
    for (family, answer), number in answers.items():
        shares[family][answer] = number / totals[family]
    return shares
