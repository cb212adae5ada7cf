"""Image-text retrieval: recall, reciprocal rank and median rank, honest about ties and equals.

Two conventions decide what these numbers mean:

- *Equals.* Relevance comes from keys: an item is a hit when its key equals the query's. With fact
  keys, a caption that also describes another picture is a hit for both; with ids as keys only the
  query's own items count.
- *Ties.* Items of equal score have no order, so each figure is its expected value over a random
  one. A constant model therefore scores chance, k / N, rather than 0 or 1 by luck of the sort.

Q: queries, G: gallery items, N: pairs. Recall@K here is the field's "hit rate" (CLIP, Flickr30k):
the share of queries with at least one hit in the first K, whatever the number of relevant items.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vlm.errors import UserError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class FirstHits:
    """Where the first relevant item of each query falls, before ties are broken.

    All the relevant items that can come first share the best relevant score. `ahead` items score
    strictly more (none of them relevant), `tied` items share that score, and `relevant` of those
    are hits, so every figure below is a closed form over a random order of the tied items.

    Attributes:
        ahead: (Q,) items with a strictly greater score.
        tied: (Q,) items at the best relevant score, the relevant ones included.
        relevant: (Q,) relevant items among the tied, at least 1.
        in_class: (Q,) relevant items in the whole gallery.
        gallery_size: G.
    """

    ahead: IntArray
    tied: IntArray
    relevant: IntArray
    in_class: IntArray
    gallery_size: int

    def within(self, k: int) -> FloatArray:
        """Chance that a hit is among the first k, (Q,) in [0, 1]; 0 or 1 without ties.

        Of the tied items, `drawn` make it into the first k; all of them miss with the
        hypergeometric probability C(tied - relevant, drawn) / C(tied, drawn).
        """
        drawn = np.clip(k - self.ahead, 0, self.tied)
        missed = np.ones(len(drawn))
        for i in range(int(drawn.max())):
            misses_left = np.maximum(self.tied - self.relevant - i, 0)
            items_left = np.maximum(self.tied - i, 1)
            missed *= np.where(i < drawn, misses_left / items_left, 1.0)
        return 1.0 - missed

    def reciprocal_rank(self) -> FloatArray:
        """Expected 1 / rank of the first hit, (Q,) in (0, 1].

        The first hit is at place j of the tied items with chance
        C(tied - j, relevant - 1) / C(tied, relevant), built up here from place to place.
        """
        chance = self.relevant / self.tied
        expected = np.zeros(len(chance))
        for place in range(1, int((self.tied - self.relevant).max()) + 2):
            expected += chance / (self.ahead + place)
            misses_left = np.maximum(self.tied - self.relevant - place + 1, 0)
            chance = chance * misses_left / np.maximum(self.tied - place, 1)
        return expected

    def rank(self) -> FloatArray:
        """Expected rank of the first hit, (Q,), counted from 1."""
        return self.ahead + (self.tied + 1) / (self.relevant + 1)

    def by_chance(self) -> "FirstHits":
        """The same queries and gallery under a constant similarity: what guessing scores."""
        nothing_ahead = np.zeros_like(self.ahead)
        whole_gallery = np.full_like(self.tied, self.gallery_size)
        return FirstHits(
            nothing_ahead, whole_gallery, self.in_class, self.in_class, self.gallery_size
        )


def first_hits(
    sim: ArrayLike, query_keys: ArrayLike, gallery_keys: ArrayLike, chunk_size: int = 1024
) -> FirstHits:
    """Locates each query's first relevant item in the gallery.

    Example: `first_hits([[0.9, 0.5, 0.5]], ["x"], ["y", "x", "z"])` has one item ahead and two
    tied, of which one is relevant: rank 2.5, R@1 0, R@2 0.5, R@3 1.

    Args:
        sim: (Q, G) similarities, larger is closer; an array or a tensor on any device.
        query_keys: (Q,) integers or strings.
        gallery_keys: (G,) keys of the same kind; equal keys are relevant to each other.
        chunk_size: Queries worked on at once; bounds memory, changes no value.

    Raises:
        UserError: shapes that do not fit, a similarity that is not finite, no query, or a query
            with nothing relevant in the gallery.
    """
    scores = _as_scores(sim)
    queries, gallery = np.asarray(query_keys), np.asarray(gallery_keys)
    if scores.shape != (queries.size, gallery.size) or queries.ndim != 1 or gallery.ndim != 1:
        raise UserError(
            f"similarity shape {scores.shape} does not match "
            f"query keys {queries.shape} and gallery keys {gallery.shape}"
        )
    if queries.size == 0:
        raise UserError("retrieval needs at least 1 query, got 0")
    _, codes = np.unique(np.concatenate([queries, gallery]), return_inverse=True)
    query_codes, gallery_codes = codes[: queries.size], codes[queries.size :]
    in_class = np.bincount(gallery_codes, minlength=int(codes.max()) + 1)[query_codes]
    if not in_class.all():
        raise UserError(f"query {int(in_class.argmin())} has no relevant item in the gallery")

    ahead, tied, relevant = (np.empty(queries.size, dtype=np.int64) for _ in range(3))
    for start in range(0, queries.size, chunk_size):
        rows = slice(start, start + chunk_size)
        is_relevant = query_codes[rows, None] == gallery_codes
        best = np.where(is_relevant, scores[rows], -np.inf).max(axis=1, keepdims=True)
        is_tied = scores[rows] == best
        ahead[rows] = (scores[rows] > best).sum(axis=1)
        tied[rows] = is_tied.sum(axis=1)
        relevant[rows] = (is_tied & is_relevant).sum(axis=1)
    return FirstHits(ahead, tied, relevant, in_class, gallery.size)


def recall_at_k(sim: ArrayLike, k: int) -> tuple[float, float]:
    """Recall@K of N matched pairs in both directions, by id.

    Example: `recall_at_k(np.zeros((4, 4)), 1)` is `(0.25, 0.25)`: all tied, so chance.

    Args:
        sim: (N, N) similarities, image i in row i, its caption in column i; an array or a tensor.
        k: Length of the list that is looked at, in [1, N].

    Returns:
        (image-to-text, text-to-image), each in [0, 1]; ties count their expected value.

    Raises:
        UserError: `sim` is not square or not finite, or k is outside [1, N].
    """
    scores = _as_scores(sim)
    if scores.ndim != 2 or scores.shape[0] != scores.shape[1]:
        raise UserError(f"similarity must be square (N, N), got shape {scores.shape}")
    size = len(scores)
    if k not in range(1, size + 1):
        raise UserError(f"k {k} not in [1, N={size}]")
    ids = np.arange(size)
    image_to_text = first_hits(scores, ids, ids).within(k).mean()
    text_to_image = first_hits(scores.T, ids, ids).within(k).mean()
    return float(image_to_text), float(text_to_image)


def retrieval_report(hits: FirstHits, ks: Sequence[int] = (1, 5, 10)) -> dict[str, float]:
    """Every figure of one direction, with chance and the gallery's size beside them.

    A k of at least the gallery's size scores 1, and so does chance: the keys are the same in every
    run, and the numbers say themselves that they mean nothing. Intervals want one value a query:
    take `hits.within(1)`.

    Returns:
        `R@K` and `chance_R@K` for each k, `MRR`, `median_rank`, `num_queries`, `gallery_size`.
        `chance_R@1` is the mean share of the gallery that is in the query's class.
    """
    chance = hits.by_chance()
    report: dict[str, float] = {f"R@{k}": float(hits.within(k).mean()) for k in ks}
    report |= {f"chance_R@{k}": float(chance.within(k).mean()) for k in ks}
    return report | {
        "MRR": float(hits.reciprocal_rank().mean()),
        "median_rank": float(np.median(hits.rank())),
        "num_queries": len(hits.ahead),
        "gallery_size": hits.gallery_size,
    }


def _as_scores(sim: ArrayLike) -> FloatArray:
    """Reads similarities as float64, which holds every narrower float exactly: no new ties."""
    detach = getattr(sim, "detach", None)  # a torch tensor, possibly with a gradient or bfloat16
    scores = np.asarray(sim if detach is None else detach().cpu().double(), dtype=np.float64)
    if not np.isfinite(scores).all():
        raise UserError("similarity must be finite, got NaN or infinity")
    return scores
