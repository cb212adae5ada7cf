"""The training script that one writes first, of `torch.nn` alone: what our training is set beside.

Shapes: P pictures, M questions, A answers, B rows of a batch, N patches, T text tokens, D width,
V vocabulary.

It is the well-known VQA notebook's: a small Vision Transformer over patches, a Transformer over the
question, their vectors multiplied, and Adam at a constant rate. Sizes, steps and rates are those of
`presets/notebook.yaml`. Nothing in it is slow on purpose; what it does without is what
ours does: each row of a batch is one question with its own picture, encoded for it alone.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlm.config import ModelConfig, OptimizerConfig, Params
from vlm.data.tables import QuestionTable, SceneTable
from vlm.data.tokenizer import TextTokenizer
from vlm.marks import BOS_ID, EOS_ID, PAD_ID


class Examples(NamedTuple):
    """Questions about pictures, as tensors that lie ready.

    Attributes:
        images: (P, C, H, W) uint8.
        image_of: (M,) the picture of each question.
        questions: (M, T), padded to the longest of all.
        answers: (M,) index in the list of answers; -1 where it isn't in it.
        phrases: (M, T), padded.
    """

    images: Tensor
    image_of: Tensor
    questions: Tensor
    answers: Tensor
    phrases: Tensor

    def pictures(self, rows: Tensor) -> Tensor:
        """(B, C, H, W) floats in [0, 1], a picture a row."""
        return self.images[self.image_of[rows]].float() / 255


def examples(
    scenes: SceneTable,
    asked: QuestionTable,
    tokenizer: TextTokenizer,
    answers: list[str],
    phrase_length: int,
) -> Examples:
    """The tables as the plain script reads them; phrases are padded to `phrase_length` tokens."""
    index = {answer: i for i, answer in enumerate(answers)}
    phrases = tokenizer.encode(list(asked.phrase), phrase_length)
    return Examples(
        torch.from_numpy(scenes.images),
        torch.from_numpy(asked.scene_index),
        tokenizer.encode(list(asked.question)),
        torch.tensor([index.get(answer, -1) for answer in asked.answer]),
        F.pad(phrases, (0, phrase_length - phrases.shape[1]), value=PAD_ID),
    )


def sinusoids(length: int, width: int) -> Tensor:
    """(length, width): sines in the even columns, cosines in the odd (Vaswani et al. 2017)."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)


