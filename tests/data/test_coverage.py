"""What the vocabularies cover, against loops that count one text and one answer at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlm.data import coverage
from vlm.data.coverage import answer_coverage, answer_vocabulary, split_texts, text_coverage
from vlm.data.tables import QuestionTable
from vlm.data.tokenizer import TextTokenizer, counted

WORDS = st.sampled_from(["a", "dog", "cat", "zebra", "?"])
TEXTS = st.lists(st.lists(WORDS, max_size=6).map(" ".join), max_size=12)
ANSWERS = st.lists(st.sampled_from(["yes", "no", "2", "Yes", "red", None]), max_size=30)


@given(TEXTS, st.integers(3, 8))
def test_unknown_words_and_cut_texts(texts, limit):
    tokenizer = TextTokenizer.fit(["a dog ?", "cat"], "word")
    tokenizer.cut_at(limit)
    words = [text.split() for text in texts]
    lacking = [own.count("zebra") for own in words]
    found = text_coverage(iter(texts), tokenizer)
    shares = found["unknown_words"]
    assert shares["words"] == pytest.approx(sum(lacking) / max(sum(map(len, words)), 1))
    assert shares["texts"] == pytest.approx(sum(n > 0 for n in lacking) / max(len(texts), 1))
    assert found["texts_cut"] == sum(len(own) > limit - 2 for own in words)


def test_chunks_change_nothing(monkeypatch):
    tokenizer = TextTokenizer.fit(["a dog"])
    texts = ["a dog", "a cat", "a dog", "a cat", "cat", ""]
    whole = text_coverage(texts, tokenizer)
    assert whole == {"unknown_words": {"words": 3 / 9, "texts": 3 / 6}, "texts_cut": 0}
    monkeypatch.setattr(coverage, "counted", lambda given: counted(given, 2))
    assert text_coverage(texts, tokenizer) == whole


def test_nothing_is_unknown_in_byte_pairs_and_cut_is_by_their_number():
    tokenizer = TextTokenizer.fit(["a dog"], "bpe")
    long = "zebra 犬" * 9
    assert text_coverage([long], tokenizer)["texts_cut"] == 0
    tokenizer.cut_at(20)
    shares = {"words": 0.0, "texts": 0.0}
    assert text_coverage([long, "a"], tokenizer) == {"unknown_words": shares, "texts_cut": 1}


def test_texts_of_a_split_without_phrases_that_nobody_knows():
    columns = (["f", "f"], ["q 1", "q 2"], ["yes", None], ["yes it is", None])
    numbers = np.arange(2)
    table = QuestionTable(numbers, numbers, numbers, *(np.array(c, object) for c in columns))
    assert list(split_texts([["c 1", "c 2"], []], table)) == [
        "c 1",
        "c 2",
        "q 1",
        "q 2",
        "yes it is",
    ]
    assert list(split_texts([["c 1"]])) == ["c 1"]


@given(ANSWERS, st.integers(1, 7))
def test_the_commonest_answers_in_alphabetical_order(answers, most):
    given = [answer for answer in answers if answer is not None]
    chosen = answer_vocabulary(iter(answers), most)
    assert chosen == sorted(set(chosen)) and set(chosen) <= set(given)
    assert len(chosen) == min(most, len(set(given)))
    for answer in set(given) - set(chosen):
        for other in chosen:
            more = given.count(other) - given.count(answer)
            assert more > 0 or (more == 0 and other < answer)
    if most >= len(set(given)):
        assert chosen == sorted(set(given))


@given(ANSWERS)
def test_coverage_counts_answered_questions_alone(answers):
    given = [answer for answer in answers if answer is not None]
    expected = sum(answer in ("yes", "2") for answer in given) / len(given) if given else 1.0
    assert answer_coverage(answers, {"yes", "2"}) == pytest.approx(expected)
