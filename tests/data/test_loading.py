"""Tokens and batches: marks, padding, order, and that every row says what its table says."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm.data.loading import QuestionData
from vlm.data.order import Layout, PictureOrder
from vlm.data.tables import QuestionTable, SceneTable
from vlm.data.tokenizer import TextTokenizer
from vlm.errors import UserError
from vlm.marks import BOS_ID, EOS_ID, PAD_ID, UNK_ID


def test_marks_words_and_padding():
    tokenizer = TextTokenizer.fit(["a circle", "a plus"])
    ids = tokenizer.encode(["a plus", "a"])
    assert ids[1].tolist() == [BOS_ID, ids[0, 1], EOS_ID, PAD_ID]
    assert tokenizer.decode(ids[0]) == "a plus"
    assert tokenizer.vocab_size == 4 + 3


def test_vocabulary_by_frequency_then_alphabet():
    texts = ["b b a", "c a", "d"]
    ids = TextTokenizer.fit(texts).encode(["a b c d"])[0].tolist()
    assert ids == [BOS_ID, 4, 5, 6, 7, EOS_ID]
    shuffled = TextTokenizer.fit(texts[::-1]).encode(["a b c d"])[0].tolist()
    assert shuffled == ids


def test_unknown_words_case_and_punctuation():
    tokenizer = TextTokenizer.fit(["is it red ?"])
    assert tokenizer.encode(["Is it RED?"]).tolist() == tokenizer.encode(["is it red ?"]).tolist()
    assert tokenizer.encode(["is it blue"])[0].tolist()[3] == UNK_ID


def test_a_mark_inside_a_text_is_shown():
    tokenizer = TextTokenizer.fit(["there yes"])
    there, yes = tokenizer.encode(["there yes"])[0, 1:3].tolist()
    assert tokenizer.decode([BOS_ID, there, yes, EOS_ID, yes]) == "there yes"
    assert tokenizer.decode([there, PAD_ID, BOS_ID, yes, EOS_ID]) == "there <pad> <bos> yes"
    assert tokenizer.decode([there, yes, PAD_ID, PAD_ID]) == "there yes"


def test_saved_and_loaded_is_the_same(tmp_path):
    tokenizer = TextTokenizer.fit(["two shapes : a plus"])
    tokenizer.save(tmp_path)
    again = TextTokenizer.load(tmp_path)
    assert torch.equal(again.encode(["a plus"]), tokenizer.encode(["a plus"]))
    with pytest.raises(UserError, match=r"tokenizer\.json: no such file"):
        TextTokenizer.load(tmp_path / "none")


def test_a_text_that_is_too_long_is_named():
    tokenizer = TextTokenizer.fit(["a b c d"])
    with pytest.raises(UserError, match=r"text of 6 tokens.*exceeds max_length 5: 'a b c d'"):
        tokenizer.encode(["a", "a b c d"], max_length=5)
    with pytest.raises(UserError, match=r"text of 7 tokens.*exceeds max_length 5: 'a,b,c'"):
        tokenizer.encode(["a b c d", "a,b,c"], max_length=5)  # punctuation marks are tokens too


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 40), batch=st.integers(1, 40), seed=st.integers(0, 9))
def test_no_epoch_sees_a_picture_twice(n, batch, seed):
    order = PictureOrder(Layout.whole(n), min(batch, n), seed)
    per_epoch = n // min(batch, n)
    for epoch in range(3):
        steps = range(epoch * per_epoch, (epoch + 1) * per_epoch)
        seen = torch.cat([order.at(step).rows for step in steps]).tolist()
        assert len(set(seen)) == len(seen) == per_epoch * min(batch, n)
        assert set(seen) <= set(range(n))


def test_the_order_is_a_function_of_seed_and_step():
    ten = Layout.whole(10)
    order, again = PictureOrder(ten, 4, 1), PictureOrder(ten, 4, 1)
    forward = [order.at(step).rows.tolist() for step in range(8)]
    backward = [again.at(step).rows.tolist() for step in reversed(range(8))]
    assert forward == backward[::-1]
    assert PictureOrder(ten, 4, 2).at(0).rows.tolist() != forward[0]


def test_a_batch_larger_than_the_data():
    with pytest.raises(UserError) as error:
        PictureOrder(Layout.whole(200), 300, 0)
    assert str(error.value) == "batch_size (300) cannot exceed corpus size (200)"


def test_a_question_batch_says_what_the_table_says():
    """Pictures with 0 to 3 questions, in an order that isn't the table's."""
    rng = np.random.default_rng(0)
    scene_index = rng.permutation(np.repeat(np.arange(5), [3, 0, 2, 1, 3]))
    texts = np.array([f"w{i % 4} v{i}" for i in range(9)], dtype=object)
    scenes = SceneTable(
        np.arange(5), rng.integers(0, 256, (5, 1, 4, 4), np.uint8), [[]] * 5, [[]] * 5, [[]] * 5
    )
    family = np.array(["f"] * 9, dtype=object)
    table = QuestionTable(np.arange(9), scene_index, scene_index, family, texts, texts, texts)
    tokenizer = TextTokenizer.fit(list(texts))
    data = QuestionData(scenes, table, tokenizer, 8, sorted(set(texts)))
    pictures = torch.tensor([4, 1, 0])
    batch = data.batch(pictures)
    assert sorted(batch.rows.tolist()) == sorted(np.flatnonzero(np.isin(scene_index, [0, 4])))
    for row, index in enumerate(batch.rows.tolist()):
        assert int(pictures[batch.image_rows[row]]) == scene_index[index]
        question = batch.question_ids[batch.question_rows[row]]
        assert tokenizer.decode(question) == texts[index]
        assert tokenizer.decode(batch.phrase_ids[row]) == texts[index]
        assert sorted(set(texts))[int(batch.answers[row])] == texts[index]
    assert len(batch.question_ids) == len(set(batch.question_rows.tolist()))
    assert batch.counts["phrase"] == int((batch.phrase_ids[:, 1:] != PAD_ID).sum())
    for size in (1, 2, 9):  # a picture alone in its batch must have a question
        parts = [part.tolist() for part in data.asked(size)]
        assert [picture for part in parts for picture in part] == [0, 2, 3, 4]
        assert {len(part) for part in parts[:-1]} <= {size}
