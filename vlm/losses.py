"""The losses, as pure functions.

Shapes: B batch, T tokens, V vocabulary, D width.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

from vlm.errors import UserError

LOG_SCALE_RANGE = (math.log(1e-3), math.log(100.0))
INIT_LOG_TAU = math.log(1 / 0.07)


def cosine_alignment_loss(image_emb: Tensor, text_emb: Tensor) -> Tensor:
    """Mean of 1 - cos over pairs (B, D): 0 aligned, 1 orthogonal, 2 opposite.

    Raises:
        UserError: embeddings of different shapes.
    """
    _check_pairs(image_emb, text_emb)
    dtype = torch.promote_types(image_emb.dtype, torch.float32)
    return (1 - F.cosine_similarity(image_emb.to(dtype), text_emb.to(dtype), dim=-1)).mean()


def info_nce_loss(
    image_emb: Tensor,
    text_emb: Tensor,
    log_tau: Tensor | float = INIT_LOG_TAU,
    equivalent: Tensor | None = None,
    *,
    gather: Callable[[Tensor], Tensor] | None = None,
    begin: int = 0,
) -> tuple[Tensor, Tensor]:
    """Symmetric InfoNCE (Radford et al. 2021): each picture picks its text, each text its picture.

    Args:
        image_emb: (B, D), of any length; normalised here.
        text_emb: (B, D), row i belonging to picture i.
        log_tau: log of the scale on the cosines; the scale is held to [1e-3, 100].
        equivalent: (B, B) bool; True leaves text j out of picture i's negatives and picture i
            out of text j's, since it would be right. The pair itself always stays.
        gather: where processes share a batch of G pairs and this one has B of them, (B, n) to
            everyone's (G, n), with gradients. Each pair then picks among all. `equivalent`, which
            must then go both ways, and the similarity are (B, G); the mean over processes is the
            loss of the whole batch.
        begin: how many of the G come before this process's own.

    Returns:
        The mean of both directions' cross-entropies, and the scaled similarity (B, B). B equal
        pairs give ln B.

    Raises:
        UserError: embeddings of different shapes, or `equivalent` of another than (B, B).
    """
    _check_pairs(image_emb, text_emb)
    with _full_precision(image_emb):  # cosines need all their digits
        dtype = torch.promote_types(image_emb.dtype, torch.float32)
        images, texts = (F.normalize(x.to(dtype), dim=-1) for x in (image_emb, text_emb))
        log_tau = torch.as_tensor(log_tau, dtype=dtype, device=image_emb.device)
        scale = log_tau.clamp(*LOG_SCALE_RANGE).exp()
        if gather is None:
            similarity = scale * images @ texts.T
            directions = [similarity, similarity.T]
        else:
            all_images, all_texts = gather(torch.cat([images, texts], dim=1)).chunk(2, dim=1)
            similarity = scale * images @ all_texts.T
            directions = [similarity, scale * texts @ all_images.T]
        own = torch.arange(len(images), device=images.device) + begin
        if equivalent is not None:
            if equivalent.shape != similarity.shape:
                got, expected = tuple(equivalent.shape), tuple(similarity.shape)
                raise UserError(f"equivalent {got} does not match {expected}")
            others = equivalent.scatter(1, own[:, None], False)
            back = others.T if gather is None else others
            directions[0] = directions[0].masked_fill(others, -torch.inf)
            directions[1] = directions[1].masked_fill(back, -torch.inf)
        loss = sum(F.cross_entropy(logits, own) for logits in directions) / 2
    return torch.as_tensor(loss), similarity


def _full_precision(x: Tensor) -> AbstractContextManager[object]:
    """No autocast where `x` lies; the meta device knows none."""
    if x.is_meta:
        return nullcontext()
    return torch.autocast(x.device.type, enabled=False)


def _check_pairs(image_emb: Tensor, text_emb: Tensor) -> None:
    if image_emb.shape != text_emb.shape:
        raise UserError(
            f"image_emb {tuple(image_emb.shape)} does not match text_emb {tuple(text_emb.shape)}"
        )


def lm_loss(logits: Tensor, targets: Tensor, padding_id: int = 0) -> Tensor:
    """Mean cross-entropy over the targets that aren't padding; 0, with no gradient, if all are.

    The caller shifts: the logits at t are for targets at t.

    Args:
        logits: (B, T, V).
        targets: (B, T) ids.
        padding_id: the id that is left out.

    Raises:
        UserError: logits and targets of different B or T.
    """
    if logits.shape[:-1] != targets.shape:
        raise UserError(f"logits {tuple(logits.shape)} do not match targets {tuple(targets.shape)}")
    dtype = torch.promote_types(logits.dtype, torch.float32)
    total = F.cross_entropy(
        logits.flatten(0, -2).to(dtype), targets.flatten(), ignore_index=padding_id, reduction="sum"
    )
    return total / (targets != padding_id).sum().clamp(min=1)
