"""Two runs question by question: the table, the page, and the JSON."""

import textwrap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vlm.app.sides import TEST, Side, local_path, local_split, read_side, split_of
from vlm.app.targets import check_writable, unwritable
from vlm.data.tables import read_questions, read_scenes
from vlm.errors import UserError
from vlm.evaluation.comparing import (
    DIRECTIONS,
    HEADS,
    Comparison,
    changes,
    compare_captions,
    compare_questions,
    compare_retrieval,
    recall_column,
)
from vlm.evaluation.intervals import DEFAULT_CONFIDENCE, DEFAULT_RESAMPLES
from vlm.evaluation.pairing import Pair, pair_rows
from vlm.files import write_json, write_text
from vlm.reporting.comparison import ABOUT_P, Compared, build_page
from vlm.reporting.pictures import Pixels

SEED = 0  # of the resamples


def compare(a: str, b: str, page: Path, limit: int, json: Path | None) -> tuple[str, list[str]]:
    """Compare two sides, and write the page and the JSON.

    Args:
        a: A path, `workspace`, or a revision, in this order; see `read_side`.
        b: Likewise.
        page: Where the HTML goes.
        limit: Cards a head and a kind of change.
        json: Where the same figures go; None for nowhere.

    Returns:
        The table with what changed, and remarks on what could not be compared.

    Raises:
        UserError: A side that isn't there or can't be read, sides of different test splits, or a
            page or JSON that can't be written or would overwrite what is read.
    """
    targets = {"--out": page} if json is None else {"--out": page, "--json": json}
    _check_targets(targets, {"side A": a, "side B": b})
    side_a, side_b = read_side(a), read_side(b)
    pairs, captions = pair_rows(
        (side_a.questions, side_b.questions), (side_a.captions or (), side_b.captions or ())
    )
    asked = len(side_a.questions), len(side_b.questions)
    if 2 * len(pairs) < min(asked):
        raise UserError(
            f"{a}, {b}: got {len(pairs)} questions in common among {asked[0]} and {asked[1]},"
            " expected at least half of the smaller side's"
        )
    of_captions, remarks = _caption_figures(side_a, side_b, captions)
    figures = compare_questions(pairs, DEFAULT_RESAMPLES, SEED) + of_captions
    compared = Compared(
        a,
        b,
        pairs,
        asked[0] - len(pairs),
        asked[1] - len(pairs),
        figures,
        {head.name: changes(pairs, head) for head in HEADS},
        read_pictures(b, pairs),
    )
    _write(page, json, compared, limit)
    table = figure_table(figures, a, b)
    return f"{table}\n\n{_changed(compared)}\nPage: {page}", _remarks(compared, remarks)


def read_pictures(name: str, pairs: Sequence[Pair]) -> dict[int, Pixels]:
    """The pictures of the pairs' scenes by id: of side B, else of the workspace, else none.

    Scenes of every split are numbered alike, so that a split counts as the pairs' only where it
    asks the same questions about them.
    """
    with TemporaryDirectory() as scratch:
        for folder in (split_of(name, Path(scratch)), Path(TEST)):
            # Missing or damaged tables, which `make` mends; the page does without pictures.
            with suppress(UserError):
                if _asks(folder, pairs):
                    scenes = read_scenes(folder)
                    wanted = {pair.b["scene_id"] for pair in pairs}
                    places = zip(scenes.scene_id.tolist(), scenes.images, strict=True)
                    return {scene: image for scene, image in places if scene in wanted}
    return {}


def figure_table(figures: Sequence[Comparison], a: str, b: str) -> str:
    """A line for each figure: both sides, their difference with its interval, and the tests."""
    header = ["figure", f"A: {a}", f"B: {b}", "B - A", "95% interval"]
    rows = [[*header, "only A", "only B", "p", "p, Holm"]]
    for one in figures:
        counts = ["-" if count is None else str(count) for count in (one.only_a, one.only_b)]
        tests = ["-" if p is None else f"{p:.3g}" for p in (one.p, one.p_holm)]
        ends = f"[{one.interval.low:+z.4f}, {one.interval.high:+z.4f}]"
        values = [f"{one.a:.4f}", f"{one.b:.4f}", f"{one.difference:+z.4f}", ends]
        rows.append([one.name, *values, *counts, *tests])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join(lines)


