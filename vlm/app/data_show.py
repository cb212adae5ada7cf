"""`vlm data show`: a sheet of a split's first scenes, and how its answers are spread."""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from vlm.app.targets import check_writable, unwritable
from vlm.config.data import DataConfig
from vlm.config.schema import Params
from vlm.data.drawn import draw, tell
from vlm.data.joined import read_told
from vlm.data.shards import decode_picture
from vlm.errors import UserError
from vlm.files import atomic_path
from vlm.reporting.contact_sheet import NO_ANSWER, Asked, Card, contact_sheet
from vlm.scenes.asking import draw_questions
from vlm.scenes.out_of_distribution import SPLIT as UNLIKE
from vlm.scenes.out_of_distribution import sample_unlike
from vlm.scenes.sampler import sample_scenes
from vlm.scenes.scene import Scenes

OWN = Path("data")  # of the splits that the stages read
COUNTED = 2000  # scenes whose answers are counted
ANSWERS, WIDEST = 6, 24  # of a family that are printed, and characters of one


class Seen(NamedTuple):
    """The first scenes of a split, and the family and answer of each question of some more."""

    title: str
    cards: list[Card]
    scenes: int  # whose answers were counted
    answers: Counter[tuple[str, str | None]]


def show(
    params: Params, split: str, count: int, seed: int | None, out: Path, data: Path | None
) -> str:
    """Write the sheet, and say how the answers are spread.

    Args:
        params: say what the world is, and whether it is one's own data.
        split: whose scenes.
        count: how many of them are shown, where there are so many.
        seed: of the drawn scenes; that of `params` if not given.
        out: the sheet, a PNG.
        data: the folder to read the split from; drawn in memory if not given, where it can be.

    Raises:
        UserError: A split that isn't there, tables that are damaged, a seed for what isn't drawn,
            or a path that can't be written.
    """
    check_writable(out)
    if data is None and not params.data.is_drawn:
        data = OWN
    if data is None:
        seen = drawn(params.data, params.seed if seed is None else seed, split, count)
    elif seed is not None:
        raise UserError(f"--seed: got {seed}, expected none where scenes are read from {data}")
    else:
        seen = from_disk(data / split, count)
    try:
        with atomic_path(out) as partial:
            partial.write_bytes(contact_sheet(seen.title, seen.cards))
    except OSError as error:
        raise unwritable(out, error) from error
    asked = sum(len(card.questions) for card in seen.cards)
    lines = [
        f"{out}: {seen.title}: {len(seen.cards):,} scenes with {asked:,} questions",
        f"the answers in the first {seen.scenes:,} scenes:",
        *shares(seen.answers),
    ]
    return "\n".join(lines)


def drawn(data: DataConfig, seed: int, split: str, count: int) -> Seen:
    """The first scenes of a split as `generate` would write them, drawn in memory."""
    counted = _sample(data, seed, split, count)
    if not len(counted):
        raise UserError(f"--split: got {split}, which has no scenes, expected one that has some")
    if split == UNLIKE:
        split_drawn = tell(data, seed, split, counted[:count])
    else:
        split_drawn = draw(data, seed, split, min(count, len(counted)))
    scenes, questions = split_drawn.tables()
    columns = (questions.family, questions.question, questions.answer)
    asked = zip(questions.scene_index.tolist(), *(c.tolist() for c in columns), strict=True)
    by_scene = {
        scene: [Asked(*row[1:]) for row in rows]
        for scene, rows in groupby(asked, lambda row: row[0])
    }
    cards = [
        Card(scene_id, scenes.images[row], scenes.captions[row], by_scene.get(row, []))
        for row, scene_id in enumerate(scenes.scene_id.tolist())
    ]
    every = draw_questions(data, counted, seed, split)
    answers = Counter(zip(every.family.tolist(), every.answer.tolist(), strict=True))
    return Seen(f"{split}, drawn with seed {seed}", cards, len(counted), answers)


