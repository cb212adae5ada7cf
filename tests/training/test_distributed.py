"""Two and four processes do what one does: the same batches, losses, gradients and weights."""

import shutil
from typing import Any

import pytest
import shared_work
import torch
from shared_data import BATCH, CONFIG, PICTURES, captions, questions
from shared_work import RUN, STOP, together, trained

from vlm.data.order import Layout, PictureOrder
from vlm.model.vqa import AnswerClassifier, PhraseGenerator
from vlm.training.checkpoint import CHECKPOINT
from vlm.training.execution import Execution
from vlm.training.objectives import classification, generation, pretraining
from vlm.training.vision_language import VisionLanguageModel

SIZES = (1, 2, 4)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[int, list[dict[str, Any]]]:
    """Each process's results, by the number of processes.

    Each number takes a run over from the one before; the first from the last's kind.
    """
    root = tmp_path_factory.mktemp("processes")
    before, batch = None, shared_work.training.VALIDATION_BATCH
    done = {}
    for size in SIZES:
        folder = root / str(size)
        if before is not None:
            (folder / "taken_over" / RUN).mkdir(parents=True)
            shutil.copyfile(
                before / "interrupted/stopped.safetensors", folder / "taken_over" / RUN / CHECKPOINT
            )
        done[size] = together(size, folder)
        before = folder
    shared_work.training.VALIDATION_BATCH = batch
    return done


def each(runs: dict[int, list[dict[str, Any]]], name: str) -> list[Any]:
    """What every process of 2 and of 4 got."""
    return [result[name] for size in SIZES[1:] for result in runs[size]]


def assert_same_run(run: dict[str, Any], alone: dict[str, Any]) -> None:
    """The same losses at every step to 1e-5, and whole weights that are near."""
    assert len(run["curve"]) == len(alone["curve"]) > 0
    for row, expected in zip(run["curve"], alone["curve"], strict=True):
        assert row == pytest.approx(expected, abs=1e-5), row["step"]
    assert run["weights"].keys() == alone["weights"].keys()
    for name, weight in run["weights"].items():
        # Attention is blind to a bias of the keys, whose gradient is rounding and nothing else.
        if not name.endswith(("qkv.bias", "key_value.bias")):
            torch.testing.assert_close(weight, alone["weights"][name], atol=1e-4, rtol=1e-3)


def assert_same_rest(run: dict[str, Any], runs: dict[int, list[dict[str, Any]]]) -> None:
    """The rest of a run from step `STOP` on, against one process's whole run."""
    whole = runs[1][0]["taken_over"]  # which found nothing to take over
    assert whole["resumed"] == [] and len(whole["curve"]) == 2
    assert_same_run(run, {**whole, "curve": whole["curve"][1:]})


def test_gathered_rows_and_their_gradients(runs):
    for result in each(runs, "gather"):
        torch.testing.assert_close(result, runs[1][0]["gather"], atol=1e-12, rtol=1e-12)


def test_info_nce_over_processes_is_that_of_the_whole_batch(runs):
    for result in each(runs, "contrast"):
        torch.testing.assert_close(result, runs[1][0]["contrast"], atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("strategy", ["replicated", "sharded"])
def test_ten_steps_give_the_losses_of_one_process(runs, strategy):
    """With two micro-batches a step, clipping, and three validation batches of unequal size."""
    for result in each(runs, strategy):
        assert_same_run(result, runs[1][0]["replicated"])


def test_heads_train_as_in_one_process_where_some_shares_hold_no_target(runs):
    alone = runs[1][0]["heads"]
    for result in each(runs, "heads"):
        for name, run in result.items():
            assert_same_run(run, alone[name])


def test_frozen_features_are_the_same_and_the_projector_learns_alike(runs):
    alone = runs[1][0]["aligned"]
    for result in each(runs, "aligned"):
        assert torch.equal(result["features"], alone["features"])
        assert_same_run(result, alone)


def test_validation_is_exact(runs):
    for result in each(runs, "validated"):
        assert result == pytest.approx(runs[1][0]["validated"], abs=1e-9)


def test_weights_are_whole_and_the_same_in_every_process(runs):
    for strategy in ("replicated", "sharded"):
        for size in SIZES[1:]:
            first, *others = (result[strategy]["weights"] for result in runs[size])
            for other in others:
                for name, weight in first.items():
                    assert torch.equal(weight, other[name]), (strategy, size, name)


def test_every_number_of_processes_sees_the_same_global_batches(runs):
    order = PictureOrder(Layout.whole(PICTURES), BATCH, seed=0)
    expected = torch.cat([order.at(step).rows for step in range(6)])
    for result in [runs[1][0]["order"], *each(runs, "order")]:
        assert torch.equal(result["pictures"], expected)
        assert torch.equal(result["draws"], runs[1][0]["order"]["draws"])


def test_a_bad_loss_in_one_process_stops_all_with_the_same_words(runs):
    for said in [runs[1][0]["bad_loss"], *each(runs, "bad_loss")]:
        assert said.startswith("step 2: loss 'square' is not finite")


def test_dropout_differs_between_processes_and_repeats(runs):
    for size in SIZES:
        for result in runs[size]:
            assert result["chance"] == {"distinct": size, "repeats": True}


def test_a_stop_asked_of_one_process_stops_all_after_the_same_step(runs):
    for result in [runs[1][0]["interrupted"], *each(runs, "interrupted")]:
        assert result["said"].startswith(f"interrupted after step {STOP} of 10: saved")
        assert result["resumed"] == [STOP]
        assert_same_rest(result, runs)


def test_another_number_of_processes_goes_on_from_a_checkpoint(runs):
    """What one sharded process left is taken up by two, and what two left by four."""
    for result in each(runs, "taken_over"):
        assert result["resumed"] == [STOP]
        assert_same_rest(result, runs)


CHOICES = [
    *(
        ("classifier", fusion, frequency)
        for fusion in ("multiply", "concat", "attention")
        for frequency in (0.0, 5.0)
    ),
    *(
        ("generator", memory, context)
        for memory in ("pooled", "tokens")
        for context in ("fused", "none")
    ),
]


@pytest.mark.parametrize(("head", "first", "second"), CHOICES)
def test_every_weight_that_learns_gets_a_gradient(head, first, second):
    """In copies a weight without one would keep all processes waiting for it."""
    data = questions()
    if head == "classifier":
        model = AnswerClassifier(CONFIG, ["no", "yes"], first, question_frequency=second)
        objective = classification(model)
    else:
        model = PhraseGenerator(CONFIG, first, second, 5.0)
        objective = generation(model)
    for pictures in (torch.arange(4), torch.tensor([1])):  # the latter's answers are all unknown
        model.zero_grad()
        sum(objective.losses(data.batch(pictures)).values()).backward()
        assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_bf16_products_leave_losses_and_weights_in_fp32(tmp_path):
    model = VisionLanguageModel(CONFIG)
    objective, how = pretraining(model, True), Execution(precision=torch.bfloat16)
    with how.autocast():
        assert model.encode_images(torch.zeros(1, 1, 16, 16)).pooled.dtype == torch.bfloat16
        terms = objective.losses(captions().batch(torch.arange(8)))
    assert {term.dtype for term in terms.values()} == {torch.float32}
    half = trained(model, objective, captions(), how, tmp_path)
    assert {weight.dtype for weight in half["weights"].values()} == {torch.float32}
    assert half["curve"][-1]["train_loss"] < half["curve"][0]["train_loss"]
