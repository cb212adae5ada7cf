"""Where the models look: the share of attention that falls on the objects a question names.

Attention that takes no notice of the picture puts on an object what its area is of the picture, so
the two stand beside each other; and the same model with random weights beside both, since some
pattern comes from the architecture alone (Adebayo et al. 2018, "Sanity checks for saliency maps").

Attention isn't use: a model may look where it learns nothing. What a model uses is told by erasing
and moving objects (`causal`).

Shapes: N pictures, P patches, M questions, T words, S memory tokens, K object slots.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from vlm.data.loading import QuestionData, chunks, to_device, to_floats
from vlm.evaluation.altering import Split
from vlm.evaluation.heads import Heads
from vlm.evaluation.intervals import bootstrap
from vlm.evaluation.scoring import Figures, Scorer, ends
from vlm.marks import BOS_ID, EOS_ID, PAD_ID
from vlm.model.attention import watch_attention
from vlm.model.vit import VisionEncoder
from vlm.model.vqa import AnswerClassifier, PhraseGenerator
from vlm.scenes.interventions import object_pixels, only
from vlm.scenes.scene import Bools

Floats = npt.NDArray[np.float64]
CROSS = "cross_attention"  # ends the name of a layer that reads the memory


def rollout(encoder: VisionEncoder, images: Tensor, batch_size: int) -> Floats:
    """How much of each patch reaches the pooled vector through the attention of all layers: (N, P).

    Attention rollout (Abnar and Zuidema 2020): in each layer a token is half itself and half what
    it attends to, heads averaged, and the layers multiply. Rows sum to 1.

    Args:
        encoder: with at least one layer.
        images: (N, C, H, W) uint8.
        batch_size: pictures at once.
    """
    device = encoder.cls.device
    parts = []
    with torch.inference_mode():
        for part in chunks(len(images), batch_size):
            with watch_attention(encoder) as seen:
                encoder(to_floats(images[part].to(device)))
            reach = None
            for (weights,) in seen.values():  # one call a layer, the first layer first
                step = (weights.mean(dim=1) + torch.eye(weights.shape[-1], device=device)) / 2
                reach = step if reach is None else step @ reach
            assert reach is not None
            pooled = reach[:, 0] if encoder.config.pooling == "cls" else reach[:, 1:].mean(dim=1)
            patches = pooled[:, 1:]
            parts.append((patches / patches.sum(dim=1, keepdim=True)).cpu())
    return torch.cat(parts).double().numpy()


def read_attention(
    model: AnswerClassifier | PhraseGenerator, data: QuestionData, batch_size: int
) -> Floats:
    """How the words of each question, or of its true phrase, spread over the patches: (M, P).

    The mean over words, heads and layers of cross-attention's weights on patches; rows sum to 1.
    """
    device = next(model.parameters()).device
    patches = model.config.vision.num_patches
    found = np.zeros((data.num_questions, patches))
    with torch.inference_mode():
        for part in data.asked(max(1, batch_size // 8)):
            batch = to_device(data.batch(part), device)
            if isinstance(model, PhraseGenerator):
                words, extra = batch.phrase_ids[:, :-1], (batch.phrase_ids[:, :-1],)
                real = (words != PAD_ID) & (words != EOS_ID)
            else:
                words, extra = batch.question_ids[batch.question_rows], ()
                real = (words != PAD_ID) & (words != BOS_ID) & (words != EOS_ID)
            with watch_attention(model) as seen:
                model(
                    to_floats(batch.images),
                    batch.question_ids,
                    *extra,
                    batch.image_rows,
                    batch.question_rows,
                )
            layers = [calls[0] for name, calls in seen.items() if name.endswith(CROSS)]
            weights = torch.stack(layers).mean(dim=(0, 2))[..., 1 : patches + 1]  # (B, T, P)
            summed = (weights * real[..., None]).sum(dim=1)
            found[batch.rows.cpu().numpy()] = (
                (summed / summed.sum(dim=1, keepdim=True)).double().cpu().numpy()
            )
    return found


def cover(split: Split, patch_size: int) -> Floats:
    """The share of each patch that each object covers, (N, K, P)."""
    world, layout = split.data.world, split.layout
    side, slots = world.image_size // patch_size, layout.shape.shape[1]
    shares = []
    for slot in range(slots):
        pixels = object_pixels(
            only(layout, np.arange(slots) == np.full((len(layout), 1), slot)), world
        )
        cells = pixels.reshape(-1, side, patch_size, side, patch_size)
        shares.append(cells.mean(axis=(2, 4)).reshape(len(layout), -1))
    return np.stack(shares, axis=1)


def randomised(model: nn.Module, seed: int) -> nn.Module:
    """The same architecture with weights as they are before any training."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        if isinstance(model, AnswerClassifier):
            fresh: nn.Module = AnswerClassifier(
                model.config,
                model.answers,
                model.fusion,
                model.fusion_depth,
                model.head_hidden,
                model.question_frequency,
            )
        elif isinstance(model, PhraseGenerator):
            fresh = PhraseGenerator(
                model.config, model.memory_kind, model.context, model.question_frequency
            )
        else:
            raise TypeError(f"expected one of the heads, got {type(model).__name__}")
    return fresh.to(next(model.parameters()).device).eval()


