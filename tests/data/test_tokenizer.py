"""Both kinds of tokenizer: what is learned, what comes back, what is cut; the same in every run."""

import json
import os
import re
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from project import read_preset

from vlm.config import parse_params
from vlm.data.loading import CaptionData, QuestionData, TextTable
from vlm.data.tables import QuestionTable, SceneTable
from vlm.data.tokenizer import LongTextError, TextTokenizer, counted
from vlm.errors import UserError
from vlm.marks import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from vlm.scenes.captions import write_captions
from vlm.scenes.questions import question_table
from vlm.scenes.sampler import sample_scenes

SAID = ["It's a dog, isn't it?", "a  dog\nand a cat", "Ein Hündchen — 犬!", "the the the dogs"]
WORDS = TextTokenizer.fit(SAID)
PAIRS = TextTokenizer.fit(SAID * 2, "bpe")
KINDS = pytest.mark.parametrize("kind", ["word", "bpe"])
LEARN = """
import random, sys
from vlm.data.tokenizer import TextTokenizer
rng = random.Random(0)
texts = ["".join(rng.choices("abcdeé ',.", k=rng.randint(1, 30))) for _ in range(800)]
for kind in ("word", "bpe"):
    TextTokenizer.fit(iter(texts), kind, 500).save(f"{sys.argv[1]}/{kind}")
"""
COLORFUL = {"channels": 3, "colors": ["red", "blue"], "shapes": ["plus", "ring", "star"]}


def world_texts(world: dict | None = None) -> list[str]:
    """What a drawn world says and asks."""
    values = read_preset("tiny")
    values["data"]["world"] |= (world or {}) | {"held_out": []}
    data = parse_params(values).data
    scenes = sample_scenes(data.world, 0, "train", 60)
    texts = [
        text for own in write_captions(data, scenes, 0, "train").texts.tolist() for text in own
    ]
    for questions in question_table(data).values():
        for question in questions:
            texts += [*question.texts, *question.phrases]
    return texts


def slow_words(texts: list[str]) -> list[str]:
    """The commonest word first, ties by the alphabet."""
    counts = Counter(word for text in texts for word in re.findall(r"\w+|[^\w\s]+", text.lower()))
    return sorted(counts, key=lambda word: (-counts[word], word))


def vocabulary(tokenizer: TextTokenizer, tmp_path) -> dict[str, int]:
    tokenizer.save(tmp_path)
    return json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]


def test_the_commonest_words_are_kept(tmp_path):
    texts = world_texts()
    expected = ["<pad>", "<bos>", "<eos>", "<unk>", *slow_words(texts)]
    assert list(vocabulary(TextTokenizer.fit(texts), tmp_path)) == expected
    for most in (5, 20, len(expected), 8192):
        tokenizer = TextTokenizer.fit(iter(texts), "word", most)
        assert list(vocabulary(tokenizer, tmp_path)) == expected[:most]
        assert tokenizer.vocab_size == min(most, len(expected))


def test_a_vocabulary_that_holds_all_words_is_the_same_file(tmp_path):
    texts = world_texts()
    for name, most in (("all", None), ("enough", 8192)):
        TextTokenizer.fit(texts, "word", most).save(tmp_path / name)
    one, other = ((tmp_path / name / "tokenizer.json").read_bytes() for name in ("all", "enough"))
    assert one == other and b'"truncation": null' in one


def test_texts_are_counted_by_chunks():
    texts = ["a", "b", "a", "c", "a"]
    assert list(counted(iter(texts), 2)) == [Counter("ab"), Counter("ac"), Counter("a")]
    assert list(counted([], 2)) == []


