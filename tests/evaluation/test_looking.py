"""Where models look: against products and loops written out, and attention made by hand."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from answerers import COLORFUL, make_data, make_split
from small_heads import SCORER, SPLIT, TOKENIZER, data_of, make_heads

from vlm.data.loading import to_floats
from vlm.evaluation.altering import Split
from vlm.evaluation.looking import (
    Floats,
    _score,
    cover,
    read_attention,
    rollout,
    score_looking,
)
from vlm.marks import BOS_ID, EOS_ID
from vlm.model.attention import SelfAttention, watch_attention
from vlm.model.vit import VisionEncoder, ViTConfig
from vlm.model.vqa import AnswerClassifier, PhraseGenerator
from vlm.scenes.scene import Bools

IMAGES = torch.from_numpy(SPLIT.scenes.images)
poolings = pytest.mark.parametrize("pooling", ["cls", "mean"])


def make_encoder(pooling: Literal["cls", "mean"], **changes: Any) -> VisionEncoder:
    config = ViTConfig(image_size=32, patch_size=8, in_channels=1, hidden=16, depth=3, heads=2)
    encoder = VisionEncoder(replace(config, pooling=pooling, **changes)).eval()
    for layer in encoder.modules():
        if isinstance(layer, SelfAttention):  # far from uniform
            torch.nn.init.normal_(layer.qkv.weight, std=0.7)
    return encoder


@poolings
def test_rollout_equals_a_product_written_out(pooling: Literal["cls", "mean"]):
    encoder = make_encoder(pooling)
    got = rollout(encoder, IMAGES, batch_size=7)
    assert got.shape == (30, 16)
    np.testing.assert_allclose(got.sum(axis=1), 1, atol=1e-6)
    for number in range(30):
        with torch.no_grad(), watch_attention(encoder) as seen:
            encoder(to_floats(IMAGES[number : number + 1]))
        product = np.eye(17)
        for layer in range(3):
            weights = seen[f"blocks.{layer}.attention"][0][0].double().numpy()  # (H, S, S)
            step = np.zeros((17, 17))
            for one in range(17):
                for other in range(17):
                    mean = sum(head[one, other] for head in weights) / 2
                    step[one, other] = 0.5 * mean + (0.5 if one == other else 0.0)
            product = step @ product
        rows = [0] if pooling == "cls" else range(1, 17)
        reach = np.sum([product[row, 1:] for row in rows], axis=0)
        np.testing.assert_allclose(got[number], reach / reach.sum(), atol=1e-5)
    assert got.std(axis=1).min() > 1e-3


@poolings
def test_rollout_does_not_depend_on_the_batch(pooling: Literal["cls", "mean"]):
    encoder = make_encoder(pooling)
    whole = rollout(encoder, IMAGES, batch_size=64)
    np.testing.assert_allclose(rollout(encoder, IMAGES, batch_size=1), whole, atol=1e-6)


@poolings
def test_queries_of_nothing_look_everywhere_alike(pooling: Literal["cls", "mean"]):
    """Then a layer is half the identity and half 1 / S, and all patches are one another's equal."""
    encoder = make_encoder(pooling)
    for layer in encoder.modules():
        if isinstance(layer, SelfAttention):
            torch.nn.init.zeros_(layer.qkv.weight[:16])
            torch.nn.init.zeros_(layer.qkv.bias[:16])
    np.testing.assert_allclose(rollout(encoder, IMAGES[:3], 8), 1 / 16, atol=1e-7)


def test_one_layer_of_a_class_token_is_its_row():
    encoder = make_encoder("cls", depth=1)
    with torch.no_grad(), watch_attention(encoder) as seen:
        encoder(to_floats(IMAGES))
    row = seen["blocks.0.attention"][0].mean(dim=1)[:, 0, 1:].double().numpy()
    expected = row / row.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(rollout(encoder, IMAGES, 8), expected, atol=1e-6)


def slow_reading(model: AnswerClassifier | PhraseGenerator, split: Split, row: int) -> Floats:
    """One question alone: no padding, and a loop over layers, heads and words."""
    questions = split.questions
    ids = TOKENIZER.encode([questions.question[row]])
    words = ids[0].tolist()
    image = to_floats(IMAGES[questions.scene_index[row]][None])
    with torch.no_grad(), watch_attention(model) as seen:
        if isinstance(model, PhraseGenerator):
            said = TOKENIZER.encode([questions.phrase[row]])[:, :-1]
            model(image, ids, said)
            places = list(range(said.shape[1]))
        else:
            model(image, ids)
            places = [at for at, word in enumerate(words) if word not in (BOS_ID, EOS_ID)]
    total = np.zeros(16)
    for name, calls in seen.items():
        if "cross" in name:
            for head in calls[0][0].double().numpy():
                for place in places:
                    total += head[place, 1:17]
    return total / total.sum()