def score_looking(heads: Heads, split: Split, scorer: Scorer) -> tuple[Figures, dict[str, Floats]]:
    """For each place where attention meets the picture: mass on named objects, area, control.

    The places are the vision encoder of each head, which sees no question, and the layers that read
    image tokens for each word, where a head has any (`fusion: attention`, `memory: tokens`).

    Returns:
        The figures by place, and (M, P) attention by place.
    """
    asked = split.questions
    named = split.truth.named(split.layout, asked.scene_index, asked.question)
    named &= split.layout.present[asked.scene_index]
    shares = cover(split, heads.classifier.config.patch_size)
    figures: Figures = {}
    maps = {}
    for place, trained, control in _places(heads, split, scorer.seed):
        maps[place] = trained
        own = _score(trained, named, shares, split, scorer)
        random = _score(control, named, shares, split, scorer)
        figures[place] = own | {
            f"random_weights_{name}": random[name] for name in ("mass", "times_area")
        }
    return figures, maps


def _places(heads: Heads, split: Split, seed: int) -> Iterator[tuple[str, Floats, Floats]]:
    """A name, and the attention of the trained and of the random model, (M, P) each."""
    images = torch.from_numpy(split.scenes.images)
    answers = heads.classifier.answers
    data = QuestionData(split.scenes, split.questions, heads.tokenizer, heads.max_length, answers)
    size = heads.batch_size
    for name, head in (("classifier", heads.classifier), ("generator", heads.generator)):
        random = randomised(head, seed)
        assert isinstance(random, AnswerClassifier | PhraseGenerator)
        if head.vision.config.depth:
            both = (rollout(model.vision, images, size) for model in (head, random))
            own, control = (one[split.questions.scene_index] for one in both)
            yield f"{name}_encoder", own, control
        reads = (
            head.fusion == "attention"
            if isinstance(head, AnswerClassifier)
            else head.memory_kind == "tokens"
        )
        if reads:
            yield (
                f"{name}_words",
                read_attention(head, data, size),
                read_attention(random, data, size),
            )


def _score(
    attention: Floats, named: Bools, shares: Floats, split: Split, scorer: Scorer
) -> Figures:
    """Means over the questions that name an object in their picture."""
    index = split.questions.scene_index
    rows = np.flatnonzero(named.any(axis=1))
    if not len(rows):
        return {"questions": 0, "mass": None, "area": None, "times_area": None}
    present = split.layout.present[index[rows]]
    sums = np.zeros((len(split.scenes), 5))
    for column, slots in ((0, named[rows]), (2, present & ~named[rows])):
        covered = np.einsum("mk,mkp->mp", slots, shares[index[rows]]).clip(max=1)
        mass = (attention[rows] * covered).sum(axis=1)
        np.add.at(sums[:, column], index[rows], mass)
        np.add.at(sums[:, column + 1], index[rows], covered.mean(axis=1))
    np.add.at(sums[:, 4], index[rows], 1)
    total = sums.sum(axis=0)

    def interval(name: str, top: int, bottom: int) -> Figures:
        ratio = bootstrap(
            sums,
            lambda s: s[:, top] / np.where(s[:, bottom] > 0, s[:, bottom], np.nan),
            resamples=scorer.resamples,
            seed=scorer.seed,
        )
        return {name: total[top] / total[bottom], **ends(name, ratio)}

    figures = {"questions": len(rows), "area": total[1] / total[4]}
    figures |= interval("mass", 0, 4) | interval("times_area", 0, 1)
    return figures | (interval("others_times_area", 2, 3) if total[3] else {})
