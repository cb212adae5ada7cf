"""A small exam for a pretrained model: held-out mock pairs, and every metric over them.

Shapes: B rows, C channels, H W pixels, T tokens, N pairs.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from vlm.data.mock import SEED_STRIDE, mock_pairs
from vlm.errors import UserError
from vlm.evaluation.intervals import Interval, bootstrap, wilson
from vlm.evaluation.predicting import cosines
from vlm.evaluation.retrieval import first_hits
from vlm.evaluation.rouge import rouge_l
from vlm.evaluation.text_metrics import bleu4
from vlm.evaluation.vqa_metrics import vqa_exact_match
from vlm.generation import decode_greedy
from vlm.marks import PAD_ID
from vlm.model.vlm import ContrastiveCaptioner

RECALL_KS = (1, 5, 10)
SHORTEST_QUESTION = 3
NUM_VARIANTS = 2
LARGEST_SHIFT = 4


class Pair(NamedTuple):
    """A picture (C, H, W) and its caption (T,)."""

    image: Tensor
    caption: Tensor


class Question(NamedTuple):
    """A picture (C, H, W), a question about it (T,) and the id that answers it."""

    image: Tensor
    question: Tensor
    answer: int


class Described(NamedTuple):
    """A picture (C, H, W) and captions that would do, (T,) each: its own first."""

    image: Tensor
    references: list[Tensor]


class EvalSuite(NamedTuple):
    """What `evaluate` asks of a model. Ids are unpadded."""

    retrieval: list[Pair]
    vqa: list[Question]
    caps: list[Described]


def build_eval_suite(seed: int, n_samples: int, vocab_size: int, max_len: int) -> EvalSuite:
    """Three lists over the same mock pairs, none of them in a corpus of seed 0 or more.

    A question is 3 to `max_len` random ids, and its answer the first id of the caption. A picture
    is described by its caption and by two variants, whose every id lies 1 to 4 further on, wrapping
    inside the vocabulary.

    Raises:
        UserError: no samples, no room for a question, or a vocabulary in which a shifted id could
            be the same id again.
    """
    if seed < 0 or n_samples > SEED_STRIDE:  # then it would meet a training corpus
        raise UserError(
            f"suite seed {seed}, n_samples {n_samples}: expected at least 0, and at most"
            f" {SEED_STRIDE}"
        )
    if n_samples < 1 or max_len < SHORTEST_QUESTION or vocab_size < LARGEST_SHIFT + 2:
        raise UserError(
            f"suite n_samples {n_samples}, max_len {max_len}, vocab_size {vocab_size}:"
            f" expected at least 1, {SHORTEST_QUESTION} and {LARGEST_SHIFT + 2}"
        )
    generator = torch.Generator().manual_seed(seed)
    suite = EvalSuite([], [], [])
    # Corpora count their seeds from 0 up, the suite from -1 down: nobody can train on it unawares.
    pairs = mock_pairs(n_samples, vocab_size, max_len, seed=-1 - seed)
    for image, padded in zip(*pairs, strict=True):
        caption = padded[padded != PAD_ID]
        length = int(torch.randint(SHORTEST_QUESTION, max_len + 1, (), generator=generator))
        question = torch.randint(1, vocab_size, (length,), generator=generator)
        variants = [_variant(caption, vocab_size, generator) for _ in range(NUM_VARIANTS)]
        suite.retrieval.append(Pair(image, caption))
        suite.vqa.append(Question(image, question, int(caption[0])))
        suite.caps.append(Described(image, [caption, *variants]))
    return suite


def _variant(caption: Tensor, vocab_size: int, generator: torch.Generator) -> Tensor:
    """(T,) -> (T,): every id shifted by 1 to 4, within 1..vocab_size - 1."""
    shift = torch.randint(1, LARGEST_SHIFT + 1, caption.shape, generator=generator)
    return 1 + (caption - 1 + shift) % (vocab_size - 1)


@torch.inference_mode()
def evaluate(
    model: ContrastiveCaptioner, suite: EvalSuite, batch_size: int = 64
) -> dict[str, float]:
    """Every metric of a suite, each with its 95% interval and what chance would score.

    - `image_to_text_R@k` and `text_to_image_R@k` for k of 1, 5 and 10, by cosine of the pooled
      vectors; beside them `chance_R@k`. Only a picture's own caption is a hit; one that is equal
      to it ties. Where there are no more than k pairs, all these are 1. `image_to_text_MRR` and
      `text_to_image_MRR` are the mean of 1 / rank, `chance_MRR` that of a constant model.
    - `vqa_exact_match`: the decoder reads picture and question, and its likeliest next id is the
      answer. `chance_vqa` is that of a guess among all ids but padding.
    - `caption_bleu4`: the decoder is given the caption's first id and goes on greedily to the
      caption's length; the mean BLEU-4 of what it added. `chance_bleu4` is that of random ids.
      `caption_rouge_l` and `chance_rouge_l` are their ROUGE-L F1.
    - Each figure's interval is `NAME_low` and `NAME_high`: Wilson's for shares, else bootstrap.

    Training mode is put back afterwards, module by module.

    Args:
        model: a `VisionLanguageModel`; it may lie on any device.
        suite: see `build_eval_suite`.
        batch_size: rows at once; it changes memory and time, not the figures.

    Raises:
        UserError: an empty suite, a batch size below 1, or an id that the model doesn't know.
    """
    _check(suite, model.config.vocab_size, batch_size)
    with _in_eval_mode(model):
        return {
            "n_samples": len(suite.retrieval),
            **_score_retrieval(_similarity(model, suite.retrieval, batch_size)),
            **_score_answers(model, suite.vqa, batch_size),
            **_score_captions(model, suite.caps, batch_size),
        }


def _check(suite: EvalSuite, vocab_size: int, batch_size: int) -> None:
    if batch_size < 1:
        raise UserError(f"batch_size {batch_size}: expected at least 1")
    for name, items in suite._asdict().items():
        if not items:
            raise UserError(f"suite: {name} is empty, expected at least 1 sample")
    texts = [pair.caption for pair in suite.retrieval]
    texts += [item.question for item in suite.vqa]
    texts += [reference for item in suite.caps for reference in item.references]
    largest = max(int(ids.max()) for ids in texts)
    if largest >= vocab_size:
        raise UserError(f"suite has id {largest}, but the model's vocab_size is {vocab_size}")


@contextmanager
def _in_eval_mode(model: nn.Module) -> Iterator[None]:
    """Every module in eval mode, and afterwards each as it was: some may have been frozen."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _similarity(model: ContrastiveCaptioner, pairs: Sequence[Pair], batch_size: int) -> Tensor:
    """(N, N) cosines, pictures by captions."""
    images = _stacked(model, [pair.image for pair in pairs])
    pooled = [model.encode_images(part).pooled for part in images.split(batch_size)]
    # Each distinct caption once, so that equal ones have equal vectors to the last bit.
    ids, rows = _padded(model, [pair.caption for pair in pairs]).unique(dim=0, return_inverse=True)
    texts = [model.encode_text(part) for part in ids.split(batch_size)]
    return cosines(torch.cat(pooled), torch.cat(texts))[:, rows]


