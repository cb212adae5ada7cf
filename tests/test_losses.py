"""Losses: closed forms, oracles, and who gets a gradient."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm import cosine_alignment_loss, info_nce_loss, lm_loss
from vlm.errors import UserError


def test_cosine_alignment_at_its_landmarks():
    x = torch.randn(4, 8)
    assert cosine_alignment_loss(x, 3 * x).item() == pytest.approx(0, abs=1e-6)
    assert cosine_alignment_loss(x, -x).item() == pytest.approx(2, abs=1e-6)
    right_angle = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 5.0]])
    assert cosine_alignment_loss(*right_angle).item() == pytest.approx(1, abs=1e-6)


def slow_info_nce(similarity: torch.Tensor) -> float:
    """Each row and column by the definition, with math.exp."""
    s, n = similarity.tolist(), len(similarity)
    rows = [-s[i][i] + math.log(sum(math.exp(s[i][j]) for j in range(n))) for i in range(n)]
    columns = [-s[j][j] + math.log(sum(math.exp(s[i][j]) for i in range(n))) for j in range(n)]
    return sum(rows + columns) / (2 * n)


@settings(max_examples=20, deadline=None)
@given(n=st.integers(1, 6), seed=st.integers(0, 99))
def test_info_nce_against_the_definition(n, seed):
    generator = torch.Generator().manual_seed(seed)
    images, texts = torch.randn(2, n, 5, generator=generator, dtype=torch.float64)
    loss, similarity = info_nce_loss(images, texts, 0.7)
    cosines = F.normalize(images, dim=-1) @ F.normalize(texts, dim=-1).T
    torch.testing.assert_close(similarity, math.exp(0.7) * cosines)
    assert loss.item() == pytest.approx(slow_info_nce(similarity), abs=1e-9)


def test_info_nce_of_a_known_matrix():
    """Case G25. Unit vectors with the wanted products at a scale of 4: texts are the axes, and
    each picture has a dimension of its own for the rest of its length."""
    wanted = torch.tensor([[2.0, 0, 1], [0, 3, 0], [1, 0, 2]])
    cosines = wanted / 4
    images = torch.cat([cosines, torch.diag((1 - cosines.square().sum(1)).sqrt())], dim=1)
    texts = torch.eye(3, 6)
    loss, similarity = info_nce_loss(images, texts, math.log(4))
    torch.testing.assert_close(similarity, wanted)
    assert loss.item() == pytest.approx(0.30337831377983093, abs=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 16])
def test_info_nce_of_equal_pairs_is_ln_n(n):
    same = torch.ones(n, 4)
    loss, _ = info_nce_loss(same, same)
    assert loss.item() == pytest.approx(math.log(n), abs=1e-6)


@pytest.mark.parametrize(("log_tau", "scale"), [(50.0, 100.0), (-50.0, 1e-3), (0.0, 1.0)])
def test_scale_is_held_between_its_bounds(log_tau, scale):
    x = torch.tensor([[2.0, 0.0]])
    assert info_nce_loss(x, x, torch.tensor(log_tau))[1].item() == pytest.approx(scale)


def test_equivalent_captions_are_no_negatives_but_stay_positives():
    images = torch.randn(4, 8)
    texts = torch.randn(4, 8)
    texts[1] = texts[0]
    equivalent = torch.zeros(4, 4, dtype=torch.bool)
    equivalent[0, 1] = equivalent[1, 0] = True
    equivalent.fill_diagonal_(True)
    loss, similarity = info_nce_loss(images, texts, equivalent=equivalent)
    logits = similarity.clone()
    logits[0, 1] = logits[1, 0] = -math.inf
    assert loss.item() == pytest.approx(slow_info_nce(logits), rel=1e-5)
    assert similarity.isfinite().all()


def test_a_text_left_out_for_a_picture_is_that_picture_left_out_for_the_text():
    """Text 2 is right for picture 0, which says nothing of text 0 and picture 2."""
    images, texts = torch.randn(4, 8), torch.randn(4, 8)
    equivalent = torch.zeros(4, 4, dtype=torch.bool)
    equivalent[0, 2] = True
    loss, similarity = info_nce_loss(images, texts, equivalent=equivalent)
    logits = similarity.clone()
    logits[0, 2] = -math.inf
    assert loss.item() == pytest.approx(slow_info_nce(logits), rel=1e-5)


def test_losses_of_bf16_are_fp32():
    images, texts = torch.randn(2, 4, 8).bfloat16()
    assert info_nce_loss(images, texts)[0].dtype == torch.float32
    assert cosine_alignment_loss(images, texts).dtype == torch.float32
    assert lm_loss(images[None], torch.tensor([[1, 2, 3, 4]])).dtype == torch.float32


def test_info_nce_refuses_different_shapes():
    with pytest.raises(UserError, match=r"image_emb \(2, 3\) does not match text_emb \(3, 3\)"):
        info_nce_loss(torch.rand(2, 3), torch.rand(3, 3))


def test_lm_loss_is_ln_v_when_nothing_is_known():
    logits, targets = torch.zeros(2, 3, 10), torch.randint(1, 10, (2, 3))
    assert lm_loss(logits, targets).item() == pytest.approx(2.302585, abs=1e-6)


def test_label_shift():
    # "a b": the decoder reads [bos a b] and is asked for [a b eos].
    bos, eos, a, b, vocab = 1, 2, 4, 5, 10
    inputs, labels = torch.tensor([[bos, a, b]]), torch.tensor([[a, b, eos]])
    right = 20.0 * F.one_hot(labels, vocab).float()
    copies = 20.0 * F.one_hot(inputs, vocab).float()
    assert lm_loss(right, labels).item() < 1e-6
    assert lm_loss(copies, labels).item() > 10
    assert int((labels != 0).sum()) == 3


def test_padding_is_no_target_and_gets_no_gradient():
    logits = torch.randn(2, 3, 7, requires_grad=True)
    targets = torch.tensor([[4, 0, 0], [5, 6, 0]])
    loss = lm_loss(logits, targets)
    picked = [(0, 0, 4), (1, 0, 5), (1, 1, 6)]
    expected = -sum(logits.log_softmax(-1)[index] for index in picked) / 3
    torch.testing.assert_close(loss, torch.as_tensor(expected))
    loss.backward()
    assert logits.grad is not None
    assert (logits.grad[targets == 0] == 0).all()


def test_no_target_at_all_is_zero_without_gradient():
    logits = torch.randn(2, 3, 7, requires_grad=True)
    loss = lm_loss(logits, torch.zeros(2, 3, dtype=torch.int64))
    loss.backward()
    assert loss.item() == 0
    assert logits.grad is not None and (logits.grad == 0).all()


def test_lm_loss_refuses_shapes_that_differ():
    with pytest.raises(UserError, match="do not match targets"):
        lm_loss(torch.zeros(1, 4, 9), torch.ones(1, 3, dtype=torch.int64))
