"""What the training stages promise each other."""

import math

import numpy as np
import pytest
import torch

from vlm.config import OptimizerConfig
from vlm.data.loading import CaptionData, QuestionData
from vlm.data.tables import QuestionTable, SceneTable
from vlm.data.tokenizer import TextTokenizer
from vlm.errors import UserError
from vlm.generation import generate
from vlm.model.folder import load_config, load_parts, save_model
from vlm.model.projector import freeze
from vlm.model.vlm import DualEncoder, VLMConfig
from vlm.model.vqa import AnswerClassifier, PhraseGenerator, QuestionCode
from vlm.training.execution import Execution
from vlm.training.objectives import alignment, classification, generation, pretraining
from vlm.training.train import train
from vlm.training.vision_language import VisionLanguageModel

CAPTIONS = [["a plus", "one plus"], ["a circle", "one circle"], ["a plus", "one plus"]]
SCENES = SceneTable(
    scene_id=np.arange(3),
    images=np.random.default_rng(0).integers(0, 256, (3, 1, 16, 16), np.uint8),
    objects=[[], [], []],
    captions=CAPTIONS,
    caption_keys=[["plus", "plus"], ["circle", "circle"], ["plus", "plus"]],
)
TOKENIZER = TextTokenizer.fit([text for texts in CAPTIONS for text in texts] + ["is it a plus"])
CONFIG = VLMConfig(
    image_size=16,
    patch_size=8,
    in_channels=1,
    vision_hidden=16,
    vision_depth=1,
    vision_heads=2,
    vision_dropout=0.5,
    text_hidden=16,
    text_heads=2,
    text_depth=1,
    decoder_heads=2,
    projection_hidden=16,
    vocab_size=TOKENIZER.vocab_size,
    max_text_len=8,
)


def optimizer(**changes) -> OptimizerConfig:
    values = {
        "steps": 4,
        "batch_size": 3,
        "learning_rate": 0.01,
        "final_rate": 0.0,
        "warmup_steps": 0,
        "weight_decay": 0.1,
        "beta2": 0.99,
        "clip_norm": 1.0,
        "accumulate": 1,
        "eval_every": 4,
        "val_pictures": 3,
        "keep": "best",
    }
    return OptimizerConfig(**{**values, **changes})


def captions() -> CaptionData:
    return CaptionData(SCENES, TOKENIZER, 8)


def asked(answers: list[str]) -> QuestionTable:
    n = len(answers)
    column = np.array(answers, dtype=object)
    return QuestionTable(
        question_id=np.arange(n),
        scene_id=np.arange(n) % 3,
        scene_index=np.arange(n) % 3,
        family=np.array(["exists"] * n, dtype=object),
        question=np.array(["is it a plus"] * n, dtype=object),
        answer=column,
        phrase=column,
    )


def questions(answers: list[str], known: list[str], pad_phrases: int = 0) -> QuestionData:
    return QuestionData(SCENES, asked(answers), TOKENIZER, 8, known, pad_phrases)


def run(model, objective, data, tmp_path, **changes):
    return train(
        model,
        objective,
        data,
        data,
        optimizer(**changes),
        Execution(),
        source=tmp_path / "data",
        seed=0,
        metrics_path=tmp_path / "m.json",
        curve_path=tmp_path / "c.tsv",
    )


def test_frozen_stays_frozen_and_the_projector_learns(tmp_path):
    """With weight decay, and dropout in the encoder, no byte of what is frozen changes."""
    model = DualEncoder(CONFIG)
    freeze(model.vision)
    freeze(model.text)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    run(model, alignment(model), captions(), tmp_path)
    for name, tensor in model.state_dict().items():
        same = torch.equal(tensor, before[name])
        assert same != name.startswith("projector"), name


@pytest.mark.parametrize("accumulate", [1, 3])
def test_every_objective_trains_everything(tmp_path, accumulate):
    data = questions(["yes", "no", "yes", "no", "yes", "yes"], ["no", "yes"])
    models = {
        "contrast": VisionLanguageModel(CONFIG),
        "answer": AnswerClassifier(CONFIG, ["no", "yes"], question_frequency=5.0),
        "phrase": PhraseGenerator(CONFIG, context="fused", question_frequency=5.0),
    }
    for name, model in models.items():
        before = {key: tensor.clone() for key, tensor in model.named_parameters()}
        if isinstance(model, VisionLanguageModel):
            objective, source = pretraining(model, mask_equivalent=True), captions()
        elif isinstance(model, AnswerClassifier):
            objective, source = classification(model), data
        else:
            objective, source = generation(model), data
        # A micro-batch of one pair has no negatives, and so teaches nothing by contrast.
        cut = 1 if name == "contrast" else accumulate
        run(model, objective, source, tmp_path, accumulate=cut)
        stuck = [key for key, p in model.named_parameters() if torch.equal(p, before[key])]
        assert not stuck, (name, stuck)


