"""Scrambled questions: what an order-blind model makes of them, and one that knows positions."""

from collections.abc import Iterable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from project import read_preset

from vlm.config import parse_params
from vlm.data.drawn import draw
from vlm.data.tokenizer import TextTokenizer
from vlm.evaluation.heads import Heads
from vlm.evaluation.scoring import Figures, Scorer
from vlm.evaluation.word_order import (
    ORDERS,
    encode,
    mean_distance,
    score_distances,
    score_word_order,
    scramble,
    scrambled,
)
from vlm.marks import BOS_ID, EOS_ID
from vlm.model.vlm import VLMConfig
from vlm.model.vqa import AnswerClassifier, PhraseGenerator

SCENES, QUESTIONS = draw(parse_params(read_preset("tiny")).data, 0, "test", 20).tables()
TOKENIZER = TextTokenizer.fit([*QUESTIONS.question, *QUESTIONS.phrase])
SPOKEN = dict(zip(QUESTIONS.phrase, QUESTIONS.answer, strict=True))
SCORER = Scorer(list(QUESTIONS.family), QUESTIONS.scene_id, resamples=50, seed=0)
FLOORS = {"majority": 0.4}
WORDS = ["is", "a", "A", "circle", "Circle", "the", ",", "?"]
ORDER = "is there a circle left of a plus in the image"


def make_heads(depth: int, memory: str = "pooled") -> Heads:
    config = VLMConfig(
        patch_size=8,
        in_channels=1,
        vision_hidden=32,
        vision_depth=1,
        text_hidden=32,
        text_depth=depth,
        vocab_size=TOKENIZER.vocab_size,
        max_text_len=32,
    )
    answers = sorted(set(QUESTIONS.answer))
    return Heads(
        AnswerClassifier(config, answers, question_frequency=8.0).eval(),
        PhraseGenerator(config, memory, "fused", 8.0).eval(),
        TOKENIZER,
        batch_size=7,
    )


def spoken(phrases: Iterable[str]) -> list[str]:
    return [SPOKEN.get(phrase, phrase) for phrase in phrases]


def probe(heads: Heads) -> Figures:
    replies = heads.reply(SCENES, QUESTIONS)
    return score_word_order(heads, SCENES, QUESTIONS, replies, SPOKEN, SCORER, FLOORS)


@given(words=st.lists(st.sampled_from(WORDS), max_size=7), seed=st.integers(0, 2**62))
def test_a_scrambled_text_has_the_same_words_in_another_order(words: list[str], seed: int):
    text = " ".join(words)
    other = scramble(text, seed)
    assert sorted(other.split()) == sorted(words)
    several = len({word.lower() for word in words}) > 1
    assert (other.lower() != text.lower()) == several
    assert scramble(text, seed) == other


@given(seed=st.integers(0, 2**62))
def test_the_marks_stay_where_they_are(seed: int):
    before, after = TOKENIZER.encode([ORDER, scramble(ORDER, seed)]).tolist()
    assert before != after
    assert after[0] == BOS_ID and after[-1] == EOS_ID
    assert sorted(before[1:-1]) == sorted(after[1:-1])


def test_every_order_of_three_words_comes_up_alike():
    drawn = [scramble("left of plus", seed) for seed in range(2000)]
    texts, counts = np.unique(drawn, return_counts=True)
    assert len(texts) == 5 and "left of plus" not in texts
    assert counts.min() > 330  # 400 each, and a standard deviation of 18


def test_each_question_takes_its_orders_by_turns_and_the_rest_stays():
    other = scrambled(QUESTIONS, 0)
    pairs = set(zip(QUESTIONS.question, other.question, strict=True))
    assert all(one != two for one, two in pairs)
    for text in set(QUESTIONS.question):
        texts = other.question[QUESTIONS.question == text].tolist()
        turns = [scramble(text, 0, row % ORDERS) for row in range(len(texts))]
        assert texts == turns
    assert len(pairs) > 2 * len(set(QUESTIONS.question))
    assert other.answer is QUESTIONS.answer and other.phrase is QUESTIONS.phrase
    assert (scrambled(QUESTIONS, 0).question == other.question).all()
    assert (scrambled(QUESTIONS, 1).question != other.question).any()


