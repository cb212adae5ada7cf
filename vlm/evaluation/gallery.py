"""Retrieval within a gallery of pictures with a caption each: figures, intervals and floors.

Shapes: G pictures, and as many captions.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from vlm.evaluation.intervals import ratio_interval, share_interval, sums_by_image
from vlm.evaluation.retrieval import FirstHits, first_hits_of_vectors, retrieval_report
from vlm.evaluation.scoring import Figures, ends

Ints = npt.NDArray[np.int64]
KS = (1, 5, 10)


def gallery_hits(images: ArrayLike, texts: ArrayLike, keys: ArrayLike) -> dict[str, FirstHits]:
    """Where each picture finds its caption among all, and each caption its picture.

    Args:
        images, texts: (G, D) vectors of the pictures and of a caption of each.
        keys: (G,) what makes a picture and a caption a hit; equal ones are equivalent.
    """
    return {
        "image_to_text": first_hits_of_vectors(images, texts, keys, keys),
        "text_to_image": first_hits_of_vectors(texts, images, keys, keys),
    }


def blind_ranks(keys: ArrayLike, known: Mapping[str, float]) -> Ints:
    """The rank (Q,) of each query's first hit, where every query is given one and the same ranking.

    The best that can be done without looking at the query: one item of each class, the classes that
    are commonest beforehand first. A constant similarity (`by_chance`) does worse, since it spends
    its first places on many items of one class.

    Args:
        keys: (G,) those of the gallery, which are those of the queries too.
        known: how common each key is beforehand, in the training split for one.
    """
    names, codes = np.unique(np.asarray(keys, dtype=str), return_inverse=True)
    order = sorted(range(len(names)), key=lambda row: (-known.get(str(names[row]), 0), names[row]))
    place = np.empty(len(names), dtype=np.int64)
    place[order] = np.arange(1, len(names) + 1)
    return place[codes.reshape(-1)]


def score_retrieval(
    found: Mapping[str, FirstHits],
    by_id: Mapping[str, FirstHits],
    same: Mapping[str, ArrayLike],
    blind: Ints,
    resamples: int,
    seed: int,
) -> Figures:
    """Both directions, equal captions counted as hits; and strictly by id.

    Beside them what chance scores (a constant similarity), and the floor: the best ranking that is
    the same for every query.

    Args:
        found: by direction, with fact keys as keys.
        by_id: the same with ids as keys.
        same: by direction, (G,) equal entries where two queries are one and the same, such as equal
            texts: they hit or miss together, and are resampled so.
        blind: (G,) from `blind_ranks`.
        resamples, seed: of the bootstrap.
    """
    figures: Figures = {f"floor_R@{k}": float((blind <= k).mean()) for k in KS}
    figures |= {"floor_MRR": float((1 / blind).mean()), "floor_median_rank": np.median(blind)}
    for direction, hits in found.items():
        report = retrieval_report(hits, KS, by_id[direction])
        for k in KS:
            sums = sums_by_image(hits.within(k), same[direction])
            interval = ratio_interval(*sums, resamples=resamples, seed=seed)
            name = f"{direction}_R@{k}"
            figures |= {name: report[f"R@{k}"], **ends(name, interval)}
        inverse = sums_by_image(hits.reciprocal_rank(), same[direction])
        interval = share_interval(np.concatenate(inverse, axis=1), _mean, resamples, seed)
        name = f"{direction}_MRR"
        figures |= {name: report["MRR"], **ends(name, interval)}
        figures[f"{direction}_median_rank"] = report["median_rank"]
        figures[f"{direction}_id_R@1"] = report["id_R@1"]
        for name in (*(f"chance_R@{k}" for k in KS), "chance_MRR", "chance_median_rank"):
            figures[name] = report[name]
        figures["chance_id_R@1"] = report["id_chance_R@1"]
        figures["gallery"] = hits.gallery_size
    return figures


def _mean(sums: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return sums[:, 0] / sums[:, 1]