def as_json(compared: Compared) -> dict[str, Any]:
    """The table's figures, and the counts of what changed."""
    metrics = {}
    for one in compared.figures:
        known = {key: value for key, value in asdict(one).items() if value is not None}
        low, high = known.pop("interval")
        del known["name"]
        metrics[one.name] = known | {"difference": one.difference, "low": low, "high": high}
    return {
        "a": compared.name_a,
        "b": compared.name_b,
        "questions": len(compared.pairs),
        "pictures": compared.num_pictures,
        "only_in_a": compared.only_in_a,
        "only_in_b": compared.only_in_b,
        "metrics": metrics,
        "changed": {
            head: {kind: len(pairs) for kind, pairs in vars(found).items()}
            for head, found in compared.changes.items()
        },
        "bootstrap": {
            "confidence": DEFAULT_CONFIDENCE,
            "resamples": DEFAULT_RESAMPLES,
            "seed": SEED,
        },
    }


def _changed(compared: Compared) -> str:
    lines = [*textwrap.wrap(ABOUT_P, 100), ""]
    asked = f"{len(compared.pairs):,} questions on {compared.num_pictures:,} pictures"
    for head, found in compared.changes.items():
        lines.append(
            f"{head}: {len(found)} of {asked} changed: {len(found.lost)} lost,"
            f" {len(found.still_wrong)} still wrong, {len(found.gained)} gained"
        )
    return "\n".join(lines)


def _remarks(compared: Compared, of_captions: Sequence[str]) -> list[str]:
    remarks = []
    for side, count in (("A", compared.only_in_a), ("B", compared.only_in_b)):
        if count:
            remarks.append(f"{count:,} questions only in {side} are left out")
    remarks += of_captions
    if not compared.pictures:
        remarks.append("no pictures: no test split at hand asks these questions")
    return remarks


def _caption_figures(a: Side, b: Side, pairs: Sequence[Pair]) -> tuple[list[Comparison], list[str]]:
    """The figures over captions, and remarks on those that are left out."""
    lacking = _lacking(a.captions is not None, b.captions is not None)
    if lacking or not pairs:
        reason = lacking or "the sides have none of the same scenes"
        return [], [f"captions are left out: {reason}"]
    figures, remarks = [compare_captions(pairs, DEFAULT_RESAMPLES, SEED)], []
    scenes = {pair.a["scene_id"] for pair in pairs}
    for direction in DIRECTIONS:
        column = recall_column(direction)
        searched = a.gallery(column)
        lacking = _lacking(bool(searched), bool(b.gallery(column)))
        if lacking:
            remarks.append(f"{column} is left out: {lacking}")
        elif searched != b.gallery(column) or not searched <= scenes:
            # A hit among other pictures is harder or easier, whatever the model.
            remarks.append(f"{column} is left out: the sides have different galleries")
        else:
            queries = [pair for pair in pairs if pair.a["scene_id"] in searched]
            figures.append(compare_retrieval(queries, direction, DEFAULT_RESAMPLES, SEED))
    return figures, remarks


def _lacking(in_a: bool, in_b: bool) -> str:
    """Which sides lack something, in words; empty where both have it."""
    if not (in_a or in_b):
        return "neither side has any"
    return "" if in_a and in_b else f"side {'B' if in_a else 'A'} has none"


def _check_targets(targets: Mapping[str, Path], sides: Mapping[str, str]) -> None:
    """Refuse, before the work, to write over what is read, twice to one path, or where none can."""
    taken: dict[Path, str] = {}
    for side, name in sides.items():
        path = local_path(name)
        for file in [] if path is None else [path, *_tables(path), *_tables(local_split(path))]:
            taken.setdefault(file.resolve(), side)
    for file in _tables(Path(TEST)):
        taken.setdefault(file.resolve(), "the workspace")
    for option, path in targets.items():
        owner = taken.setdefault(path.resolve(), option)
        if owner != option:
            raise UserError(f"{option}: got {path}, expected a path of its own, not {owner}'s")
        check_writable(path)


def _tables(folder: Path) -> list[Path]:
    return list(folder.glob("*.parquet"))


def _write(page: Path, json: Path | None, compared: Compared, limit: int) -> None:
    path = page
    try:
        write_text(page, build_page(compared, limit))
        if json is not None:
            path = json
            write_json(json, as_json(compared), decimals=None)
    except OSError as error:
        raise unwritable(path, error) from error


def _asks(folder: Path, pairs: Sequence[Pair]) -> bool:
    """Whether a split asks every question of the pairs, about the same scene."""
    table = read_questions(folder)
    columns = (table.scene_id.tolist(), table.question_id.tolist(), table.question, table.answer)
    known = set(zip(*columns, strict=True))
    names = ("scene_id", "question_id", "question", "answer")
    return all(tuple(pair.b[name] for name in names) in known for pair in pairs)
