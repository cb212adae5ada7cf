"""A split of imported pictures under way: rows on their way to the tables, and what they hold."""

from collections import Counter, defaultdict
from typing import Any, get_args

import pyarrow as pa

from vlm.data.importers.rows import Found, SplitName
from vlm.data.schema import QUESTIONS, SCENES
from vlm.data.writing import Part, SplitWriter, image_column

SPLITS: tuple[SplitName, ...] = get_args(SplitName)
PART_PICTURES, PART_BYTES = 256, 4 << 20  # rows that wait for the writer, at most
TOP_ANSWERS, TOP_FAMILIES = 20, 100  # that the metrics name, the most frequent ones


class ImportedSplit:
    """Takes pictures one by one, writes them in parts, and counts."""

    def __init__(self, writer: SplitWriter) -> None:
        self._writer = writer
        self._pngs: list[bytes] = []
        self._names: list[str] = []
        self._captions: list[list[str]] = []
        self._questions: list[dict[str, Any]] = []
        self._waiting = 0  # bytes
        self._counts: Counter[str] = Counter()
        self.num_scenes = 0
        self.pictures: Counter[bytes] = Counter()  # by the hash of their pixels
        self.families: Counter[str] = Counter()
        self.answers: defaultdict[str, Counter[str]] = defaultdict(Counter)  # by family

    def add(self, found: Found, name: str, encoded: bytes, digest: bytes) -> None:
        """Add a picture by name and as PNG, the hash of its pixels, and what is said and asked."""
        captions = captions_of(found)
        for asked in found.asked:
            phrase = asked.answer if asked.phrase is None else asked.phrase
            self._questions.append(
                {
                    "scene_id": len(self._pngs),
                    "family": asked.family,
                    "question": asked.question,
                    "answer": asked.answer,
                    "phrase": phrase,
                    "answers": list(asked.answers),
                }
            )
            self.families[asked.family] += 1
            if asked.answer is not None:
                self.answers[asked.family][asked.answer] += 1
        self._pngs.append(encoded)
        self._names.append(name)
        self._captions.append(captions)
        self._counts["captions"] += len(captions)
        self.pictures[digest] += 1
        self.num_scenes += 1
        self._waiting += len(encoded)
        if len(self._pngs) == PART_PICTURES or self._waiting >= PART_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand on what waits."""
        if not self._pngs:
            return
        scenes = {
            "image": image_column(self._pngs, self._names),
            "objects": [[]] * len(self._pngs),
            "captions": self._captions,
            # Equal texts state the same facts; more isn't known.
            "caption_keys": [[text.lower() for text in texts] for texts in self._captions],
        }
        questions = pa.Table.from_pylist(self._questions, QUESTIONS.remove(0))
        self._writer.add(Part(pa.table(scenes, SCENES.remove(0)), questions))
        self._pngs, self._names, self._captions, self._questions = [], [], [], []
        self._waiting = 0

    def metrics(self) -> dict[str, Any]:
        """What the split holds."""
        asked, answered = self.families.total(), sum(c.total() for c in self.answers.values())
        families = self.families.most_common(TOP_FAMILIES)
        return {
            "scenes": self.num_scenes,
            "captions": self._counts["captions"],
            "questions": asked,
            "unanswered_questions": asked - answered,
            "families": dict(families),
            "answers": {name: _shares(self.answers[name]) for name, _ in families},
        }


def captions_of(found: Found) -> list[str]:
    """The source's captions; where it has none, each question with its answer stands in.

    Of a picture whose answers are all withheld, the questions alone do: a picture without any text
    is of no use to the stages that compare pictures with texts.
    """
    if found.captions:
        return list(found.captions)
    told = [f"{asked.question} {asked.answer}" for asked in found.asked if asked.answer is not None]
    return list(dict.fromkeys(told or [asked.question for asked in found.asked]))


def across_splits(splits: dict[SplitName, ImportedSplit]) -> dict[str, Any]:
    """The metrics of each split, and how they relate."""
    metrics: dict[str, Any] = {name: split.metrics() for name, split in splits.items()}
    known = {answer for answers in splits["train"].answers.values() for answer in answers}
    seen: set[bytes] = set()
    repeated = 0
    for name, split in splits.items():
        counts = Counter[str]()
        for answers in split.answers.values():
            counts.update(answers)
        if name != "train" and counts:
            covered = sum(number for answer, number in counts.items() if answer in known)
            metrics[name]["answers_in_train"] = covered / counts.total()
        repeated += sum(number for digest, number in split.pictures.items() if digest in seen)
        seen |= split.pictures.keys()
    metrics["duplicate_pictures_across_splits"] = repeated
    return metrics


def _shares(answers: Counter[str]) -> dict[str, float]:
    """How often each of the most frequent answers occurs; ties in their order of appearance."""
    return {answer: number / answers.total() for answer, number in answers.most_common(TOP_ANSWERS)}