def _sample(data: DataConfig, seed: int, split: str, count: int) -> Scenes:
    """The scenes whose answers are counted; those of the sheet come first."""
    sizes = {"train": data.train_scenes, "val": data.val_scenes, "test": data.test_scenes}
    names = (*sizes, UNLIKE)
    if split not in names:
        raise UserError(f"--split: got {split}, expected one of {', '.join(names)}")
    if split != UNLIKE:
        return sample_scenes(data.world, seed, split, min(sizes[split], max(COUNTED, count)))
    # The first half are of one kind, so that the first `count` of twice as many are the split's.
    return sample_unlike(data.world, seed, min(data.test_ood_scenes, max(COUNTED, 2 * count)))


def from_disk(folder: Path, count: int) -> Seen:
    """The first scenes of a split's tables; no more of them is read than is shown or counted.

    Raises:
        UserError: Tables that are missing or damaged.
    """
    cards: list[Card] = []
    answers: Counter[tuple[str, str | None]] = Counter()
    scenes = 0
    try:
        for card, asked in _read(folder, count):
            scenes += 1
            cards += [card] if card is not None else []
            answers.update((question.family, question.answer) for question in asked)
            if scenes >= max(COUNTED, count):
                break
    except UserError as error:
        if any(folder.glob("scenes-*.parquet")):
            raise
        raise UserError(f"{error}; run the stage generate first") from error
    return Seen(f"{folder}", cards, scenes, answers)


def _read(folder: Path, count: int) -> Iterator[tuple[Card | None, list[Asked]]]:
    """Scene by scene the questions, and of the first `count` the card."""
    number = 0
    for told in read_told(folder):
        table = told.questions
        columns = [table[name].to_pylist() for name in ("family", "question", "answer")]
        rows = zip(table["scene_id"].to_pylist(), *columns, strict=True)
        asked: dict[int, list[Asked]] = {}
        for scene_id, family, question, answer in rows:
            asked.setdefault(scene_id, []).append(Asked(family or "", question or "", answer))
        for row, scene_id in enumerate(told.scenes["scene_id"].to_pylist()):
            card, questions = None, asked.get(scene_id, [])
            if number < count:
                scene = told.scenes.slice(row, 1).to_pylist()[0]
                encoded = (scene["image"] or {}).get("bytes")
                picture = decode_picture(encoded, told.path, told.first + row).transpose(2, 0, 1)
                card = Card(scene_id, picture, scene["captions"] or [], questions)
            number += 1
            yield card, questions


def shares(answers: Counter[tuple[str, str | None]]) -> list[str]:
    """A line for each family, in the order of their names: its questions, its commonest answers."""
    rows = [("family", "questions", "answers")]
    for family in sorted({family for family, _ in answers}):
        mine = Counter({answer: n for (name, answer), n in answers.items() if name == family})
        rows.append((family or "-", f"{mine.total():,}", _commonest(mine)))
    if len(rows) == 1:
        return ["no questions"]
    name, number = (max(len(row[column]) for row in rows) for column in (0, 1))
    return [f"{row[0]:{name}}  {row[1]:>{number}}  {row[2]}" for row in rows]


def _commonest(answers: Counter[str | None]) -> str:
    total = answers.total()
    ordered = sorted(answers.items(), key=lambda item: (-item[1], item[0] is None, item[0] or ""))
    told = [(NO_ANSWER if answer is None else _short(answer), n) for answer, n in ordered]
    if len(told) > ANSWERS:
        rest = told[ANSWERS - 1 :]
        told = [*told[: ANSWERS - 1], (f"{len(rest):,} others", sum(n for _, n in rest))]
    return ", ".join(f"{answer} {n / total:.0%}" for answer, n in told)


def _short(answer: str) -> str:
    """An answer in a few printable characters."""
    line = "".join(c if c.isprintable() else "\ufffd" for c in " ".join(answer.split()))
    return line if len(line) <= WIDEST else line[: WIDEST - 1] + "…"