def _score_retrieval(similarity: Tensor) -> dict[str, float]:
    size = len(similarity)
    ids = np.arange(size)
    figures: dict[str, float] = {}
    for direction, scores in (("image_to_text", similarity), ("text_to_image", similarity.T)):
        hits = first_hits(scores, ids, ids)
        for k in RECALL_KS:
            share = float(hits.within(k).mean())
            figures |= _figure(f"{direction}_R@{k}", share, wilson(share * size, size))
            figures[f"chance_R@{k}"] = min(k, size) / size
        figures |= _mean(f"{direction}_MRR", hits.reciprocal_rank())
        figures["chance_MRR"] = float(hits.by_chance().reciprocal_rank().mean())
    return figures


def _score_answers(
    model: ContrastiveCaptioner, items: Sequence[Question], batch_size: int
) -> dict[str, float]:
    images = _stacked(model, [item.image for item in items])
    questions = _padded(model, [item.question for item in items])
    answers: list[int] = []
    for image, ids in zip(images.split(batch_size), questions.split(batch_size), strict=True):
        logits = model.decoder(ids, model.encode_images(image).tokens)  # (B, T, V)
        last = (ids != PAD_ID).sum(dim=1) - 1  # padding comes after it, and so is not read
        answers += logits[torch.arange(len(ids)), last].argmax(dim=-1).tolist()
    share = vqa_exact_match(answers, [item.answer for item in items])
    interval = wilson(share * len(items), len(items))
    return {
        **_figure("vqa_exact_match", share, interval),
        "chance_vqa": 1 / (model.config.vocab_size - 1),
    }


def _score_captions(
    model: ContrastiveCaptioner, items: Sequence[Described], batch_size: int
) -> dict[str, float]:
    # The first id is given, so no reference is read for it.
    wanted = [[reference[1:] for reference in item.references] for item in items]
    written = _write(model, items, batch_size)
    generator = torch.Generator().manual_seed(0)
    guesses = [
        torch.randint(1, model.config.vocab_size, own.shape, generator=generator)
        for own, *_ in wanted
    ]
    figures: dict[str, float] = {}
    for name, metric in (("bleu4", bleu4), ("rouge_l", rouge_l)):
        scores = np.array([metric(*pair) for pair in zip(written, wanted, strict=True)])
        chance = np.mean([metric(*pair) for pair in zip(guesses, wanted, strict=True)])
        figures |= _mean(f"caption_{name}", scores) | {f"chance_{name}": float(chance)}
    return figures


def _write(
    model: ContrastiveCaptioner, items: Sequence[Described], batch_size: int
) -> list[list[int]]:
    """What the decoder adds to each caption's first id, to the length of the caption."""
    captions = _padded(model, [item.references[0] for item in items])
    images = _stacked(model, [item.image for item in items])
    written: list[list[int]] = []
    for image, ids in zip(images.split(batch_size), captions.split(batch_size), strict=True):
        new = ids.shape[1] - 1
        memory = model.encode_images(image).tokens
        cache = model.decoder.new_cache(len(ids), new)
        decoded = decode_greedy(
            model.decoder, memory, ids[:, :1], new, cache=cache, stop_at_end=False
        )
        lengths = (ids != PAD_ID).sum(dim=1) - 1
        rows = zip(decoded.tokens.tolist(), lengths.tolist(), strict=True)
        written += [tokens[:length] for tokens, length in rows]
    return written


def _stacked(model: nn.Module, images: list[Tensor]) -> Tensor:
    return torch.stack(images).to(next(model.parameters()).device)


def _padded(model: nn.Module, texts: list[Tensor]) -> Tensor:
    """(N, T) ids, all at one length, so that no figure hangs on the company in a batch."""
    ids = pad_sequence(texts, batch_first=True, padding_value=PAD_ID)
    return ids.to(next(model.parameters()).device)


def _figure(name: str, value: float, interval: Interval) -> dict[str, float]:
    return {name: value, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _mean(name: str, values: NDArray[np.float64]) -> dict[str, float]:
    """The mean over samples (N,), its interval by bootstrap."""
    interval = bootstrap(values[:, None], lambda sums: sums[:, 0] / len(values))
    return _figure(name, float(values.mean()), interval)
