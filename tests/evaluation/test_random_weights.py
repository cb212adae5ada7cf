"""The control of where models look: the same architecture before any training; and all places."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_heads import ANSWERS, CONFIG, SCORER, SPLIT, data_of, make_heads
from torch import nn

from vlm.evaluation.altering import erase_object
from vlm.evaluation.looking import _score, cover, randomised, read_attention, rollout, score_looking
from vlm.model.vqa import AnswerClassifier, PhraseGenerator

HEADS = make_heads()
both = pytest.mark.parametrize("head", [HEADS.classifier, HEADS.generator])


@both
def test_other_weights_of_the_same_architecture_and_the_same_again(head: nn.Module):
    one, again, other = (randomised(head, seed).state_dict() for seed in (3, 3, 4))
    own = head.state_dict()
    assert own.keys() == one.keys()
    different = 0
    for name, tensor in own.items():
        assert one[name].shape == tensor.shape and torch.equal(one[name], again[name])
        if tensor.std() > 0:  # norms and zeros start alike
            assert not torch.equal(one[name], tensor) and not torch.equal(one[name], other[name])
            different += 1
    assert different > 20


@both
def test_nobody_else_s_chance_is_disturbed(head: nn.Module):
    torch.manual_seed(5)
    np.random.seed(5)
    expected = torch.rand(3), np.random.rand(3)
    torch.manual_seed(5)
    np.random.seed(5)
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    randomised(head, 9)
    assert torch.equal(torch.rand(3), expected[0])
    assert (np.random.rand(3) == expected[1]).all()
    assert all(torch.equal(before[name], tensor) for name, tensor in head.state_dict().items())


def test_every_setting_is_kept():
    config = replace(CONFIG, pooling="mean", text_depth=0)
    classifier = AnswerClassifier(config, ANSWERS, "concat", 1, 24, 4.0)
    random = randomised(classifier, 0)
    assert isinstance(random, AnswerClassifier) and not random.training
    assert random.config == config and random.answers == ANSWERS
    assert (random.fusion, random.head_hidden, random.question_frequency) == ("concat", 24, 4.0)
    generator = PhraseGenerator(config, "pooled", "none", 2.0)
    random = randomised(generator, 0)
    assert isinstance(random, PhraseGenerator) and not random.training
    assert (random.memory_kind, random.context) == ("pooled", "none")
    assert random.question_frequency == 2.0
    with pytest.raises(TypeError, match="expected one of the heads, got Linear"):
        randomised(nn.Linear(1, 1), 0)


@pytest.mark.parametrize(
    ("fusion", "memory", "depth", "places"),
    [
        ("multiply", "pooled", 1, {"classifier_encoder", "generator_encoder"}),
        ("multiply", "tokens", 1, {"classifier_encoder", "generator_encoder", "generator_words"}),
        ("attention", "pooled", 0, {"classifier_words"}),
        ("concat", "pooled", 0, set()),
    ],
)
def test_places_where_attention_meets_the_picture(
    fusion: str, memory: str, depth: int, places: set[str]
):
    figures, maps = score_looking(make_heads(fusion, memory, vision_depth=depth), SPLIT, SCORER)
    assert set(figures) == set(maps) == places
    json.dumps(figures)
    for attention in maps.values():
        assert attention.shape == (240, 16)
        np.testing.assert_allclose(attention.sum(axis=1), 1, atol=1e-6)


def test_figures_are_those_of_each_place_and_of_its_control():
    figures, maps = score_looking(HEADS, SPLIT, SCORER)
    named = SPLIT.truth.named(SPLIT.layout, SPLIT.questions.scene_index, SPLIT.questions.question)
    shares, index = cover(SPLIT, 8), SPLIT.questions.scene_index
    images = torch.from_numpy(SPLIT.scenes.images)
    for head in (HEADS.classifier, HEADS.generator):
        name = "classifier" if head is HEADS.classifier else "generator"
        random = randomised(head, SCORER.seed)
        assert isinstance(random, AnswerClassifier | PhraseGenerator)
        seen = {
            f"{name}_encoder": [rollout(one.vision, images, 16)[index] for one in (head, random)],
            f"{name}_words": [read_attention(one, data_of(SPLIT), 16) for one in (head, random)],
        }
        for place, (own, control) in seen.items():
            np.testing.assert_allclose(maps[place], own, atol=1e-6)
            expected = _score(own, named, shares, SPLIT, SCORER)
            apart = _score(control, named, shares, SPLIT, SCORER)
            assert figures[place] == pytest.approx(
                expected | {f"random_weights_{key}": apart[key] for key in ("mass", "times_area")},
                abs=1e-6,
            )


def test_pictures_without_questions_are_passed_over():
    """Where an object was erased, empty pictures are asked nothing: alone in a batch, too."""
    altered = erase_object(SPLIT)
    asked = replace(SPLIT, scenes=altered.scenes, questions=altered.questions)
    assert 0 < len(set(altered.questions.scene_id.tolist())) < 30
    for head in (HEADS.classifier, HEADS.generator):
        one, many = (read_attention(head, data_of(asked), size) for size in (8, 240))
        np.testing.assert_allclose(one, many, atol=1e-5)
    small, large = (
        replace(HEADS, batch_size=size).reply(altered.scenes, altered.questions) for size in (1, 64)
    )
    assert (small.answers.answer == large.answers.answer).all()
    assert (small.phrases == large.phrases).all()
    np.testing.assert_allclose(small.answers.confidence, large.answers.confidence, atol=1e-5)
