"""Running and scoring models: batch size changes nothing."""

import numpy as np
import pytest
import torch

from vlm.data.loading import CaptionData, QuestionData
from vlm.data.tables import QuestionTable, SceneTable
from vlm.data.tokenizer import TextTokenizer
from vlm.evaluation.gallery import blind_ranks, gallery_hits, score_retrieval
from vlm.evaluation.predicting import caption, classify, cosines, embed_gallery, phrase
from vlm.evaluation.scoring import Scorer, score_head
from vlm.model.vlm import ContrastiveCaptioner, VLMConfig
from vlm.model.vqa import AnswerClassifier, PhraseGenerator

N = 20
CAPTIONS = [["a plus"], ["a circle at the left"], ["two shapes : a plus and a circle"]] * N
SCENES = SceneTable(
    scene_id=np.arange(N),
    images=np.random.default_rng(0).integers(0, 256, (N, 1, 16, 16), np.uint8),
    objects=[[]] * N,
    captions=CAPTIONS[:N],
    caption_keys=[[texts[0]] for texts in CAPTIONS[:N]],
)
ASKED = np.array(["is it", "what shape is in it", "a circle left of it"] * N, dtype=object)
QUESTIONS = QuestionTable(
    question_id=np.arange(3 * N),
    scene_id=np.arange(3 * N) // 3,
    scene_index=np.arange(3 * N) // 3,
    family=np.array(["a", "b", "c"] * N, dtype=object),
    question=ASKED,
    answer=np.array(["yes", "no", "yes"] * N, dtype=object),
    phrase=ASKED,
)
TOKENIZER = TextTokenizer.fit([*ASKED, *(texts[0] for texts in CAPTIONS)])
CONFIG = VLMConfig(
    image_size=16,
    patch_size=8,
    in_channels=1,
    vision_hidden=32,
    vision_depth=1,
    text_hidden=32,
    text_depth=1,
    vocab_size=TOKENIZER.vocab_size,
    max_text_len=12,
)


def test_batch_size_changes_no_answer():
    data = QuestionData(SCENES, QUESTIONS, TOKENIZER, 12, ["no", "yes"])
    pairs = CaptionData(SCENES, TOKENIZER, 12)
    classifier = AnswerClassifier(CONFIG, ["no", "yes"], question_frequency=5.0).eval()
    generator = PhraseGenerator(CONFIG, context="fused").eval()
    captioner = ContrastiveCaptioner(CONFIG).eval()
    one, many = classify(classifier, data, 1), classify(classifier, data, 16)
    assert (one.answer == many.answer).all()
    assert np.abs(one.confidence - many.confidence).max() < 1e-5
    one, many = phrase(generator, data, TOKENIZER, 1), phrase(generator, data, TOKENIZER, 16)
    assert (one.answer == many.answer).all()
    np.testing.assert_allclose(one.confidence, many.confidence, rtol=1e-5)
    images = pairs.images
    assert caption(captioner, images, TOKENIZER, 1) == caption(captioner, images, TOKENIZER, 16)
    one, many = (embed_gallery(captioner, pairs, N, size) for size in (1, 16))
    for few, all_ in zip(one, many, strict=True):
        torch.testing.assert_close(few, all_, atol=1e-5, rtol=1e-5)


def test_equal_captions_tie_to_the_last_bit():
    """Else rounding, and not the expected value of a tie, would decide the figures by id."""
    model = ContrastiveCaptioner(CONFIG).eval()
    images, texts = embed_gallery(model, CaptionData(SCENES, TOKENIZER, 12), N, 4)
    assert (texts[0] == texts[3]).all() and (texts[1] == texts[4]).all()
    scores = cosines(images, texts)
    assert (scores[:, 0] == scores[:, 3]).all() and (scores[:, 1] == scores[:, 4]).all()


def test_a_perfect_encoder_by_keys_and_by_id():
    """Captions x, x, y for pictures 0, 1, 2: 1.0 with equals counted, 2/3 by id."""
    vectors = np.array([[1.0, 0], [1, 0], [0, 1]])
    found, by_id = (gallery_hits(vectors, vectors, keys) for keys in (["x", "x", "y"], [0, 1, 2]))
    alone = dict.fromkeys(found, np.arange(3))
    blind = blind_ranks(["x", "x", "y"], {"y": 5, "x": 2})
    figures = score_retrieval(found, by_id, alone, blind, resamples=10, seed=0)
    assert figures["floor_R@1"] == pytest.approx(1 / 3)  # y first, then an x for both of the others
    assert figures["floor_MRR"] == pytest.approx((1 + 0.5 + 0.5) / 3)
    assert figures["floor_median_rank"] == 2
    assert figures["image_to_text_R@1"] == 1
    assert figures["image_to_text_id_R@1"] == pytest.approx(2 / 3)
    assert figures["chance_R@1"] == pytest.approx(5 / 9)


def test_families_weigh_the_same_and_lift_is_over_the_largest_floor():
    scorer = Scorer(["a", "a", "a", "b"], np.arange(4), resamples=50, seed=0)
    figures = score_head(
        scorer, np.array([True, True, True, False]), {"majority": 0.2, "question_only": 0.4}
    )
    assert figures["exact_match"] == 0.5
    assert figures["lift"] == pytest.approx(0.1)
    assert figures["by_family"] == {"a": 1.0, "b": 0.0}
    assert figures["exact_match_low"] <= 0.5 <= figures["exact_match_high"]


@pytest.mark.parametrize("size", [3, 7, 33, 64, 120])
def test_equal_vectors_tie_to_the_last_bit(size):
    """A model that tells nothing apart must not rank by rounding."""
    same = cosines(torch.randn(1, 64).expand(size, -1), torch.randn(1, 64).expand(size, -1))
    assert same.dtype == torch.float64
    assert (same == same[0, 0]).all()
    assert float(cosines(torch.tensor([[2.0, 0.0]]), torch.tensor([[3.0, 3.0]]))) == 0.707107