@pytest.mark.parametrize("name", ["classifier", "generator"])
def test_reading_equals_each_question_alone_in_any_batch(name: str):
    model = getattr(make_heads(), name)
    small, large = (read_attention(model, data_of(SPLIT), size) for size in (1, 120))
    assert small.shape == (240, 16)
    np.testing.assert_allclose(small.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(small, large, atol=1e-5)
    for row in range(0, 240, 11):
        np.testing.assert_allclose(large[row], slow_reading(model, SPLIT, row), atol=1e-5)
    assert small.std(axis=0).min() > 1e-5  # questions differ


@pytest.mark.parametrize("name", ["classifier", "generator"])
def test_reading_of_some_questions_in_another_order(name: str):
    model = getattr(make_heads(), name)
    whole = read_attention(model, data_of(SPLIT), 64)
    part = read_attention(model, data_of(SPLIT, np.arange(200, 100, -3)), 64)
    np.testing.assert_allclose(part, whole[200:100:-3], atol=1e-5)


@pytest.mark.parametrize("patch", [1, 4, 8])
def test_cover_sums_to_the_pixels_of_each_object(patch: int):
    for split in (SPLIT, make_split(20, data=make_data(**COLORFUL))):
        shares = cover(split, patch)
        size, number = split.data.world.image_size, len(split.scenes)
        assert shares.shape[::2] == (number, (size // patch) ** 2)
        assert shares.min() >= 0 and shares.max() <= 1
        world = split.data.world.model_copy(update={"noise": 0.0})
        for scene, objects in enumerate(split.scenes.objects):
            for slot in range(shares.shape[1]):
                alone = replace(split, data=split.data.model_copy(update={"world": world}))
                scenes = replace(split.scenes, objects=[objects[slot : slot + 1]])
                alone = replace(alone, scenes=scenes)
                image = alone.redrawn(alone.layout, np.arange(0)).scenes.images[0].any(axis=0)
                assert shares[scene, slot].sum() * patch**2 == pytest.approx(image.sum())
                side = size // patch
                corner = image[:patch, size - patch :].mean()
                assert shares[scene, slot, side - 1] == pytest.approx(corner)


INDEX = SPLIT.questions.scene_index


def named_objects() -> Bools:
    return SPLIT.truth.named(SPLIT.layout, INDEX, SPLIT.questions.question)


def test_attention_on_the_named_object_alone():
    """By single pixels, so that one lies wholly within its object."""
    named, shares = named_objects(), cover(SPLIT, 1)
    attention = np.full((240, 1024), 1 / 1024)
    others = attention.copy()
    for row in np.flatnonzero(named.any(axis=1)):
        inside = shares[INDEX[row]][named[row]].sum(axis=0) > 0
        attention[row] = inside / inside.sum()
        others[row] = ~inside / (~inside).sum()
    figures = _score(attention, named, shares, SPLIT, SCORER)
    assert figures["questions"] == named.any(axis=1).sum() > 50
    assert figures["mass"] == pytest.approx(1)
    assert figures["times_area"] == pytest.approx(1 / figures["area"])
    assert figures["others_times_area"] == pytest.approx(0)
    assert _score(others, named, shares, SPLIT, SCORER)["mass"] == pytest.approx(0)


@pytest.mark.parametrize("patch", [1, 8])
def test_uniform_attention_is_the_area(patch: int):
    shares = cover(SPLIT, patch)
    patches = shares.shape[2]
    figures = _score(np.full((240, patches), 1 / patches), named_objects(), shares, SPLIT, SCORER)
    for name in ("times_area", "times_area_low", "times_area_high", "others_times_area"):
        assert figures[name] == pytest.approx(1)
    assert figures["mass"] == pytest.approx(figures["area"])
    assert figures["mass_low"] < figures["mass"] < figures["mass_high"]


def test_scores_counted_slowly():
    named, shares = named_objects(), cover(SPLIT, 8)
    attention = np.random.default_rng(0).dirichlet(np.ones(16), 240)
    masses, areas, other_masses, other_areas = [], [], [], []
    for row in range(240):
        objects = [slot for slot in range(3) if named[row, slot]]
        if not objects:
            continue
        rest = [
            slot for slot in range(len(SPLIT.scenes.objects[INDEX[row]])) if slot not in objects
        ]
        for slots, mass, area in ((objects, masses, areas), (rest, other_masses, other_areas)):
            covered = [sum(shares[INDEX[row], slot, p] for slot in slots) for p in range(16)]
            mass.append(sum(attention[row, p] * min(1.0, covered[p]) for p in range(16)))
            area.append(np.mean(covered))
    figures = _score(attention, named, shares, SPLIT, SCORER)
    assert figures["mass"] == pytest.approx(np.mean(masses))
    assert figures["area"] == pytest.approx(np.mean(areas))
    assert figures["times_area"] == pytest.approx(sum(masses) / sum(areas))
    assert figures["others_times_area"] == pytest.approx(sum(other_masses) / sum(other_areas))


def test_objects_over_one_another_cover_a_patch_once():
    split = make_split(2)
    named = np.zeros((16, 3), bool)
    named[0] = True
    shares = np.full((2, 3, 16), 0.75)
    scorer = replace(SCORER, scene_ids=split.questions.scene_id)
    figures = _score(np.full((16, 16), 1 / 16), named, shares, split, scorer)
    assert figures["questions"] == 1
    assert figures["mass"] == figures["area"] == pytest.approx(1)


def test_questions_that_name_nothing_have_no_figures():
    data = make_data().model_copy(update={"families": {"count": 1.0}})
    split = make_split(5, data=data)
    figures, _ = score_looking(make_heads(), split, replace(SCORER, scene_ids=np.arange(40)))
    for place in figures.values():
        assert place["questions"] == 0 and place["mass"] is place["random_weights_mass"] is None
