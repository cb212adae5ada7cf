"""Reading for training: the same batches whether pictures fit memory or not, one window held."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm.data import order, png, windows, writing
from vlm.data.loading import EVERY, CaptionData, QuestionBatch, QuestionData
from vlm.data.order import Layout, PictureOrder
from vlm.data.schema import QUESTIONS, SCENES
from vlm.data.shards import Pictures, row_groups
from vlm.data.tables import (
    Questions,
    iterate_captions,
    iterate_questions,
    read_questions,
    read_scenes,
)
from vlm.data.tokenizer import TextTokenizer
from vlm.data.windows import Windows
from vlm.data.writing import write_questions, write_scenes
from vlm.errors import UserError

N, BATCH = 90, 4
WORDS = [f"w{number}" for number in range(13)]
TOKENIZER = TextTokenizer.fit(WORDS)
Shared = Windows[CaptionData] | Windows[QuestionData]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of a few pictures, shards of a few groups, windows of a few groups."""
    monkeypatch.setattr(writing, "GROUP_BYTES", 1200)
    monkeypatch.setattr(writing, "SHARD_BYTES", 8000)
    monkeypatch.setattr(order, "WINDOW_BYTES", 3000)
    monkeypatch.setattr(order, "WINDOW_BATCHES", 3)


