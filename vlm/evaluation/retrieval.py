"""Image-text retrieval: recall, reciprocal rank and median rank, honest about ties and equals.

Two conventions decide what these numbers mean:

- *Equals.* Relevance comes from keys: an item is a hit when its key equals the query's. With fact
  keys, a caption that also describes another picture is a hit for both; with ids as keys only the
  query's own items count.
- *Ties.* Items of equal score have no order, so each figure is its expected value over a random
  one. A constant model therefore scores chance, k / N, rather than 0 or 1 by luck of the sort.

Q: queries, G: gallery items, N: pairs, D: width, U: kinds of query. Recall@K here is the field's
"hit rate" (CLIP, Flickr30k): the share of queries with at least one hit in the first K, whatever
the number of relevant items. A score's sign means nothing, whereas torchmetrics' reciprocal rank is
0 where the hit's score is not above 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vlm.errors import UserError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
HALF = 1e-9  # a hit more or less than half; shares are sums of rounded numbers

# What the queries worked on at once may take: 84 rows of a gallery of 50,000.
CHUNK_BYTES = 64 * 2**20
BYTES_A_SCORE = 16  # itself, and marks on it
COSINE_DECIMALS = 6  # what float32 can tell
SMALLEST_NORM = 1e-12


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
        hypergeometric probability C(tied - relevant, drawn) / C(tied, drawn). The two numbers may
        be swapped, and the product has as many factors as the smaller says.
        """
        (ahead, tied, relevant), kind = self._kinds()
        drawn = np.clip(k - ahead, 0, tied)
        fewer, more = np.minimum(drawn, relevant), np.maximum(drawn, relevant)
        missed = np.ones(len(drawn))
        for i in range(int(fewer.max())):
            ratios = np.maximum(tied - more - i, 0) / np.maximum(tied - i, 1)
            missed *= np.where(i < fewer, ratios, 1.0)
        return (1.0 - missed)[kind]

    def reciprocal_rank(self) -> FloatArray:
        """Expected 1 / rank of the first hit, (Q,) in (0, 1]."""
        kinds, kind = self._kinds()
        ahead, tied, relevant = kinds
        expected = 1.0 / (ahead + 1)  # where all the tied are relevant
        for row in np.flatnonzero(tied > relevant):
            expected[row] = _expected_reciprocal(*kinds[:, row].tolist())
        return expected[kind]

    def rank(self) -> FloatArray:
        """Expected rank of the first hit, (Q,), counted from 1."""
        return self.ahead + (self.tied + 1) / (self.relevant + 1)

    def median_rank(self) -> float:
        """The median over queries and over the orders of tied items.

        Of ranks without ties it is their median; with ties the rank that half of all hits reach.
        """
        return (self._reached(0.5 - HALF) + self._reached(0.5 + HALF)) / 2

    def _reached(self, share: float) -> int:
        """The smallest k within which more than so many hits fall."""
        low, high = 1, self.gallery_size
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.within(middle).mean() > share else (middle + 1, high)
        return low

    def by_chance(self) -> "FirstHits":
        """The same queries and gallery under a constant similarity: what guessing scores."""
        nothing_ahead = np.zeros_like(self.ahead)
        whole_gallery = np.full_like(self.tied, self.gallery_size)
        return FirstHits(
            nothing_ahead, whole_gallery, self.in_class, self.in_class, self.gallery_size
        )

    def _kinds(self) -> tuple[IntArray, IntArray]:
        """The distinct (ahead, tied, relevant), (3, U), and which of them each query is, (Q,).

        Where much is tied they are few: under a constant similarity, one for each size of a class.
        """
        table = np.stack([self.ahead, self.tied, self.relevant])
        kinds, kind = np.unique(table, axis=1, return_inverse=True)
        return kinds, kind.reshape(-1)


