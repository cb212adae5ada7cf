"""The mock corpus and the suite by their rules, and `evaluate` by models whose score is known."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vlm import (
    PAD_ID,
    EvalSuite,
    UserError,
    VisionLanguageModel,
    VLMConfig,
    bleu4,
    build_eval_suite,
    evaluate,
    freeze,
    mock_pairs,
    wilson,
)
from vlm.evaluation.rouge import rouge_l
from vlm.generation import decoding
from vlm.model.memory import Memory
from vlm.model.vlm import ImageFeatures

VOCAB, LENGTH, N = 60, 9, 21
CONFIG = VLMConfig(
    vision_hidden=16,
    vision_depth=1,
    vision_dropout=0.3,
    projection_hidden=16,
    vocab_size=VOCAB,
    max_text_len=LENGTH,
    text_hidden=16,
    text_depth=1,
    decoder_depth=1,
    decoder_dropout=0.3,
)
CHANCE = {
    f"{direction}_R@{k}": f"chance_R@{k}"
    for direction in ("image_to_text", "text_to_image")
    for k in (1, 5, 10)
}
CHANCE |= {f"{direction}_MRR": "chance_MRR" for direction in ("image_to_text", "text_to_image")}


@pytest.fixture(scope="module")
def suite() -> EvalSuite:
    return build_eval_suite(0, N, VOCAB, LENGTH)


def caption(i: int, vocab_size: int, max_len: int) -> list[int]:
    """The rule of the corpus, one id at a time."""
    ids = [1 + (17 * i + i % 5) % (vocab_size - 1)]
    while len(ids) < min(6 + i % 8, max_len):
        ids.append(ids[-1] + 3 if ids[-1] + 3 < vocab_size else ids[-1] + 3 - (vocab_size - 1))
    return ids + [PAD_ID] * (max_len - len(ids))


@pytest.mark.parametrize(
    ("vocab_size", "max_len", "seed"), [(512, 16, 0), (40, 9, 2), (128, 3, -1)]
)
def test_captions_follow_the_rule(vocab_size, max_len, seed):
    text_ids = mock_pairs(200, vocab_size, max_len, seed).text_ids.tolist()
    assert text_ids == [caption(1000 * seed + i, vocab_size, max_len) for i in range(200)]


def test_pictures_are_noise_on_seven_levels():
    images = mock_pairs(70, seed=0).images
    assert images.shape == (70, 3, 32, 32) and images.dtype == torch.float32
    assert images.min() >= -1 and images.max() == 1
    dark = images[0]  # on 0, which no clipping reaches
    assert dark.mean().abs() < 0.02 and 0.19 < dark.std() < 0.21
    for i in range(70):
        if i % 7 < 5:  # clipping pulls the brightest down
            assert images[i].mean() == pytest.approx(i % 7 / 7, abs=0.02)
    assert mock_pairs(2, image_size=8, channels=1).images.shape == (2, 1, 8, 8)


def test_a_corpus_is_its_seed_and_a_longer_one_begins_the_same():
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first, again, other = mock_pairs(20), mock_pairs(20), mock_pairs(20, seed=1)
    assert torch.equal(first.images, again.images)
    assert not torch.equal(first.images, other.images)
    assert not {*map(tuple, first.text_ids.tolist())} & {*map(tuple, other.text_ids.tolist())}
    assert torch.equal(first.text_ids, mock_pairs(30).text_ids[:20])
    assert torch.equal(state, torch.get_rng_state())


def test_suite_follows_its_rules(suite):
    pairs = mock_pairs(N, VOCAB, LENGTH, seed=-1)
    assert [len(items) for items in suite] == [N, N, N]
    for row, (pair, asked, described) in enumerate(zip(*suite, strict=True)):
        assert all(torch.equal(item.image, pairs.images[row]) for item in (pair, asked, described))
        padded = pairs.text_ids[row].tolist()
        ids = pair.caption.tolist()
        assert ids == [i for i in padded if i != PAD_ID]
        assert asked.answer == ids[0]
        assert 3 <= len(asked.question) <= LENGTH
        assert all(1 <= i < VOCAB for i in asked.question.tolist())
        own, *variants = (reference.tolist() for reference in described.references)
        assert own == ids and len(variants) == 2
        for variant in variants:
            assert all(1 <= i < VOCAB for i in variant)
            shifts = {(v - i) % (VOCAB - 1) for i, v in zip(ids, variant, strict=True)}
            assert shifts <= {1, 2, 3, 4}


def test_suite_is_its_seed(suite):
    assert flat(suite) == flat(build_eval_suite(0, N, VOCAB, LENGTH))
    assert flat(suite) != flat(build_eval_suite(1, N, VOCAB, LENGTH))


def flat(suite: EvalSuite) -> list:
    """The suite as plain numbers."""
    return [
        field.tolist() if isinstance(field, Tensor) else [ids.tolist() for ids in field]
        for items in (suite.retrieval, suite.caps)
        for item in items
        for field in item
    ] + [(image.sum().item(), question.tolist(), answer) for image, question, answer in suite.vqa]


@pytest.mark.parametrize("text_depth", [0, 1])
def test_batch_size_changes_no_figure(suite, text_depth):
    model = VisionLanguageModel(VLMConfig(**{**vars(CONFIG), "text_depth": text_depth}))
    one, many = evaluate(model, suite, batch_size=1), evaluate(model, suite, batch_size=16)
    assert one.keys() == many.keys()
    for name in one:
        tolerance = 1e-5 if name.startswith("caption_") else 0
        assert one[name] == pytest.approx(many[name], abs=tolerance, rel=0), name


def test_against_one_sample_at_a_time(suite):
    """The slow obvious way: no padding, no batch, no cache."""
    model = VisionLanguageModel(CONFIG).eval()
    right, scores, overlaps = 0, [], []
    with torch.no_grad():
        for image, question, answer in suite.vqa:
            memory = model.encode_images(image[None]).tokens
            right += int(model.decoder(question[None], memory)[0, -1].argmax()) == answer
        for image, references in suite.caps:
            memory = model.encode_images(image[None]).tokens
            ids = references[0][:1].tolist()
            while len(ids) < len(references[0]):
                ids.append(int(model.decoder(torch.tensor([ids]), memory)[0, -1].argmax()))
            wanted = [reference[1:] for reference in references]
            scores.append(bleu4(ids[1:], wanted))
            overlaps.append(rouge_l(ids[1:], wanted))
    figures = evaluate(model, suite)
    assert figures["vqa_exact_match"] == right / N
    assert figures["caption_bleu4"] == pytest.approx(sum(scores) / N, abs=1e-9)
    assert figures["caption_rouge_l"] == pytest.approx(sum(overlaps) / N, abs=1e-9)


class Told(nn.Module):
    """Stands in for a decoder: says the captions it was told, the memory being their number."""

    def __init__(self, captions: list[list[int]]) -> None:
        super().__init__()
        self.captions = captions
        self.config = replace(CONFIG.decoder, vision_dim=1)
        self.head = nn.Linear(1, 1)

    def new_cache(self, batch_size: int, max_length: int) -> SimpleNamespace:
        return SimpleNamespace(length=0)

    def forward(self, text_ids: Tensor, memory: Tensor, cache=None, **_) -> Tensor:
        place = 0  # a question: the answer is the caption's first id
        if cache is not None:
            cache.length += text_ids.shape[1]
            place = cache.length
        logits = torch.zeros(*text_ids.shape, VOCAB)
        for row, number in enumerate(memory.flatten().int().tolist()):
            said = self.captions[number]
            logits[
                row, -1 if cache is not None else slice(None), said[min(place, len(said) - 1)]
            ] = 1
        return logits


class Aloud:
    """Stands in for the engine, which would read the weights of a decoder: asks `Told`."""

    def __init__(self, decoder: Told, *, compile: bool) -> None:
        self.decoder = decoder

    def __call__(self, text_ids: Tensor, memory: Memory, cache: Any, text_mask: None) -> Tensor:
        return self.decoder(text_ids, memory.parts[0].tokens, cache)[:, -1]


@pytest.fixture
def aloud(monkeypatch):
    monkeypatch.setattr(decoding, "Engine", Aloud)
    monkeypatch.setattr(decoding, "check_cache", lambda *_: None)


class Scripted(VisionLanguageModel):
    """Knows each picture's number, and says and matches what it was told for it."""

    def __init__(self, suite: EvalSuite, captions: list[list[int]], vectors: Tensor) -> None:
        super().__init__(CONFIG)
        self.suite, self.vectors = suite, vectors
        self.decoder = Told(captions)  # pyright: ignore[reportAttributeAccessIssue]

    def encode_images(self, images: Tensor) -> ImageFeatures:
        known = torch.stack([pair.image for pair in self.suite.retrieval])
        numbers = [int((known == image).flatten(1).all(dim=1).nonzero()) for image in images]
        return ImageFeatures(torch.tensor(numbers)[:, None, None].float(), self.vectors[numbers])

    def encode_text(self, text_ids: Tensor) -> Tensor:
        captions = [pair.caption.tolist() for pair in self.suite.retrieval]
        return self.vectors[[captions.index([i for i in ids if i]) for ids in text_ids.tolist()]]


