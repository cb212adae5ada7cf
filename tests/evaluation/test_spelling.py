"""Own phrases are right in the tokenizer's spelling, and never where a word is unknown."""

from dataclasses import replace

import numpy as np
import pytest
from answerers import make_split, replies

from vlm.data.tokenizer import TextTokenizer
from vlm.evaluation.heads import spelled

QUESTIONS = make_split(10).questions


def phrased(phrases: list) -> object:
    """A few questions with these phrases."""
    columns = ("question_id", "scene_id", "scene_index", "family", "question", "answer")
    few = {name: getattr(QUESTIONS, name)[: len(phrases)] for name in columns}
    return replace(QUESTIONS, phrase=np.array(phrases, object), **few)


@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_a_drawn_worlds_phrases_stay(kind):
    tokenizer = TextTokenizer.fit([*QUESTIONS.question, *QUESTIONS.phrase], kind)
    assert spelled(QUESTIONS, tokenizer).phrase.tolist() == QUESTIONS.phrase.tolist()


@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_a_perfect_generator_is_right(kind):
    """And one that is wrong by a letter is not; a phrase that nobody knows has no right reply."""
    phrases = ["It's a DOG,  isn't it?", "It's a cat.", None]
    tokenizer = TextTokenizer.fit(phrases[:2], kind)
    table = spelled(phrased(phrases), tokenizer)
    said = [tokenizer.decode(row) for row in tokenizer.encode([phrases[0], "It's a dog."])]
    right = replies(["yes"] * 3, [*said, "yes"]).right(table)["generator"]
    assert right.tolist() == [True, False, False]
    assert table.phrase[2] is None


def test_an_unknown_word_is_never_right():
    tokenizer = TextTokenizer.fit(["it's a dog"])
    table = spelled(phrased(["It's a zebra", "It's a <unk>"]), tokenizer)
    said = [tokenizer.decode(row) for row in tokenizer.encode(["It's a zebra"] * 2)]
    assert said == ["it ' s a <unk>"] * 2
    assert not replies(["yes"] * 2, said).right(table)["generator"].any()


def test_a_cut_phrase_is_never_right():
    tokenizer = TextTokenizer.fit(["one two three four"])
    tokenizer.cut_at(4)
    table = spelled(phrased(["one two three four", "one two"]), tokenizer)
    said = [tokenizer.decode(row) for row in tokenizer.encode(["one two three four", "one two"])]
    assert said == ["one two"] * 2
    assert replies(["yes"] * 2, said).right(table)["generator"].tolist() == [False, True]
