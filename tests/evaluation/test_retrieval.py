"""Retrieval figures against hand-made cases, permutations of ties, and torchmetrics."""

import time
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchmetrics.functional.retrieval import retrieval_hit_rate, retrieval_reciprocal_rank

from vlm.errors import UserError
from vlm.evaluation.predicting import cosines
from vlm.evaluation.retrieval import (
    FirstHits,
    first_hits,
    first_hits_of_vectors,
    recall_at_k,
    retrieval_report,
)

TWO_CAPTIONS_EACH = np.array(
    [
        [0.9, 0.2, 0.8, 0.1, 0.3, 0.0],
        [0.4, 0.5, 0.6, 0.05, 0.7, 0.2],
        [0.1, 0.0, 0.2, 0.3, 0.9, 0.8],
    ]
)
CAPTION_OWNER = [0, 0, 1, 1, 2, 2]


def test_two_captions_a_picture():
    image_to_text = first_hits(TWO_CAPTIONS_EACH, [0, 1, 2], CAPTION_OWNER)
    text_to_image = first_hits(TWO_CAPTIONS_EACH.T, CAPTION_OWNER, [0, 1, 2])
    # Picture 1's best caption scores 0.6 and only 0.7 beats it.
    assert image_to_text.rank().tolist() == [1, 2, 1]
    assert text_to_image.rank().tolist() == [1, 2, 2, 3, 1, 1]
    report = retrieval_report(image_to_text, ks=(1, 2))
    assert report["R@1"] == pytest.approx(2 / 3)
    assert report["R@2"] == 1.0
    assert report["median_rank"] == 1.0
    assert report["MRR"] == pytest.approx(0.8333333333)
    report = retrieval_report(text_to_image, ks=(1, 2))
    assert report["R@1"] == 0.5
    assert report["R@2"] == pytest.approx(0.8333333333)
    assert report["median_rank"] == 1.5
    assert report["MRR"] == pytest.approx(0.7222222222)


@pytest.mark.parametrize(("size", "k"), [(3, 1), (4, 1), (4, 3), (50, 10), (50, 50)])
def test_constant_similarity_scores_chance(size: int, k: int):
    expected = pytest.approx((k / size, k / size), abs=1e-12)
    assert recall_at_k(np.zeros((size, size)), k) == expected


def test_equivalent_captions_count_as_hits_and_by_id_do_not():
    # Captions x, x, y under a perfect encoder: the first two columns cannot be told apart.
    sim = [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    by_fact = first_hits(sim, ["x", "x", "y"], ["x", "x", "y"])
    by_id = first_hits(sim, [0, 1, 2], [0, 1, 2])
    assert retrieval_report(by_fact)["R@1"] == 1.0
    assert retrieval_report(by_id)["R@1"] == pytest.approx(2 / 3)
    assert recall_at_k(sim, 1) == pytest.approx((2 / 3, 2 / 3))


def test_one_of_five_captions_first_is_a_full_hit():
    sim = np.array([[0.9, 0.1, 0.2, 0.3, 0.4, 0.8]])
    assert first_hits(sim, [0], [0, 0, 0, 0, 0, 1]).within(1).tolist() == [1.0]


def test_recall_reads_both_directions():
    # By row picture 0 finds its caption; by column both captions prefer the other picture.
    assert recall_at_k([[0.9, 0.8], [0.95, 0.1]], 1) == (0.5, 0.0)


def test_tensor_that_requires_a_gradient():
    sim = torch.eye(4, dtype=torch.bfloat16, requires_grad=True)
    assert recall_at_k(sim, 1) == (1.0, 1.0)


@pytest.mark.parametrize("k", [0, 5, -1])
def test_k_outside_the_gallery(k: int):
    with pytest.raises(UserError) as error:
        recall_at_k(np.eye(4), k)
    assert str(error.value) == f"k {k} not in [1, N=4]"


def test_refuses_what_it_cannot_rank():
    with pytest.raises(UserError, match="square"):
        recall_at_k(np.zeros((2, 3)), 1)
    with pytest.raises(UserError, match="finite"):
        recall_at_k([[np.nan, 0.0], [0.0, 1.0]], 1)
    with pytest.raises(UserError, match="query 1 has no relevant item"):
        first_hits(np.zeros((2, 2)), ["a", "b"], ["a", "c"])
    with pytest.raises(UserError, match="does not match"):
        first_hits(np.zeros((2, 2)), ["a"], ["a", "c"])
    with pytest.raises(UserError, match="at least 1 query"):
        first_hits(np.zeros((0, 2)), np.array([], dtype=int), [0, 1])


def test_chance_is_the_share_of_the_class_and_a_short_gallery_says_so():
    report = retrieval_report(first_hits(np.eye(4), [0, 0, 1, 2], [0, 0, 1, 2]))
    assert report["chance_R@1"] == pytest.approx((2 + 2 + 1 + 1) / 4 / 4)
    assert report["chance_R@5"] == report["R@10"] == 1.0
    assert (report["num_queries"], report["gallery_size"]) == (4, 4)


def brute_force(scores: list[float], relevant: list[bool], k: int) -> tuple[float, float, float]:
    """Hit at k, reciprocal rank and rank of the first hit, averaged over all orders of ties."""
    figures = []
    for order in permutations(range(len(scores))):
        ranked = sorted(order, key=lambda i: -scores[i])  # stable: ties stay as permuted
        rank = 1 + next(place for place, i in enumerate(ranked) if relevant[i])
        figures.append((rank <= k, 1 / rank, rank))
    hit, reciprocal, rank = np.mean(figures, axis=0)
    return float(hit), float(reciprocal), float(rank)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=6).filter(
        lambda items: any(relevant for _, relevant in items)
    ),
    st.integers(1, 6),
)
def test_ties_get_their_expected_value(items: list[tuple[int, bool]], k: int):
    scores, relevant = [float(s) for s, _ in items], [r for _, r in items]
    hits = first_hits([scores], [1], np.asarray(relevant, dtype=int))
    found = (hits.within(k)[0], hits.reciprocal_rank()[0], hits.rank()[0])
    assert found == pytest.approx(brute_force(scores, relevant, k), abs=1e-12)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_agrees_with_torchmetrics_where_nothing_ties(seed: int):
    rng = np.random.default_rng(seed)
    sim, queries, gallery = rng.random((20, 30)), rng.integers(5, size=20), np.arange(30) % 5
    hits = first_hits(sim, queries, gallery)
    for q in range(20):
        preds, target = torch.tensor(sim[q]), torch.tensor(gallery == queries[q])
        for k in (1, 5, 10):
            assert hits.within(k)[q] == float(retrieval_hit_rate(preds, target, top_k=k))
        expected = float(retrieval_reciprocal_rank(preds.double(), target))
        assert hits.reciprocal_rank()[q] == pytest.approx(expected, abs=1e-7)  # it answers float32