def first_hits(
    sim: ArrayLike, query_keys: ArrayLike, gallery_keys: ArrayLike, chunk_size: int | None = None
) -> FirstHits:
    """Locates each query's first relevant item in the gallery.

    Example: `first_hits([[0.9, 0.5, 0.5]], ["x"], ["y", "x", "z"])` has one item ahead and two
    tied, of which one is relevant: rank 2.5, R@1 0, R@2 0.5, R@3 1.

    Args:
        sim: (Q, G) similarities, larger is closer; an array or a tensor on any device.
        query_keys: (Q,) integers or strings.
        gallery_keys: (G,) keys of the same kind; equal keys are relevant to each other.
        chunk_size: Queries worked on at once, by default as many as 64 MiB hold; bounds memory,
            changes no value.

    Raises:
        UserError: shapes that do not fit, a similarity that is not finite, no query, or a query
            with nothing relevant in the gallery.
    """
    scores = _as_scores(sim)
    keys = query_keys, gallery_keys
    return _locate(lambda rows: scores[rows], scores.shape, *keys, chunk_size)


def first_hits_of_vectors(
    queries: ArrayLike,
    gallery: ArrayLike,
    query_keys: ArrayLike,
    gallery_keys: ArrayLike,
    chunk_size: int | None = None,
) -> FirstHits:
    """`first_hits` by cosine, without ever holding the (Q, G) similarities.

    The cosines are those of `vlm.evaluation.predicting.cosines`: float64, rounded to the six
    decimals that float32 can tell. So equal vectors tie, however their sums were rounded; vectors
    whose cosines differ by less than a millionth tie as well. The cosine of a zero vector is 0.

    Example: of queries `[[2.0, 0.0]]` and a gallery `[[0.0, 1.0], [3.0, 0.0]]`, the second is
    nearest, with cosine 1.

    Args:
        queries: (Q, D) embeddings of any length; an array or a tensor on any device.
        gallery: (G, D) embeddings.
        query_keys, gallery_keys, chunk_size: as for `first_hits`. The other direction is a second
            call, with queries and gallery swapped.

    Raises:
        UserError: see `first_hits`; or embeddings that are not two tables of one width.
    """
    rows, columns = _sliceable(queries), _sliceable(gallery)
    if rows.ndim != 2 or columns.ndim != 2 or rows.shape[1] != columns.shape[1]:
        raise UserError(
            f"queries {tuple(rows.shape)} do not match gallery {tuple(columns.shape)}:"
            " expected (Q, D) and (G, D)"
        )
    units = _as_units(columns).T

    def cosines(part: slice) -> FloatArray:
        scores = _as_units(rows[part]) @ units
        return np.round(scores, COSINE_DECIMALS, out=scores)

    shape = len(rows), len(columns)
    return _locate(cosines, shape, query_keys, gallery_keys, chunk_size)


