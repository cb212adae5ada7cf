"""The loop: what a step is, what is kept, what stops it."""

import json
import math

import pytest
import torch
from small_run import Numbers, config, points, regression
from torch import nn

from vlm.data.order import Layout
from vlm.training.execution import Execution
from vlm.training.fit import fit
from vlm.training.schedule import learning_rate, make_optimizer
from vlm.training.terms import NonFiniteLossError, Objective, evaluate_loss
from vlm.training.train import train


def test_rates_by_the_formula():
    c = config(steps=100, warmup_steps=10, learning_rate=1e-3)
    assert learning_rate(0, c) == pytest.approx(1e-4)
    assert learning_rate(9, c) == pytest.approx(1e-3)
    assert learning_rate(40, c) == pytest.approx(7.5e-4)
    assert learning_rate(100, c) == 0
    with_floor = config(steps=100, warmup_steps=10, learning_rate=1e-3, final_rate=0.1)
    assert learning_rate(100, with_floor) == pytest.approx(1e-4)
    assert learning_rate(55, with_floor) == pytest.approx(5.5e-4)


def test_it_learns_and_keeps_the_best():
    model = nn.Linear(2, 1)
    result = fit(
        model, regression(model), lambda step: [points(8, step)], [points(32, -1)], config()
    )
    assert [row["step"] for row in result.curve] == [5, 10, 15, 20]
    best = min(result.curve, key=lambda row: row["val_loss"])
    assert result.kept_step == best["step"] and result.kept["loss"] == best["val_loss"]
    again = evaluate_loss(model, regression(model), [points(32, -1)])
    assert again["loss"] == pytest.approx(result.kept["loss"])
    assert result.kept["loss"] < result.curve[0]["val_loss"]
    assert not model.training


def test_a_worse_end_is_not_kept():
    """Validation wants 0 but training pulls away from it: the first validation is the best."""
    model = nn.Linear(2, 1)
    objective = Objective(
        lambda b: {"square": (model(b.images) - (3 if model.training else 0)).square().mean()},
        {"square": 1.0},
    )
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    result = fit(model, objective, lambda step: [points(8, step)], [points(8, 1)], config())
    assert result.kept_step == 5
    assert evaluate_loss(model, objective, [points(8, 1)])["loss"] == pytest.approx(
        result.kept["loss"]
    )


def test_accumulation_weighs_by_supervised_items():
    """Sample A: 10 tokens at loss 1; B: 100 at loss 2. One batch of both, or one after another."""
    gradients, losses = [], []
    for cut in (False, True):
        weight = nn.Parameter(torch.tensor([[1.0, 2.0]]))  # its entries are the two mean losses
        model = nn.Module()
        model.weight = weight

        def terms(batch, weight=weight):
            tokens = torch.repeat_interleave(batch.images, torch.tensor([10, 100])[batch.images])
            return {"lm": weight[0][tokens].mean()}

        a, b = Numbers(torch.tensor([0]), {"lm": 10}), Numbers(torch.tensor([1]), {"lm": 100})
        both = Numbers(torch.tensor([0, 1]), {"lm": 110})
        before = weight.detach().clone()
        recorded = []
        weight.register_hook(lambda g, recorded=recorded: recorded.append(g.clone()))
        result = fit(
            model,
            Objective(terms, {"lm": 1.0}),
            lambda step, cut=cut, a=a, b=b, both=both: [a, b] if cut else [both],
            [both],
            config(steps=1, warmup_steps=0, eval_every=1, clip_norm=1e9),
        )
        losses.append(result.curve[0]["train_loss"])
        gradients.append(sum(recorded))
        assert not torch.equal(before, weight)
    assert losses == [pytest.approx(1.909091, abs=1e-6)] * 2
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-6, rtol=0)


def test_a_batch_without_target_is_counted_and_teaches_nothing():
    model = nn.Linear(2, 1)
    before = [p.detach().clone() for p in model.parameters()]
    empty = Numbers(torch.zeros(0, 2), {"square": 0})
    objective = Objective(lambda b: {"square": (model(b.images) - 3).square().sum()}, {"square": 1})
    c = config(weight_decay=0.5, steps=3, warmup_steps=0)
    result = fit(model, objective, lambda step: [empty], [points(4, 0)], c)
    assert result.batches_without_target == 3
    assert result.curve[0]["train_loss"] == 0
    for p, was in zip(model.parameters(), before, strict=True):
        assert torch.equal(p, was)


class Poisoned:
    """Data whose pictures are fine until some step of training."""

    def __init__(self, bad: bool) -> None:
        self.bad, self.steps = bad, 0

    layout = Layout.whole(8)

    def __len__(self) -> int:
        return 8

    def window(self, groups):
        return self

    def batch(self, pictures, draws=None, own=None):
        self.steps += draws is not None
        bad = self.bad and self.steps == 4
        return Numbers(torch.full((4, 2), math.nan if bad else 1.0), {"square": 4})