def write(folder: Path, n: int = N) -> Path:
    """n noisy pictures with 1 to 3 captions and 0 to 4 questions each."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (n, 1, 8, 10), np.uint8)
    captions = [
        [f"{WORDS[i % 13]} {WORDS[(i + k) % 7]}" for k in range(1 + i % 3)] for i in range(n)
    ]
    keys = [[WORDS[i % 5]] * len(texts) for i, texts in enumerate(captions)]
    write_scenes(folder, [images], [[]] * n, captions, keys)
    scene = np.repeat(np.arange(n), rng.integers(0, 5, n))
    asked, answers, phrases = (
        [" ".join(rng.choice(WORDS, 1 + i % 3)) for i in range(len(scene))] for _ in range(3)
    )
    write_questions(folder, scene, ["f"] * len(scene), asked, answers, phrases)
    return folder


def captions(folder: Path, memory: int) -> Windows[CaptionData]:
    return Windows(folder, lambda scenes: CaptionData(scenes, TOKENIZER, 8), memory)


def questions(folder: Path, memory: int) -> Windows[QuestionData]:
    asked = Questions(folder)
    return Windows(
        folder,
        lambda scenes: QuestionData(scenes, asked.of(scenes.scene_id), TOKENIZER, 8, WORDS),
        memory,
    )


def batch(data: Any, seen: PictureOrder, step: int, own: slice = EVERY) -> Any:
    groups, rows = seen.at(step)
    draws = torch.from_numpy(np.random.default_rng(step).random(len(rows)))
    return data.window(groups).batch(rows, draws, own)


def same(one: Any, other: Any) -> None:
    for field in fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b, field.name


def rewrite(path: Path, schema: pa.Schema, change: Callable[[list[dict[str, Any]]], Any]) -> None:
    """A shard in one row group, its rows changed in place."""
    rows = pq.read_table(path).to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema), path)


@pytest.mark.parametrize("make", [captions, questions])
@pytest.mark.parametrize("seed", [0, 5])
def test_batches_are_the_same_whether_the_pictures_fit_or_not(
    tmp_path: Path, make: Callable[[Path, int], Shared], seed: int
):
    folder = write(tmp_path)
    held, streamed = make(folder, 1), make(folder, 0)
    assert held.images is not None and streamed.images is None
    seen = PictureOrder(held.layout, BATCH, seed)
    assert len(seen.windows(0)) > 3
    steps = range(3 * N // BATCH)  # three epochs
    for step in steps:
        for own in (EVERY, slice(0, 2), slice(2, 4)):  # of one process, or of two
            same(batch(held, seen, step, own), batch(streamed, seen, step, own))
    again = PictureOrder(streamed.layout, BATCH, seed)
    for step in (40, 7, 63):  # taken up anywhere
        same(batch(streamed, again, step), batch(held, seen, step))


def test_a_streamed_batch_says_what_the_tables_say(tmp_path: Path):
    folder = write(tmp_path)
    scenes, table = read_scenes(folder), read_questions(folder)
    place = {image.tobytes(): row for row, image in enumerate(scenes.images)}
    told, asked = captions(folder, 0), questions(folder, 0)
    seen = PictureOrder(told.layout, BATCH, 1)
    met = Counter[int]()
    steps = sum(_steps(told, seen, 0))
    for step in range(steps):
        pairs = batch(told, seen, step)
        rows = [place[image.numpy().tobytes()] for image in pairs.images]
        met.update(rows)
        keys = [scenes.caption_keys[row][0] for row in rows]
        assert [[a == b for b in keys] for a in keys] == (
            pairs.keys[:, None] == pairs.keys[None]
        ).tolist()
        for row, ids in zip(rows, pairs.text_ids, strict=True):
            assert TOKENIZER.decode(ids) in scenes.captions[row]
        taught = batch(asked, seen, step)
        assert taught.images.equal(pairs.images)
        assert Counter(_said(taught, rows)) == Counter(
            (int(index), question, phrase)
            for index, question, phrase in zip(
                table.scene_index, table.question, table.phrase, strict=True
            )
            if index in rows
        )
    assert set(met.values()) == {1}
    assert N - len(met) <= len(seen.windows(0)) * (BATCH - 1)


def _said(taught: QuestionBatch, rows: list[int]) -> Iterator[tuple[int, str, str]]:
    for picture, question, phrase in zip(
        taught.image_rows.tolist(), taught.question_rows, taught.phrase_ids, strict=True
    ):
        text = TOKENIZER.decode(taught.question_ids[question])
        yield rows[picture], text, TOKENIZER.decode(phrase)


def _steps(data: Shared, seen: PictureOrder, epoch: int) -> list[int]:
    """The steps of each window of an epoch."""
    return [int(data.layout.sizes[w.groups].sum()) // BATCH for w in seen.windows(epoch)]


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    size=st.integers(1, 20),
    seed=st.integers(0, 3),
    many=st.integers(0, 200_000),
)
def test_any_layout_gives_whole_batches_of_pictures_met_once_an_epoch(
    sizes: list[int], size: int, seed: int, many: int
):
    layout = Layout(np.array(sizes), many)
    size = min(size, sum(sizes))
    seen, backward = (PictureOrder(layout, size, seed) for _ in range(2))
    first = 0
    for epoch in range(3):
        dealt = seen.windows(epoch)
        assert sorted(np.concatenate([w.groups for w in dealt])) == list(range(len(sizes)))
        steps = [int(layout.sizes[w.groups].sum()) // size for w in dealt]
        assert sum(steps) > 0
        met: set[tuple[int, int]] = set()
        for window, number in zip(dealt, steps, strict=True):
            for _ in range(number):
                groups, rows = seen.at(first)
                assert groups.tolist() == window.groups.tolist()
                assert len(rows) == size
                met |= {(int(groups[0]), row) for row in rows.tolist()}
                first += 1
        assert len(met) == size * sum(steps)
    for step in reversed(range(0, first, 3)):
        again, before = backward.at(step), seen.at(step)
        assert again.groups.tolist() == before.groups.tolist()
        assert again.rows.equal(before.rows)


def test_one_window_is_one_permutation_of_all():
    seen = PictureOrder(Layout(np.array([5, 4, 3]), 10), 4, 3)
    for epoch in range(2):
        expected = np.random.default_rng((3, epoch)).permutation(12)
        got = [seen.at(3 * epoch + step).rows for step in range(3)]
        assert torch.cat(got).tolist() == expected.tolist()


def test_windows_differ_from_epoch_to_epoch_and_by_seed():
    layout = Layout(np.full(40, 9), 80_000)
    dealt = {
        (seed, epoch): [w.groups.tolist() for w in PictureOrder(layout, 4, seed).windows(epoch)]
        for seed in range(2)
        for epoch in range(2)
    }
    assert len({str(groups) for groups in dealt.values()}) == 4


def test_windows_hold_enough_batches_however_large_a_batch_is():
    layout = Layout(np.full(40, 10), 10**6)
    assert [len(PictureOrder(layout, size, 0).windows(0)) for size in (1, 10, 50, 400)] == [
        40,
        13,
        2,
        1,
    ]


def test_a_split_ten_times_as_large_holds_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Row groups are counted as they are taken up and dropped; a window's are held at most."""
    held, most = 0, 0

    class Counted(Pictures):
        def __init__(self, *given: Any) -> None:
            nonlocal held, most
            super().__init__(*given)
            held += 1
            most = max(most, held)

        def __del__(self) -> None:
            nonlocal held
            held -= 1

    monkeypatch.setattr(windows, "Pictures", Counted)
    few, peaks, rows = 50, [], []
    for n in (few, 10 * few):
        data = questions(write(tmp_path / str(n), n), 0)
        seen = PictureOrder(data.layout, BATCH, 0)
        most = held
        for step in range(sum(_steps(data, seen, 0))):
            taken = batch(data, seen, step)
            rows.append((n, int(taken.rows.max()) if len(taken.rows) else 0))
        peaks.append(most)
        assert most == max(len(window.groups) for window in seen.windows(0))
        assert len(seen.windows(0)) > 2
    assert abs(peaks[0] - peaks[1]) <= 1
    largest = [max(row for n, row in rows if n == many) for many in (few, 10 * few)]
    assert largest[1] < 2 * largest[0]  # of the questions, a window's too


def test_scenes_and_questions_may_lie_in_any_order(tmp_path: Path):
    folder = write(tmp_path)
    for path in sorted(folder.glob("*.parquet")):
        schema = SCENES if path.name.startswith("scenes") else QUESTIONS
        rewrite(path, schema, lambda rows: rows.reverse())
    scenes, table = read_scenes(folder), read_questions(folder)
    whole = QuestionData(scenes, table, TOKENIZER, 8, WORDS)
    asked = Questions(folder)
    part = np.array([70, 3, 41])
    few = asked.of(scenes.scene_id[part])
    for new, old in enumerate(part.tolist()):
        told = whole.batch(torch.tensor([old])).rows.numpy()
        assert sorted(few.question_id[few.scene_index == new]) == sorted(table.question_id[told])


