"""Running the models over a split: pictures and questions in, words out.

Shapes: N pictures, M questions, G pictures of the gallery, D width.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from vlm.data.loading import CaptionData, QuestionData, chunks, to_device, to_floats
from vlm.data.tokenizer import TextTokenizer
from vlm.data.windows import Rows
from vlm.generation import generate
from vlm.marks import EOS_ID
from vlm.model.kv_cache import KVCache
from vlm.model.vlm import ContrastiveCaptioner
from vlm.model.vqa import AnswerClassifier, PhraseGenerator

Strings = npt.NDArray[np.object_]
Floats = npt.NDArray[np.float64]


class Answers(NamedTuple):
    """What a head says to each question and how probable it holds that, both (M,)."""

    answer: Strings
    confidence: Floats


def classify(model: AnswerClassifier, data: QuestionData, batch_size: int) -> Answers:
    """Answer every question of a split, `batch_size` pictures at a time."""
    names = np.array(model.answers, dtype=object)
    answer = np.empty(data.num_questions, dtype=object)
    confidence = np.zeros(data.num_questions)
    for rows, logits in _logits(model, data, batch_size):
        best = logits.softmax(dim=-1).max(dim=-1)
        answer[rows] = names[best.indices.cpu().numpy()]
        confidence[rows] = best.values.cpu().numpy()
    return Answers(answer, confidence)


def answer_logits(model: AnswerClassifier, data: QuestionData, batch_size: int) -> Floats:
    """The classifier's logits (M, A) of every question of a split."""
    found = np.zeros((data.num_questions, len(model.answers)))
    for rows, logits in _logits(model, data, batch_size):
        found[rows] = logits.double().cpu().numpy()
    return found


@torch.inference_mode()
def _logits(
    model: AnswerClassifier, data: QuestionData, batch_size: int
) -> Iterator[tuple[npt.NDArray[np.int64], Tensor]]:
    """Rows of the question table and the classifier's logits of them, batch by batch."""
    device = next(model.parameters()).device
    for part in data.asked(batch_size):
        batch = to_device(data.batch(part), device)
        logits = model(
            to_floats(batch.images), batch.question_ids, batch.image_rows, batch.question_rows
        )
        yield batch.rows.cpu().numpy(), logits


def phrase(
    model: PhraseGenerator, data: QuestionData, tokenizer: TextTokenizer, batch_size: int
) -> Answers:
    """A phrase for every question of a split, `batch_size` pictures at a time.

    Its confidence is the product of its tokens' probabilities, the end mark among them.
    """
    device = next(model.parameters()).device
    phrases = np.empty(data.num_questions, dtype=object)
    confidence = np.zeros(data.num_questions)
    cache: KVCache | None = None
    for part in data.asked(batch_size):
        batch = to_device(data.batch(part), device)
        if cache is None or cache.batch_size != len(batch.rows):
            cache = model.decoder.new_cache(len(batch.rows))
        tokens, logits = generate(
            model,
            to_floats(batch.images),
            batch.question_ids,
            image_rows=batch.image_rows,
            question_rows=batch.question_rows,
            cache=cache,
            keep_logits=True,
        )
        assert logits is not None
        rows = batch.rows.cpu().numpy()
        phrases[rows] = [tokenizer.decode(row) for row in tokens.tolist()]
        confidence[rows] = _probability(tokens, logits).cpu().numpy()
    return Answers(phrases, confidence)


def _probability(tokens: Tensor, logits: Tensor) -> Tensor:
    """That of each row's tokens (B, N), up to its end mark, by logits (B, N, V): (B,) doubles."""
    of_token = logits.gather(-1, tokens[..., None])[..., 0] - logits.logsumexp(dim=-1)
    ends = tokens == EOS_ID
    ended = ends.cumsum(dim=1) > ends.int()  # before this token, which may itself be a padding mark
    return of_token.masked_fill(ended, 0.0).double().sum(dim=1).exp()


def caption(
    model: ContrastiveCaptioner, images: Rows, tokenizer: TextTokenizer, batch_size: int
) -> list[str]:
    """A caption for each of N uint8 pictures."""
    device = next(model.parameters()).device
    captions: list[str] = []
    for part in chunks(len(images), batch_size):
        tokens = generate(model, to_floats(images[part].to(device))).tokens
        captions += [tokenizer.decode(row) for row in tokens.tolist()]
    return captions


@torch.inference_mode()
def embed_gallery(
    model: ContrastiveCaptioner, data: CaptionData, gallery: int, batch_size: int
) -> tuple[Tensor, Tensor]:
    """The vectors (G, D) of the first G pictures and of the first caption of each."""
    device = next(model.parameters()).device
    size = min(gallery, len(data))
    images = torch.cat(
        [
            model.encode_images(to_floats(data.images[part].to(device))).pooled
            for part in chunks(size, batch_size)
        ]
    )
    # Each distinct text once and all at one length: equal captions must tie to the last bit.
    distinct, rows = torch.unique(data.first_captions(size), return_inverse=True)
    ids = data.texts.take(distinct)
    texts = torch.cat(
        [model.encode_text(ids[part].to(device)) for part in chunks(len(ids), batch_size)]
    )
    return images, texts[rows.to(device)]


def cosines(images: Tensor, texts: Tensor) -> Tensor:
    """(N, G) cosines of (N, D) and (G, D), float64, to the six decimals that float32 can tell.

    So equal vectors tie, however their sums were rounded, and a model that tells nothing apart
    scores chance.
    """
    image_features = F.normalize(images.double(), dim=-1)
    text_features = F.normalize(texts.double(), dim=-1)
    return (image_features @ text_features.T).round(decimals=6)