def test_a_nan_stops_the_run_with_its_step_and_leaves_strict_json(tmp_path):
    model = nn.Linear(2, 1)
    with pytest.raises(NonFiniteLossError, match="step 4: loss 'square' is not finite"):
        train(
            model,
            regression(model),
            Poisoned(True),
            Poisoned(False),
            config(),
            Execution(),
            source=tmp_path,
            seed=0,
            metrics_path=tmp_path / "m.json",
            curve_path=tmp_path / "c.tsv",
        )
    metrics = json.loads((tmp_path / "m.json").read_text())
    assert metrics == {"non_finite": 1, "stopped_at_step": 4}
    assert [path.name for path in tmp_path.iterdir()] == ["m.json"]


def test_vectors_do_not_decay_and_frozen_weights_are_left_out():
    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2), nn.Linear(2, 2))
    model[2].requires_grad_(False)
    groups = make_optimizer(model, config(weight_decay=0.1)).param_groups
    assert [(len(g["params"]), g["weight_decay"]) for g in groups] == [(1, 0.1), (3, 0.0)]


def test_the_same_seed_gives_the_same_weights():
    def run() -> torch.Tensor:
        torch.manual_seed(5)
        model = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        fit(model, regression(model), lambda s: [points(8, s)], [points(4, 0)], config())
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    assert torch.equal(run(), run())


def test_the_last_weights_are_kept_where_asked_for():
    """The same pull away from what validation wants: now its end is kept."""
    model = nn.Linear(2, 1)
    objective = Objective(
        lambda b: {"square": (model(b.images) - (3 if model.training else 0)).square().mean()},
        {"square": 1.0},
    )
    last = config(keep="last", learning_rate=0.1)
    result = fit(model, objective, lambda step: [points(8, step)], [points(8, 1)], last)
    assert result.kept_step == 20
    assert result.kept["loss"] == result.curve[-1]["val_loss"]
    assert evaluate_loss(model, objective, [points(8, 1)])["loss"] == pytest.approx(
        result.kept["loss"]
    )


@pytest.mark.parametrize("clip_norm", [0.0, 0.1])
def test_no_clipping_is_no_clipping(clip_norm, monkeypatch):
    """SGD in place of AdamW, whose steps hardly depend on the length of a gradient."""
    monkeypatch.setattr(
        "vlm.training.fit.make_optimizer",
        lambda model, config: torch.optim.SGD(model.parameters(), lr=config.learning_rate),
    )
    model = nn.Linear(2, 1)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    c = config(steps=1, warmup_steps=0, eval_every=1, clip_norm=clip_norm, learning_rate=1.0)
    still = Numbers(torch.zeros(4, 2), {"square": 4})
    fit(model, regression(model), lambda step: [still], [still], c)
    # The loss is (bias - 3)^2, its gradient -6.
    assert model.bias.item() == pytest.approx(6.0 if clip_norm == 0 else 0.1, rel=1e-4)


def test_a_score_is_shown_by_validation_and_decides_nothing():
    model = nn.Linear(2, 1)

    def terms(batch: Numbers) -> dict[str, torch.Tensor]:
        square = {"square": (model(batch.images) - 3).square().mean()}
        return square if model.training else square | {"high": torch.tensor(0.25)}

    objective = Objective(terms, {"square": 1.0}, ["high"])
    data = Numbers(points(8, 0).images, {"square": 8, "high": 8})
    result = fit(model, objective, lambda step: [data], [data], config(steps=5))
    row = result.curve[0]
    assert row["val_high"] == 0.25 and "train_high" not in row
    assert row["val_loss"] == row["val_square"]


def test_adam_at_a_constant_rate_is_torchs():
    """As the notebook's preset says it: no decay, no warm-up, no cosine, no clipping."""
    ours, theirs = nn.Linear(2, 1), nn.Linear(2, 1)
    theirs.load_state_dict(ours.state_dict())
    constant = {"final_rate": 1.0, "warmup_steps": 0, "beta2": 0.999, "clip_norm": 0.0}
    c = config(**constant, steps=30, learning_rate=0.02, keep="last")
    fit(ours, regression(ours), lambda step: [points(8, step)], [points(8, -1)], c)
    optimizer = torch.optim.Adam(theirs.parameters(), 0.02)
    for step in range(30):
        optimizer.zero_grad()
        regression(theirs).losses(points(8, step))["square"].backward()
        optimizer.step()
    torch.testing.assert_close(ours.weight, theirs.weight, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.bias, theirs.bias, atol=1e-5, rtol=1e-5)
