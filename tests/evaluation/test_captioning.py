"""Captions scored fact for fact: by hand, for one who tells all, and for one who tells the same."""

import numpy as np
import pytest
from answerers import make_data, make_split

from vlm.evaluation.captioning import (
    Described,
    Guesses,
    exact_captions,
    f1_of_sums,
    fact_counts,
    score_captions,
)
from vlm.evaluation.gallery import gallery_hits, score_retrieval
from vlm.scenes.captions import TEMPLATES, parse_caption, told_facts

WORLD = make_data().world
TEST, VAL, TRAIN = (
    Described(split.scenes.captions, split.scenes.caption_keys)
    for split in (make_split(80), make_split(60, "val"), make_split(300, "train"))
)
GUESSES = Guesses.learned(TRAIN)
FIGURES = ("exact", "fact_f1", "bleu4", "rouge_l", "rouge_l_coco")


def score(captions: list[str]) -> dict:
    return score_captions(captions, TEST, GUESSES, VAL, WORLD, resamples=60, seed=0)


@pytest.mark.parametrize("template", range(3))
def test_every_true_caption_tells_its_facts(template: int):
    for texts, keys in zip(TEST.captions, TEST.keys, strict=True):
        told = ";".join(sorted(told_facts(texts[template], WORLD)))
        assert told == ("" if keys[0] == "empty" else ";".join(sorted(keys[0].split(";"))))


def test_facts_in_broken_sentences():
    assert told_facts("a circle at the top left and a plus", WORLD) == ["circle@top-left"]
    assert told_facts("blah a circle at the center and at the", WORLD) == ["circle@center"]
    twice = "a circle at the center and a circle at the center"
    assert told_facts(twice, WORLD) == ["circle@center"] * 2
    assert told_facts("", WORLD) == told_facts("nothing of the kind", WORLD) == []


@pytest.mark.parametrize("joint", sorted({template.joint.strip() for template in TEMPLATES}))
def test_words_without_end_are_no_caption(joint: str):
    """What a decoder that has collapsed writes."""
    assert parse_caption(" ".join([joint] * 31), WORLD) is None
    assert told_facts(" ".join([joint] * 31), WORLD) == []


def test_f1_by_hand():
    texts = ["a circle at the center and a plus at the center", "an empty image", "no shapes"]
    keys = [["circle@center"], ["empty"], ["plus@center"]]
    counts = fact_counts(texts, keys, WORLD)
    assert counts.tolist() == [[1, 2, 1], [0, 0, 0], [0, 0, 1]]
    assert f1_of_sums(counts.sum(axis=0)) == pytest.approx(2 * 1 / (2 + 2))
    assert f1_of_sums(counts[1]) == 1.0
    true = Described([[text] for text in texts], keys)
    assert exact_captions(texts, true, WORLD).tolist() == [False, True, False]


def test_a_caption_of_own_pictures_is_exact_word_for_word():
    true = Described([["a red bus", "one bus"], ["a cat"]], [["a red bus", "one bus"], ["a cat"]])
    assert exact_captions(["one bus", "a Cat"], true, None).tolist() == [True, False]
    guesses = Guesses.learned(Described([["a cat"], ["a cat"], ["a dog"]], [["a cat"]] * 3))
    figures = score_captions(["one bus", "a dog"], true, guesses, true, None, 50, 0)
    assert figures["exact"] == 0.5 and figures["exact_floor"] == 0.5
    assert "fact_f1" not in figures and figures["bleu4"] <= 1


def test_who_tells_all_scores_one_and_its_interval_is_not_a_point():
    figures = score([texts[1] for texts in TEST.captions])
    for name in FIGURES:
        assert figures[name] == pytest.approx(1.0)
        assert 0.9 < figures[f"{name}_low"] < 1.0
        assert figures[f"{name}_high"] <= 1.0
        assert figures[f"{name}_floor"] < 0.7


def test_who_tells_the_same_of_every_picture_is_no_better_than_the_floor_by_much():
    """The floor is the best on val of train's commonest, so on test it may lose by luck alone."""
    best = dict.fromkeys(FIGURES, 0.0)
    for text in GUESSES.texts:
        figures = score([text] * 80)
        best = {name: max(best[name], figures[name]) for name in FIGURES}
    for name in FIGURES:
        assert best[name] == pytest.approx(figures[f"{name}_floor"], abs=0.1)
        assert figures[f"{name}_floor"] > 0.05


def test_equal_texts_hit_or_miss_together():
    """Of 60 queries 50 are one text: the interval knows that they are 11 trials and not 60."""
    rng = np.random.default_rng(0)
    images, texts = rng.normal(size=(2, 60, 8))
    images[:50], texts[:50] = images[0], images[0]
    texts[50:] = images[50:]
    texts[55:] = -images[55:]
    keys = np.array([0] * 50 + list(range(1, 11)))
    found, by_id = (gallery_hits(images, texts, which) for which in (keys, np.arange(60)))
    same = {"image_to_text": np.arange(60), "text_to_image": keys}
    figures = score_retrieval(found, by_id, same, np.ones(60, np.int64), 200, 0)
    width = {
        direction: figures[f"{direction}_R@1_high"] - figures[f"{direction}_R@1_low"]
        for direction in same
    }
    assert figures["text_to_image_R@1"] == pytest.approx(55 / 60)
    assert width["text_to_image"] > 2 * width["image_to_text"]