@pytest.mark.parametrize("memory", ["pooled", "tokens"])
def test_a_mean_of_embeddings_does_not_notice(memory: str):
    figures = probe(make_heads(0, memory))
    for head in ("classifier", "generator"):
        assert figures[head]["distance"] < 1e-12
        assert figures[head]["distance_between_questions"] > 0.01
        assert figures[head]["changed"] == 0
        assert set(figures[head]["changed_by_family"].values()) == {0}
    assert figures["pictures"] == 20 and figures["questions"] == 160
    assert figures["distinct_questions"] == len(set(QUESTIONS.question))
    assert figures["without_another_order"] == 0


def test_positions_notice_and_all_is_counted_as_told():
    heads = make_heads(1)
    figures = probe(heads)
    other = scrambled(QUESTIONS, SCORER.seed)
    before, after = heads.reply(SCENES, QUESTIONS), heads.reply(SCENES, other)
    said = {  # of a phrase, its answer counts as changed or not, and its wording as right
        "classifier": (before.answers.answer, after.answers.answer, after.answers.answer),
        "generator": (spoken(before.phrases), spoken(after.phrases), after.phrases),
    }
    truths = {"classifier": QUESTIONS.answer, "generator": QUESTIONS.phrase}
    for head, (first, then, words) in said.items():
        truth = truths[head]
        assert 1e-4 < figures[head]["distance_low"] <= figures[head]["distance"]
        assert min(figures[head]["distance_by_family"].values()) > 1e-4
        changed, right = [], []
        for family in set(QUESTIONS.family):
            rows = [row for row in range(160) if QUESTIONS.family[row] == family]
            changed.append(sum(first[row] != then[row] for row in rows) / len(rows))
            right.append(sum(words[row] == truth[row] for row in rows) / len(rows))
            assert figures[head]["changed_by_family"][family] == pytest.approx(changed[-1])
        assert figures[head]["changed"] == pytest.approx(np.mean(changed))
        assert figures[head]["changed_low"] <= np.mean(changed) <= figures[head]["changed_high"]
        assert figures[head]["exact_match"] == pytest.approx(np.mean(right))
    assert figures["classifier"]["changed"] > 0
    assert probe(heads) == figures


def test_distances_are_means_over_distinct_questions():
    """Each text encoded alone, without padding, in a loop."""
    encoder = make_heads(1).classifier.text
    orders = {
        text: [scramble(text, 0, turn) for turn in range(1 + place % 3)]
        for place, text in enumerate(dict.fromkeys(QUESTIONS.question))
    }
    families = dict(zip(QUESTIONS.question, QUESTIONS.family, strict=True))
    figures = score_distances(encoder, TOKENIZER, orders, families, SCORER)
    texts = {each for text, others in orders.items() for each in (text, *others)}
    alone = {text: encode(encoder, TOKENIZER, [text])[0] for text in texts}
    distances = {
        text: np.mean([1 - alone[text] @ alone[other] for other in others])
        for text, others in orders.items()
    }
    assert figures["distance"] == pytest.approx(np.mean(list(distances.values())), abs=1e-6)
    relation = [distances[text] for text in orders if families[text] == "relation"]
    assert figures["distance_by_family"]["relation"] == pytest.approx(np.mean(relation), abs=1e-6)
    between = [1 - alone[a] @ alone[b] for a, b in combinations(orders, 2)]
    expected = pytest.approx(np.mean(between), abs=1e-6)
    assert figures["distance_between_questions"] == expected


def test_a_single_question_has_no_scale():
    encoder = make_heads(1).classifier.text
    figures = score_distances(encoder, TOKENIZER, {"is": ["is"]}, {"is": "exists"}, SCORER)
    assert figures["distance"] == pytest.approx(0, abs=1e-12)
    assert "distance_between_questions" not in figures


def test_mean_distance_by_hand():
    assert mean_distance(np.array([[1.0, 0], [0, 1], [-1, 0]])) == pytest.approx((1 + 2 + 1) / 3)