def test_chunks_change_nothing():
    rng = np.random.default_rng(3)
    sim = rng.integers(4, size=(23, 17))
    queries, gallery = rng.integers(6, size=23), np.arange(17) % 6
    whole = retrieval_report(first_hits(sim, queries, gallery))
    assert retrieval_report(first_hits(sim, queries, gallery, chunk_size=4)) == whole
    assert retrieval_report(first_hits(sim, queries, gallery, chunk_size=1)) == whole


def equal(one: FirstHits, other: FirstHits) -> bool:
    fields = ("ahead", "tied", "relevant", "in_class", "gallery_size")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in fields)


@pytest.mark.parametrize("chunk_size", [None, 1, 7])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, "numpy", "list"])
def test_vectors_have_the_hits_of_their_cosines(kind, chunk_size: int | None):
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randn(31, 5, generator=generator)
    captions = torch.randn(40, 5, generator=generator)
    captions[20:30] = captions[:10]  # equal captions tie
    captions[30:35] = 3 * captions[:5]  # as does one that is longer
    captions[35] = pictures[3] = 0
    if isinstance(kind, torch.dtype):
        pictures, captions = pictures.to(kind).requires_grad_(), captions.to(kind)
    table = cosines(pictures, captions).detach().numpy()
    given = (pictures, captions)
    if kind == "numpy":
        given = tuple(part.numpy() for part in given)
    if kind == "list":
        given = tuple(part.tolist() for part in given)
    keys, owners = np.arange(31) % 9, np.arange(40) % 9
    hits = first_hits_of_vectors(*given, keys, owners, chunk_size=chunk_size)
    assert equal(hits, first_hits(table, keys, owners))
    assert hits.tied.max() > 2
    back = first_hits_of_vectors(*given[::-1], owners, keys, chunk_size=chunk_size)
    assert equal(back, first_hits(table.T, owners, keys))


def test_constant_vectors_score_chance():
    vectors = np.full((50, 3), 0.1)
    hits = first_hits_of_vectors(vectors, 7 * vectors, np.arange(50), np.arange(50))
    assert hits.within(10) == pytest.approx(0.2)


def test_refuses_vectors_that_do_not_fit():
    with pytest.raises(UserError, match=r"queries \(2, 3\) do not match gallery \(2, 4\)"):
        first_hits_of_vectors(np.ones((2, 3)), np.ones((2, 4)), [0, 1], [0, 1])
    with pytest.raises(UserError, match="does not match"):
        first_hits_of_vectors(np.ones((2, 3)), np.ones((4, 3)), [0, 1], [0, 1])
    with pytest.raises(UserError, match="finite"):
        first_hits_of_vectors([[np.inf, 0.0]], [[1.0, 0.0]], [0], [0])


def test_a_large_gallery_is_quick_and_its_closed_forms_hold():
    size = 50_000
    ids = np.arange(size)
    one, many = np.ones_like(ids), np.full_like(ids, size)
    constant = FirstHits(0 * ids, many, one, one, size)
    start = time.perf_counter()
    found = constant.within(10), constant.within(size - 1), constant.reciprocal_rank()
    assert time.perf_counter() - start < 2  # measured 0.1 s; a step a place takes 7 s
    harmonic = (1.0 / np.arange(1, size + 1)).sum()
    for values, expected in zip(found, (10 / size, 1 - 1 / size, harmonic / size), strict=True):
        assert np.abs(values - expected).max() < 1e-12


def test_report_puts_ids_and_chance_beside_equals():
    sim = [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    by_fact, by_id = (first_hits(sim, keys, keys) for keys in (["x", "x", "y"], [0, 1, 2]))
    report = retrieval_report(by_fact, ks=(1,), by_id=by_id)
    assert report["R@1"] == 1.0
    assert report["id_R@1"] == pytest.approx(2 / 3)
    assert report["chance_R@1"] == pytest.approx((2 + 2 + 1) / 3 / 3)
    assert report["id_chance_R@1"] == pytest.approx(1 / 3)
    assert report["id_chance_MRR"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert report["id_chance_median_rank"] == 2.0
