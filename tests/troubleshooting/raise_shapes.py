"""What makes each error of the page's section on shapes appear."""

from typing import Any

import numpy as np
import pytest
import torch
from error_page import Raiser
from torch._dynamo.exc import TorchDynamoException

from vlm.data.mock import mock_pairs
from vlm.evaluation.calibration import expected_calibration_error, fit_temperature
from vlm.evaluation.intervals import ratio_interval
from vlm.evaluation.retrieval import first_hits_of_vectors, recall_at_k
from vlm.evaluation.rouge import rouge_l
from vlm.evaluation.suite import EvalSuite, build_eval_suite, evaluate
from vlm.evaluation.vqa_metrics import vqa_exact_match
from vlm.generation import decode_greedy, generate
from vlm.generation.one_query import compiled
from vlm.losses import info_nce_loss, lm_loss
from vlm.model.attention import SelfAttention, causal_mask
from vlm.model.decoder import DecoderConfig, VisionLanguageDecoder
from vlm.model.kv_cache import KVCache
from vlm.model.memory import Memory, MemoryPart
from vlm.model.patch_embed import PatchEmbed
from vlm.model.text import TextConfig, TextEncoder
from vlm.model.vit import ViTConfig
from vlm.model.vlm import ContrastiveCaptioner, VLMConfig
from vlm.model.vqa import PhraseGenerator

CONFIG = VLMConfig(vision_hidden=16, vision_depth=1, text_hidden=16, vocab_size=11)
PICTURE = torch.zeros(1, 3, 32, 32)
DECODER = DecoderConfig(hidden=32, heads=4, depth=1, text_vocab=11, max_text_len=16, vision_dim=32)

MEMORY = torch.zeros(2, 5, 32)


def ids(batch: int, length: int) -> torch.Tensor:
    return torch.ones(batch, length, dtype=torch.int64)


def decoded(batch: int, length: int, memory: tuple[int, int, int]) -> Raiser:
    """Gives the decoder so many ids and a memory of this shape."""
    return lambda: VisionLanguageDecoder(DECODER)(ids(batch, length), torch.zeros(memory))


def cached(room: int, held: int, rows: int = 2) -> tuple[VisionLanguageDecoder, KVCache]:
    """A decoder, and a cache of it with room for some positions, some of them held."""
    decoder = VisionLanguageDecoder(DECODER)
    cache = decoder.new_cache(rows, room)
    with torch.no_grad():
        decoder(ids(rows, held), torch.zeros(rows, 5, 32), cache=cache)
    return decoder, cache


def cached_call(room: int, held: int, batch: int, new: int) -> Raiser:
    """Calls the decoder with more ids over that cache."""

    def call() -> None:
        decoder, cache = cached(room, held)
        decoder(ids(batch, new), torch.zeros(batch, 5, 32), cache=cache)

    return call


SUITE = build_eval_suite(seed=0, n_samples=1, vocab_size=512, max_len=8)


def examined(suite: EvalSuite, batch_size: int = 1) -> Raiser:
    return lambda: evaluate(ContrastiveCaptioner(CONFIG), suite, batch_size)


def without_compiler() -> None:
    """Decodes compiled where `torch.compile` fails as it does on a machine without a compiler."""

    def fail(function: object, **_: object) -> Raiser:
        raise TorchDynamoException("InvalidCxxCompiler: No working C++ compiler found")

    compiled.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "compile", fail)
        generate(ContrastiveCaptioner(CONFIG), PICTURE, compile=True)


def spoken(**settings: Any) -> Raiser:
    """Asks a captioner for the caption of one picture."""
    return lambda: generate(ContrastiveCaptioner(CONFIG), PICTURE, **settings)


def decoding(memory: torch.Tensor | Memory = MEMORY, **settings: Any) -> Raiser:
    """Decodes four tokens for two rows."""
    decoder = VisionLanguageDecoder(DECODER)
    return lambda: decode_greedy(decoder, memory, ids(2, 3), 4, **settings)