@pytest.mark.usefixtures("aloud")
def test_a_model_that_knows_everything_scores_1(suite):
    model = Scripted(suite, [pair.caption.tolist() for pair in suite.retrieval], torch.eye(N))
    figures = evaluate(model, suite, batch_size=4)
    for name in (*CHANCE, "vqa_exact_match", "caption_bleu4", "caption_rouge_l"):
        assert figures[name] == figures[f"{name}_high"] == 1.0
    assert figures["vqa_exact_match_low"] == pytest.approx(wilson(N, N).low)
    assert figures["n_samples"] == N


@pytest.mark.usefixtures("aloud")
@pytest.mark.parametrize("width", [16, 100])
def test_a_model_that_sees_and_reads_nothing_scores_chance(suite, width):
    word = suite.vqa[3].answer
    model = Scripted(suite, [[word] * LENGTH] * N, torch.randn(width).expand(N, width))
    figures = evaluate(model, suite, batch_size=4)
    for name, chance in CHANCE.items():
        assert figures[name] == pytest.approx(figures[chance], abs=1e-12)
        if not name.endswith("MRR"):  # every picture has the same, so nothing to resample
            assert figures[f"{name}_low"] < figures[chance] < figures[f"{name}_high"]
    assert figures["chance_MRR"] == pytest.approx(sum(1 / i for i in range(1, N + 1)) / N)
    assert [figures[f"chance_R@{k}"] for k in (1, 5, 10)] == [1 / N, 5 / N, 10 / N]
    assert figures["vqa_exact_match"] == sum(item.answer == word for item in suite.vqa) / N
    assert figures["chance_vqa"] == 1 / (VOCAB - 1)  # the mean over all words
    said = [
        bleu4([word] * (len(own) - 1), [own[1:], *(variant[1:] for variant in variants)])
        for _, (own, *variants) in suite.caps
    ]
    assert figures["caption_bleu4"] == pytest.approx(sum(said) / N)
    assert figures["caption_bleu4"] < 3 * figures["chance_bleu4"] < 0.3
    assert 0 < figures["caption_rouge_l"] < 3 * figures["chance_rouge_l"] < 0.6