class PictureEncoder(nn.Module):
    """A Vision Transformer, its patch tokens averaged: (B, C, H, W) -> (B, D)."""

    positions: Tensor

    def __init__(self, model: ModelConfig, image_size: int, channels: int) -> None:
        super().__init__()
        sizes = model.vision
        self.patches = nn.Conv2d(channels, sizes.hidden, sizes.patch_size, sizes.patch_size)
        count = (image_size // sizes.patch_size) ** 2
        self.register_buffer("positions", sinusoids(count, sizes.hidden))
        self.layers = transformer(sizes.hidden, sizes.heads, sizes.mlp_ratio, sizes.depth)

    def forward(self, pictures: Tensor) -> Tensor:
        tokens = self.patches(pictures).flatten(2).transpose(1, 2)  # (B, N, D)
        return self.layers(tokens + self.positions).mean(dim=1)


class QuestionEncoder(nn.Module):
    """A Transformer over the words, averaged over those that aren't padding: (B, T) -> (B, D)."""

    positions: Tensor

    def __init__(self, model: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        sizes = model.text
        self.embedding = nn.Embedding(vocab_size, sizes.hidden, padding_idx=PAD_ID)
        self.register_buffer("positions", sinusoids(sizes.max_length, sizes.hidden))
        self.layers = transformer(sizes.hidden, sizes.heads, sizes.mlp_ratio, sizes.depth)

    def forward(self, ids: Tensor) -> Tensor:
        padding = ids == PAD_ID
        x = self.embedding(ids) + self.positions[: ids.shape[1]]
        x = self.layers(x, src_key_padding_mask=padding)
        real = (~padding)[..., None]
        return (x * real).sum(dim=1) / real.sum(dim=1)


def transformer(width: int, heads: int, mlp_ratio: float, depth: int) -> nn.TransformerEncoder:
    """PyTorch's own, with its defaults: LayerNorm after each sum, ReLU."""
    layer = nn.TransformerEncoderLayer(
        width, heads, int(width * mlp_ratio), dropout=0.0, batch_first=True
    )
    return nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)


class PlainClassifier(nn.Module):
    """Picture vector times question vector, then an MLP over the answers: (B, A)."""

    def __init__(self, params: Params, vocab_size: int, answers: int) -> None:
        super().__init__()
        model, world = params.model, params.data.world
        self.picture = PictureEncoder(model, world.image_size, world.channels)
        self.question = QuestionEncoder(model, vocab_size)
        wide = params.train_vqa.classifier.head_hidden
        self.head = nn.Sequential(
            nn.Linear(model.text.hidden, wide), nn.ReLU(), nn.Linear(wide, answers)
        )

    def forward(self, pictures: Tensor, questions: Tensor) -> Tensor:
        return self.head(self.picture(pictures) * self.question(questions))

    def loss(self, data: Examples, rows: Tensor) -> Tensor:
        """Mean cross-entropy of these questions."""
        logits = self(data.pictures(rows), data.questions[rows])
        return F.cross_entropy(logits, data.answers[rows], ignore_index=-1)

    def right(self, data: Examples, rows: Tensor) -> Tensor:
        """(B,) whether the likeliest answer is the true one."""
        return self(data.pictures(rows), data.questions[rows]).argmax(dim=1) == data.answers[rows]


class PlainGenerator(nn.Module):
    """A Transformer decoder over two tokens, picture and question: next-token logits (B, T, V)."""

    positions: Tensor

    def __init__(self, params: Params, vocab_size: int) -> None:
        super().__init__()
        model, world = params.model, params.data.world
        width, sizes = model.text.hidden, model.decoder
        self.picture = PictureEncoder(model, world.image_size, world.channels)
        self.question = QuestionEncoder(model, vocab_size)
        self.embedding = nn.Embedding(vocab_size, width, padding_idx=PAD_ID)
        self.register_buffer("positions", sinusoids(model.text.max_length, width))
        layer = nn.TransformerDecoderLayer(
            width, sizes.heads, int(width * sizes.mlp_ratio), dropout=0.0, batch_first=True
        )
        self.layers = nn.TransformerDecoder(layer, sizes.depth)
        self.head = nn.Linear(width, vocab_size)

    def memory(self, pictures: Tensor, questions: Tensor) -> Tensor:
        """(B, 2, D)."""
        return torch.stack([self.picture(pictures), self.question(questions)], dim=1)

    def forward(self, memory: Tensor, ids: Tensor) -> Tensor:
        length = ids.shape[1]
        x = self.embedding(ids) + self.positions[:length]
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        return self.head(self.layers(x, memory, tgt_mask=later, tgt_is_causal=True))

    def loss(self, data: Examples, rows: Tensor) -> Tensor:
        """Mean cross-entropy of the next token, over those that aren't padding."""
        phrases = data.phrases[rows]
        memory = self.memory(data.pictures(rows), data.questions[rows])
        logits = self(memory, phrases[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), phrases[:, 1:].flatten(), ignore_index=PAD_ID)

    def right(self, data: Examples, rows: Tensor) -> Tensor:
        """(B,) whether greedy decoding gives the whole phrase."""
        memory, true = self.memory(data.pictures(rows), data.questions[rows]), data.phrases[rows]
        ids = torch.full((len(rows), 1), BOS_ID)
        ended = torch.zeros(len(rows), dtype=torch.bool)
        while ids.shape[1] < true.shape[1] and not ended.all():
            token = self(memory, ids)[:, -1].argmax(dim=1).masked_fill(ended, PAD_ID)
            ended |= token == EOS_ID
            ids = torch.cat([ids, token[:, None]], dim=1)
        ids = F.pad(ids, (0, true.shape[1] - ids.shape[1]), value=PAD_ID)
        return (ids == true).all(dim=1)


Plain = PlainClassifier | PlainGenerator


def train_plainly(
    model: Plain, data: Examples, config: OptimizerConfig, seed: int, every: int, most: int
) -> Iterator[int]:
    """Adam at a constant rate; yields the steps done every `every` of them, and ends at `most`.

    Questions are shuffled each epoch and cut into batches; the short one at the end is used too.
    """
    draws = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    model.train()
    step = 0
    while True:
        for rows in torch.randperm(len(data.answers), generator=draws).split(config.batch_size):
            optimizer.zero_grad()
            model.loss(data, rows).backward()
            optimizer.step()
            step += 1
            if step % every == 0 or step == most:
                yield step
            if step == most:
                return


@torch.no_grad()
def count_right(model: Plain, data: Examples, batch_size: int) -> int:
    """How many of all questions the model gets right; it is left in training mode."""
    model.eval()
    parts = torch.arange(len(data.answers)).split(batch_size)
    right = sum(int(model.right(data, rows).sum()) for rows in parts)
    model.train()
    return right