def pointing(rows: torch.Tensor) -> Raiser:
    """Captions pictures that rows point at."""
    pictures = torch.zeros(3, 3, 32, 32)
    return lambda: generate(ContrastiveCaptioner(CONFIG), pictures, image_rows=rows)


SHAPES: dict[str, Raiser] = {
    "queries (2, 3) do not match gallery (2, 4): expected (Q, D) and (G, D)": lambda: (
        first_hits_of_vectors(torch.ones(2, 3), torch.ones(2, 4), [0, 1], [0, 1])
    ),
    "an accuracy needs at least 1 question, got 0": lambda: ratio_interval([[0.0]], [[0.0]]),
    "confidence (3,) and correct (2,) differ": lambda: expected_calibration_error(
        np.full(3, 0.5), [True, False]
    ),
    "confidence must be in [0, 1]": lambda: expected_calibration_error(np.array([80.0]), [True]),
    "logits (3, 4) and labels (2,) must be (M, A) and (M,)": lambda: fit_temperature(
        np.zeros((3, 4)), np.array([0, 1])
    ),
    "ROUGE-L needs at least 1 reference, got 0": lambda: rouge_l(["a", "circle"], []),
    "cache holds 3 positions and a memory; clear it first": decoding(cache=cached(16, 3)[1]),
    "cache of (layers, heads, width, dtype) (2, 4, 8, torch.float32) does not match"
    " (1, 4, 8, torch.float32)": decoding(cache=KVCache(2, 2, 4, 8, 16)),
    "context (1, 8) does not match (2, 32)": decoding(
        Memory([MemoryPart(MEMORY)], context=torch.zeros(1, 8))
    ),
    "image_rows: got 0 to 3, expected 0 to 2": pointing(torch.tensor([0, 3])),
    "image_rows: got torch.float32 of shape (3,), expected torch.int64 of one dimension": pointing(
        torch.zeros(3)
    ),
    "memory mask: got torch.float32 of shape (2, 5), expected torch.bool of shape (2, 5)": decoding(
        Memory([MemoryPart(MEMORY, mask=torch.ones(2, 5))])
    ),
    "memory: got torch.float64 of shape (2, 5, 32), expected torch.float32 of shape (items, tokens,"
    " width)": decoding(MEMORY.double()),
    "prompt mask: got padding after a prompt, expected it before": decoding(
        prompt_mask=torch.tensor([[True, True, True], [True, True, False]])
    ),
    "use_cache: got False with a cache, expected True": spoken(
        use_cache=False, cache=VisionLanguageDecoder(DECODER).new_cache(1)
    ),
    "compile: got …; expected a C++ compiler for torch.compile": without_compiler,
    "depth: got -1, expected at least 0": lambda: ViTConfig(depth=-1),
    "equivalent (3, 3) does not match (4, 4)": lambda: info_nce_loss(
        torch.ones(4, 8), torch.ones(4, 8), equivalent=torch.eye(3, dtype=torch.bool)
    ),
    "mask: got torch.float32, expected torch.bool": lambda: SelfAttention(8, 2)(
        torch.ones(1, 5, 8), causal_mask(5).float()
    ),
    "norm: got prenorm, expected one of pre, post": lambda: ViTConfig(norm="prenorm"),
    "pictures: got shape (1, 1, 32, 32), expected (B, 3, 32, 32)": lambda: PatchEmbed(32, 8)(
        torch.zeros(1, 1, 32, 32)
    ),
    "pixel_std: got (0.0,), expected more than 0": lambda: ViTConfig(pixel_std=(0.0,)),
    "suite seed -1, n_samples 50: expected at least 0, and at most 1000": lambda: build_eval_suite(
        seed=-1, n_samples=50, vocab_size=512, max_len=8
    ),
    "batch 1, prompt 1, new tokens 0: expected 1 or more each": lambda: generate(
        ContrastiveCaptioner(CONFIG), PICTURE, max_new_tokens=0
    ),
    "batch_size 0: expected at least 1": examined(SUITE, batch_size=0),
    "cache batch size 2 does not match 3": cached_call(8, 4, batch=3, new=1),
    "cache batch_size 0, max_length 8: expected >= 1 and >= 0": lambda: VisionLanguageDecoder(
        DECODER
    ).new_cache(0, 8),
    "cache holds 7 of 8 positions; 2 more do not fit": cached_call(8, 7, batch=2, new=2),
    "cannot truncate to 5: the cache holds 4 positions": lambda: cached(8, 4)[1].truncate(5),
    "causal mask shape (4, 4) does not match (5, 5)": lambda: SelfAttention(8, 2)(
        torch.zeros(1, 5, 8), causal_mask(4)
    ),
    "got 2 predictions but 3 references": lambda: vqa_exact_match(["yes", "2"], ["yes", "2", "no"]),
    "image_emb (4, 8) does not match text_emb (3, 8)": lambda: info_nce_loss(
        torch.zeros(4, 8), torch.zeros(3, 8)
    ),
    "k 5 not in [1, N=4]": lambda: recall_at_k(torch.eye(4), 5),
    "logits (2, 5, 11) do not match targets (2, 4)": lambda: lm_loss(
        torch.zeros(2, 5, 11), ids(2, 4)
    ),
    "memory batch size 2 does not match 3": decoded(3, 4, (2, 5, 32)),
    "memory width 48 does not match 32": decoded(3, 4, (3, 5, 48)),
    "mock pairs 0, max_len 16, vocab_size 512: expected at least 1, 1 and 2": lambda: mock_pairs(0),
    "prompt of 1 and 17 new tokens need 17 positions; the decoder has 16": lambda: generate(
        ContrastiveCaptioner(CONFIG), PICTURE, max_new_tokens=17
    ),
    "questions: got None, expected a question for the generator": lambda: generate(
        PhraseGenerator(CONFIG), PICTURE
    ),
    "reorder rows (2,) do not match (3,)": lambda: cached(8, 4, rows=3)[1].reorder(
        torch.tensor([1, 0])
    ),
    "similarity must be square (N, N), got shape (3, 4)": lambda: recall_at_k(torch.zeros(3, 4), 1),
    "spatial mismatch: got (48, 48), expected (32, 32)": lambda: PatchEmbed(32, 8)(
        torch.zeros(1, 3, 48, 48)
    ),
    "suite has id 17, but the model's vocab_size is 11": examined(
        build_eval_suite(seed=0, n_samples=1, vocab_size=18, max_len=40)
    ),
    "suite n_samples 0, max_len 8, vocab_size 512: expected at least 1, 3 and 6": lambda: (
        build_eval_suite(seed=0, n_samples=0, vocab_size=512, max_len=8)
    ),
    "suite: caps is empty, expected at least 1 sample": examined(SUITE._replace(caps=[])),
    "text length 17 exceeds max_length 16": lambda: TextEncoder(
        TextConfig(vocab_size=11, depth=1, max_length=16)
    )(ids(1, 17)),
    "text length 17 exceeds max_text_len 16": decoded(1, 17, (1, 5, 32)),
    "keep_logits: got True with num_beams 4, expected num_beams 1": spoken(
        num_beams=4, keep_logits=True
    ),
    "length_penalty: got inf, expected a finite number": spoken(length_penalty=float("inf")),
    "num_beams: got 0, expected 1 or more": spoken(num_beams=0),
    "num_beams: got 4 with temperature 0.7, expected 1": spoken(num_beams=4, temperature=0.7),
    "row_ids: got torch.int64 of shape (2,), expected integers of shape (3,)": lambda: generate(
        ContrastiveCaptioner(CONFIG), PICTURE.expand(3, -1, -1, -1), row_ids=torch.arange(2)
    ),
    "rows: got 2 of pictures, 3 of questions, expected as many": lambda: generate(
        PhraseGenerator(CONFIG), PICTURE.expand(2, -1, -1, -1), ids(3, 4)
    ),
    "temperature: got -1.0, expected 0 or more, and finite": spoken(temperature=-1.0),
    "top_k: got -1, expected 0 or more": spoken(top_k=-1),
    "top_p: got 0.0, expected more than 0 and at most 1": spoken(top_p=0.0),
}