def test_more_places_than_pairs_is_certain_and_says_so():
    figures = evaluate(VisionLanguageModel(CONFIG), build_eval_suite(0, 4, VOCAB, LENGTH))
    for k in (5, 10):
        assert figures[f"image_to_text_R@{k}"] == figures[f"chance_R@{k}"] == 1.0
    assert figures["chance_R@1"] == 0.25


def test_modes_and_random_state_are_left_as_they_were(suite):
    model = VisionLanguageModel(CONFIG).train()
    freeze(model.text)
    model.projector.eval()
    modes = [module.training for module in model.modules()]
    state = torch.get_rng_state()
    assert evaluate(model, suite) == evaluate(model, suite)  # dropout is off
    assert modes == [module.training for module in model.modules()]
    assert torch.equal(state, torch.get_rng_state())


def test_mode_comes_back_after_a_mistake_too(suite):
    model = VisionLanguageModel(VLMConfig(**{**vars(CONFIG), "image_size": 64})).train()
    with pytest.raises(UserError, match="spatial mismatch"):
        evaluate(model, suite)
    assert model.training


@pytest.mark.parametrize("sizes", [(0, 40, 9), (5, 5, 9), (5, 40, 2)])
def test_a_suite_too_small_is_refused(sizes):
    with pytest.raises(UserError, match="expected at least 1, 3 and 6"):
        build_eval_suite(0, *sizes)


@pytest.mark.parametrize("sizes", [(0, 40, 9), (5, 1, 9), (5, 40, 0)])
def test_a_corpus_too_small_is_refused(sizes):
    with pytest.raises(UserError, match="expected at least 1, 1 and 2"):
        mock_pairs(*sizes)


def test_what_a_model_cannot_be_asked(suite):
    model = VisionLanguageModel(CONFIG)
    with pytest.raises(UserError, match="vqa is empty"):
        evaluate(model, suite._replace(vqa=[]))
    with pytest.raises(UserError, match="batch_size 0"):
        evaluate(model, suite, batch_size=0)
    with pytest.raises(UserError, match=r"suite has id \d+, but the model's vocab_size is 60"):
        evaluate(model, build_eval_suite(0, N, 90, LENGTH))
    with pytest.raises(UserError, match="exceeds"):
        evaluate(model, build_eval_suite(0, N, VOCAB, LENGTH + 5))