def test_texts_come_one_by_one_from_all_shards(tmp_path: Path):
    folder = write(tmp_path)
    assert len(list(folder.glob("scenes-*"))) > 1 and len(row_groups(folder, "scenes", SCENES)) > 8
    told = [text for texts in read_scenes(folder).captions for text in texts]
    assert list(iterate_captions(folder)) == told
    table = read_questions(folder)
    for column in ("question", "answer", "phrase"):
        assert list(iterate_questions(folder, column)) == getattr(table, column).tolist()


def test_the_first_scenes_alone(tmp_path: Path):
    folder = write(tmp_path)
    whole, asked = read_scenes(folder), read_questions(folder)
    for limit in (1, 17, N, 2 * N):
        few, some = read_scenes(folder, limit), read_questions(folder, limit)
        assert few.captions == whole.captions[:limit] and few.objects == whole.objects[:limit]
        np.testing.assert_array_equal(few.images, whole.images[:limit])
        kept = asked.scene_index < limit
        assert some.question.tolist() == asked.question[kept].tolist()
        assert some.scene_index.tolist() == asked.scene_index[kept].tolist()


def test_what_is_withheld_is_not_for_training(tmp_path: Path):
    folder = tmp_path
    write_scenes(folder, [np.zeros((3, 1, 4, 4), np.uint8)], [[]] * 3, [["w1"]] * 3, [["k"]] * 3)
    texts = [["w1"] * 5, ["w2", None, "w3", None, "w4"], ["w5", None, None, "w6", "w7"]]
    write_questions(folder, np.array([0, 1, 1, 1, 2]), ["f"] * 5, *texts)
    table = read_questions(folder)
    assert table.question_id.tolist() == [0, 4] and table.answer.tolist() == ["w2", "w4"]
    assert list(iterate_questions(folder, "phrase")) == ["w5", "w7"]
    assert read_questions(folder, answered=False).answer.tolist() == texts[1]
    data = questions(folder, 0).window(np.arange(1))
    assert [part.tolist() for part in data.asked(1)] == [[0], [2]]
    assert data.batch(torch.tensor([1])).counts == {"answer": 0, "exact_match": 0, "phrase": 0}


def test_a_window_in_which_all_is_withheld(tmp_path: Path):
    folder = tmp_path
    write_scenes(folder, [np.zeros((2, 1, 4, 4), np.uint8)], [[]] * 2, [["w1"]] * 2, [["k"]] * 2)
    write_questions(folder, np.array([0, 1]), ["f"] * 2, ["w1"] * 2, [None] * 2, [None] * 2)
    taken = questions(folder, 0).window(np.arange(1)).batch(torch.tensor([1, 0]))
    assert len(taken.images) == 2 and taken.question_ids.shape == (0, 2)
    assert taken.answers.dtype == torch.int64 and len(taken.answers) == 0


def refuses(read: Callable[[], Any], *parts: str) -> None:
    with pytest.raises(UserError) as caught:
        read()
    text = str(caught.value)
    assert "\n" not in text and all(part in text for part in parts), text


def an_epoch(data: Shared) -> None:
    for groups, _ in PictureOrder(data.layout, BATCH, 0).windows(0):
        window = data.window(groups)
        window.batch(torch.arange(len(window)))


def test_mistakes_are_named_by_file_and_row_as_they_are_met(tmp_path: Path):
    shard = write(tmp_path) / "scenes-00001.parquet"
    whole = shard.read_bytes()
    row = pq.ParquetFile(shard).metadata.num_rows - 2
    scene = pq.read_table(shard)["scene_id"][row].as_py()

    def mistake(column: str, value: Any) -> None:
        shard.write_bytes(whole)
        rewrite(shard, SCENES, lambda rows: rows[row].update({column: value}))

    mistake("image", {"bytes": b"GIF89a", "path": None})
    for memory in (0, 1):
        refuses(lambda m=memory: an_epoch(captions(tmp_path, m)), f"{shard} row {row}: picture")
    small = png.encode(np.zeros((1, 4, 4), np.uint8))
    mistake("image", {"bytes": small, "path": None})
    for memory in (0, 1):
        refuses(lambda m=memory: an_epoch(captions(tmp_path, m)), f"{shard} row {row}", "(4, 4, 1)")
    mistake("captions", [])
    refuses(lambda: an_epoch(captions(tmp_path, 0)), f"{tmp_path}: scene {scene}: no caption")
    mistake("captions", ["w1 " * 20])
    refuses(
        lambda: an_epoch(captions(tmp_path, 0)), f"{tmp_path}: scene {scene}: text of 22 tokens"
    )
    mistake("scene_id", 10**6)
    refuses(lambda: questions(tmp_path, 0), "questions-", "expected one of the 90 in the scene")
    shard.write_bytes(whole[:-9])
    refuses(lambda: captions(tmp_path, 0), str(shard), "expected a Parquet file")