def test_the_same_bytes_in_every_process(tmp_path):
    for seed, threads, parallel in (("1", "1", "false"), ("2", "2", "true")):
        settings = {"PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads}
        environment = os.environ | settings | {"TOKENIZERS_PARALLELISM": parallel}
        command = [sys.executable, "-c", LEARN, str(tmp_path / seed)]
        subprocess.run(command, env=environment, check=True)
    for kind in ("word", "bpe"):
        one, other = ((tmp_path / seed / kind / "tokenizer.json").read_bytes() for seed in "12")
        assert one == other and len(json.loads(one)["model"]["vocab"]) == 500


def test_byte_pairs_are_learned_and_bounded(tmp_path):
    marks_and_bytes = 4 + 256
    known = vocabulary(TextTokenizer.fit(SAID * 2, "bpe", marks_and_bytes + 3), tmp_path)
    assert len(known) == marks_and_bytes + 3
    assert [known[mark] for mark in ("<pad>", "<bos>", "<eos>", "<unk>")] == [0, 1, 2, 3]
    frequent = TextTokenizer.fit(["a circle", "the circle"] * 5, "bpe")
    assert frequent.encode(["circle"]).shape == (1, 3)  # marks, and one piece
    assert TextTokenizer.fit(["once"], "bpe").encode(["once"]).shape == (1, 4 + 3)  # and a space


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_byte_pairs_give_any_text_back(text):
    ids = PAIRS.encode([text])[0].tolist()
    assert ids[0] == BOS_ID and ids[-1] == EOS_ID and not set(ids[1:-1]) & {0, 1, 2, 3}
    assert PAIRS.decode(ids) == PAIRS.spelled(text)
    assert PAIRS.spelled(PAIRS.spelled(text)) == PAIRS.spelled(text)
    if text.isascii() and text.isprintable():
        assert PAIRS.spelled(text) == " ".join(text.lower().split())


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_words_give_a_text_back_where_they_are_known(text):
    tokenizer = TextTokenizer.fit([text])
    assert tokenizer.decode(tokenizer.encode([text])[0]) == tokenizer.spelled(text)
    assert torch.equal(tokenizer.encode([tokenizer.spelled(text)]), tokenizer.encode([text]))


@KINDS
@pytest.mark.parametrize("world", [None, COLORFUL])
def test_a_drawn_world_is_spelled_as_it_is_told(kind, world):
    texts = world_texts(world)
    tokenizer = TextTokenizer.fit(texts, kind)
    assert tokenizer.spelling(texts) == {text: text for text in texts}
    assert [tokenizer.decode(row) for row in tokenizer.encode(texts)] == texts


def test_spelling_of_words():
    assert WORDS.spelled("It's a DOG,  isn't it?") == "it ' s a dog , isn ' t it ?"
    assert WORDS.spelled("a Zebra!") == "a zebra !"
    assert WORDS.decode(WORDS.encode(["a Zebra!"])[0]) == "a <unk> !"
    assert WORDS.spelled("<unk>") != WORDS.decode([UNK_ID])
    assert WORDS.spelling(["A", "B c", "A"]) == {"A": "a", "B c": "b c"}


@KINDS
def test_a_mark_in_a_text_is_no_mark(kind):
    text = "yes <eos> <pad> no"
    tokenizer = TextTokenizer.fit([text, text], kind)
    ids = tokenizer.encode([text])[0].tolist()
    assert not set(ids[1:-1]) & {PAD_ID, BOS_ID, EOS_ID, UNK_ID}
    assert tokenizer.decode(ids) == tokenizer.spelled(text)


def test_a_mark_between_byte_pairs_is_shown():
    dog, cat = (PAIRS.tokens([text])[0] for text in ("dog", "cat"))
    assert PAIRS.decode([BOS_ID, *dog, PAD_ID, BOS_ID, *cat, EOS_ID, 9]) == "dog <pad> <bos> cat"
    assert PAIRS.decode([*dog, PAD_ID, PAD_ID]) == "dog"
    assert PAIRS.decode([*dog, 10**6]) == "dog <unk>"


@pytest.mark.parametrize(("kind", "most", "least"), [("word", 4, 5), ("bpe", 259, 260)])
def test_a_vocabulary_without_room_is_refused(kind, most, least):
    with pytest.raises(UserError) as error:
        TextTokenizer.fit(["a"], kind, most)
    expected = f"max_vocab {most} is too small, expected at least {least} with tokenizer {kind}"
    assert str(error.value) == expected
    assert TextTokenizer.fit(["a"], kind, least).vocab_size == least


@KINDS
def test_a_cut_text_keeps_its_beginning_and_its_end_mark(tmp_path, kind):
    tokenizer = TextTokenizer.fit(SAID, kind)
    whole = tokenizer.encode(SAID)
    tokenizer.cut_at(5)
    tokenizer.save(tmp_path)
    for each in (tokenizer, TextTokenizer.load(tmp_path)):  # a stage later too
        cut = each.encode([*SAID, "a"], 5)
        assert cut.shape == (5, 5) and each.cuts_at == 5
        assert torch.equal(cut[:4, :4], whole[:, :4])
        assert (cut[:4, 4] == EOS_ID).all() and EOS_ID in cut[4].tolist()
        assert [len(ids) for ids in each.tokens(SAID)] == [
            int((row != PAD_ID).sum()) - 2 for row in whole
        ]
    assert TextTokenizer.fit(SAID, kind).cuts_at is None


def test_a_long_text_is_shown_by_its_beginning():
    text = "a dog " * 40
    with pytest.raises(LongTextError) as error:
        WORDS.encode(["a", text], 32)
    assert str(error.value) == (
        f"text of 82 tokens, marks included, exceeds max_length 32: {text[:60] + '...'!r}"
    )
    assert error.value.index == 1
    with pytest.raises(LongTextError) as error:
        TextTable(["a", "a", "the", text, text], WORDS, 32)
    assert error.value.index == 3  # of all texts, not of the distinct ones


def test_a_long_text_is_named_by_its_row():
    captions = [["a"], ["a", "the the the the"], ["a"]]
    images = np.zeros((3, 1, 4, 4), np.uint8)
    scenes = SceneTable(np.array([5, 7, 9]), images, [[]] * 3, captions, captions, "data/val")
    with pytest.raises(UserError, match=r"^data/val: scene 7: text of 6 tokens, .*'the the the th"):
        CaptionData(scenes, WORDS, 5)
    texts = [np.array(["a", "a", text], object) for text in ("a", "a", "a", "the the the the")]
    index = np.array([0, 1, 1])
    table = QuestionTable(np.array([11, 12, 13]), index, index, *texts, source="data/val")
    with pytest.raises(UserError, match=r"^data/val: question 13: text of 6 tokens"):
        QuestionData(scenes, table, WORDS, 5, [])