def test_next_stage_starts_from_exactly_the_tensors_of_the_last(tmp_path):
    aligned = DualEncoder(CONFIG)
    save_model(tmp_path, aligned)
    model = VisionLanguageModel(load_config(tmp_path))
    load_parts(model, tmp_path, ["vision", "projector", "text"])
    for name, tensor in aligned.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]), name
    save_model(tmp_path / "pretrained", model)
    head = PhraseGenerator(load_config(tmp_path / "pretrained"))
    load_parts(head, tmp_path / "pretrained", ["vision", "projector", "text", "decoder"])
    for name, tensor in head.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]), name


def test_an_answer_outside_the_vocabulary_is_not_learned_from():
    data = questions(["yes", "maybe", "no"], ["no", "yes"])
    batch = data.batch(torch.arange(3))
    assert batch.answers.tolist() == [1, -1, 0]
    assert batch.counts["answer"] == 2
    model = AnswerClassifier(CONFIG, ["no", "yes"]).eval()
    loss = classification(model).losses(batch)["answer"]
    logits = model(
        batch.images.float() / 255, batch.question_ids, batch.image_rows, batch.question_rows
    ).log_softmax(-1)
    assert loss.item() == pytest.approx(-(logits[0, 1] + logits[2, 0]).item() / 2, rel=1e-5)


def test_a_table_with_nothing_to_learn_stops_before_training(tmp_path):
    model = AnswerClassifier(CONFIG, ["no", "yes"])
    with pytest.raises(UserError, match="data/train: no supervised item"):
        run(model, classification(model), questions(["maybe"] * 3, ["no", "yes"]), tmp_path)


def test_equivalent_captions_are_marked_in_the_batch():
    batch = captions().batch(torch.arange(3), torch.zeros(3))
    expected = [[True, False, True], [False, True, False], [True, False, True]]
    assert (batch.keys[:, None] == batch.keys).tolist() == expected


def test_question_codes_of_near_questions_are_nearly_orthogonal():
    """What they are for: vectors that differ by a tenth end far apart."""
    torch.manual_seed(0)
    x = torch.randn(1, 256)
    near = torch.cat([x, x + 0.3 * torch.randn(1, 256)])

    def cosine(frequency: float) -> float:
        a, b = QuestionCode(256, frequency)(near).detach()
        return float(torch.cosine_similarity(a, b, dim=0))

    assert cosine(0) > 0.9
    assert cosine(5.0) < 0.6
    assert not math.isclose(cosine(5.0), cosine(1.0), abs_tol=0.1)


def test_the_generators_score_is_that_of_greedy_decoding():
    """Right after every true prefix is right altogether, and wrong somewhere is wrong."""
    data = questions(["a plus", "a circle", "one plus", "one"], [])
    torch.manual_seed(0)
    model = PhraseGenerator(CONFIG).eval()
    taught = data.batch(torch.arange(3))
    learner = torch.optim.Adam(model.parameters(), 0.02)
    seen = set()
    for _ in range(60):
        terms = generation(model).losses(taught)
        with torch.no_grad():
            tokens = generate(
                model,
                taught.images.float() / 255,
                taught.question_ids,
                image_rows=taught.image_rows,
                question_rows=taught.question_rows,
            ).tokens
        phrases = [TOKENIZER.decode(row) for row in tokens]
        wanted = [TOKENIZER.decode(row) for row in taught.phrase_ids]
        share = sum(a == b for a, b in zip(phrases, wanted, strict=True)) / len(wanted)
        assert terms["exact_match"].item() == pytest.approx(share)
        seen.add(share)
        terms["phrase"].backward()
        learner.step()
        learner.zero_grad()
    assert 0 in seen and max(seen) >= 0.5  # two of the four rows ask the same of one picture


def test_the_classifiers_score_counts_an_answer_outside_its_vocabulary_as_wrong():
    data = questions(["yes", "maybe", "maybe"], ["yes"])
    model = AnswerClassifier(CONFIG, ["yes"]).eval()
    terms = classification(model).losses(data.batch(torch.arange(3)))
    assert terms["exact_match"].item() == pytest.approx(1 / 3)
    assert set(classification(model.train()).losses(data.batch(torch.arange(3)))) == {"answer"}


def test_the_generators_score_counts_an_unknown_word_as_wrong():
    """However surely it is said: nobody can read from it which word was meant."""
    taught = questions(["a zebra", "a plus", "a zebra"], []).batch(torch.tensor([0, 2]))
    torch.manual_seed(0)
    model = PhraseGenerator(CONFIG).eval()
    learner = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(30):
        terms = generation(model).losses(taught)
        terms["phrase"].backward()
        learner.step()
        learner.zero_grad()
    assert terms["phrase"].item() < 0.1 and terms["exact_match"].item() == 0


def test_padding_phrases_changes_their_length_and_no_loss():
    phrases = ["a plus", "one circle", "a circle"]
    short, padded = questions(phrases, []), questions(phrases, [], pad_phrases=7)
    model = PhraseGenerator(CONFIG).eval()
    batch, longer = short.batch(torch.arange(3)), padded.batch(torch.arange(3))
    assert batch.phrase_ids.shape[1] == 4 and longer.phrase_ids.shape[1] == 7
    assert batch.counts == longer.counts
    losses = [generation(model).losses(b)["phrase"].item() for b in (batch, longer)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