def _locate(
    scores_of: Callable[[slice], FloatArray],
    shape: tuple[int, ...],
    query_keys: ArrayLike,
    gallery_keys: ArrayLike,
    chunk_size: int | None,
) -> FirstHits:
    """Finds the first hits, asking for the scores of so many queries at a time."""
    queries, gallery = np.asarray(query_keys), np.asarray(gallery_keys)
    if shape != (queries.size, gallery.size) or queries.ndim != 1 or gallery.ndim != 1:
        raise UserError(
            f"similarity shape {shape} does not match "
            f"query keys {queries.shape} and gallery keys {gallery.shape}"
        )
    if queries.size == 0:
        raise UserError("retrieval needs at least 1 query, got 0")
    _, codes = np.unique(np.concatenate([queries, gallery]), return_inverse=True)
    query_codes, gallery_codes = codes[: queries.size], codes[queries.size :]
    in_class = np.bincount(gallery_codes, minlength=int(codes.max()) + 1)[query_codes]
    if not in_class.all():
        raise UserError(f"query {int(in_class.argmin())} has no relevant item in the gallery")

    if chunk_size is None:
        chunk_size = max(1, CHUNK_BYTES // (BYTES_A_SCORE * gallery.size))
    ahead, tied, relevant = (np.empty(queries.size, dtype=np.int64) for _ in range(3))
    for start in range(0, queries.size, chunk_size):
        rows = slice(start, start + chunk_size)
        scores = scores_of(rows)
        is_relevant = query_codes[rows, None] == gallery_codes
        best = scores.max(axis=1, keepdims=True, initial=-np.inf, where=is_relevant)
        is_tied = scores == best
        ahead[rows] = np.count_nonzero(scores > best, axis=1)
        tied[rows] = np.count_nonzero(is_tied, axis=1)
        relevant[rows] = np.count_nonzero(is_tied & is_relevant, axis=1)
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


def retrieval_report(
    hits: FirstHits, ks: Sequence[int] = (1, 5, 10), by_id: FirstHits | None = None
) -> dict[str, float]:
    """Every figure of one direction, with chance and the gallery's size beside them.

    A k of at least the gallery's size scores 1, and so does chance: the keys are the same in every
    run, and the numbers say themselves that they mean nothing. Intervals want one value a query:
    take `hits.within(1)`.

    Args:
        hits: With keys by which equivalent items are hits.
        ks: Lengths of the list that is looked at.
        by_id: The same scores with ids as keys, for the same figures by id alone.

    Returns:
        `R@K` for each k, `MRR` and `median_rank`, `chance_` before each name for a constant model;
        `num_queries` and `gallery_size`; with `by_id`, its figures as `id_R@K` and so on.
        `chance_R@1` is the mean share of the gallery that is in the query's class.
    """
    sizes = {"num_queries": len(hits.ahead), "gallery_size": hits.gallery_size}
    report = _figures(hits, ks) | sizes
    if by_id is not None:
        report |= {f"id_{name}": value for name, value in _figures(by_id, ks).items()}
    return report


def _figures(hits: FirstHits, ks: Sequence[int]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for prefix, source in (("", hits), ("chance_", hits.by_chance())):
        figures |= {f"{prefix}R@{k}": float(source.within(k).mean()) for k in ks}
        figures[f"{prefix}MRR"] = float(source.reciprocal_rank().mean())
        figures[f"{prefix}median_rank"] = source.median_rank()
    return figures


def _expected_reciprocal(ahead: int, tied: int, relevant: int) -> float:
    """Mean of 1 / rank of the first hit over all orders of the tied: all before it missed."""
    before = np.arange(tied - relevant + 1)
    items_left = tied - before
    misses = (items_left[:-1] - relevant) / items_left[:-1]
    missed_so_far = np.concatenate([[1.0], np.cumprod(misses)])
    return float((missed_so_far * relevant / items_left / (ahead + 1 + before)).sum())


def _sliceable(vectors: ArrayLike) -> Any:
    """Arrays and tensors as they are, so that only the rows in work are ever converted."""
    return vectors if hasattr(vectors, "shape") else np.asarray(vectors)


def _as_units(vectors: ArrayLike) -> FloatArray:
    """(N, D) -> (N, D) of length 1, in float64; a zero vector stays one."""
    units = np.array(_as_scores(vectors))  # a copy, to divide in place
    lengths = np.sqrt(np.einsum("nd,nd->n", units, units))
    units /= np.maximum(lengths, SMALLEST_NORM)[:, None]
    return units


def _as_scores(sim: ArrayLike) -> FloatArray:
    """Reads similarities as float64, which holds every narrower float exactly: no new ties."""
    detach = getattr(sim, "detach", None)  # a torch tensor, possibly with a gradient or bfloat16
    scores = np.asarray(sim if detach is None else detach().cpu().double(), dtype=np.float64)
    if not np.isfinite(scores).all():
        raise UserError("similarity must be finite, got NaN or infinity")
    return scores
