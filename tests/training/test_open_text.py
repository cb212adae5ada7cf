"""Own texts through the training stages: one vocabulary and one limit, and what they leave out."""

from pathlib import Path

import numpy as np
import pytest
import torch
from project import read_preset

from stages import align, pretrain, train_vqa
from vlm.config import Params, parse_params
from vlm.data.tables import read_questions, read_scenes
from vlm.data.tokenizer import TextTokenizer
from vlm.data.writing import write_questions, write_scenes
from vlm.errors import UserError
from vlm.evaluation.heads import Heads
from vlm.files import read_json
from vlm.marks import UNK_ID
from vlm.training.execution import Execution

FOLDERS = [("align",), ("pretrain",), ("train_vqa", "classifier"), ("train_vqa", "generator")]
PICTURES, ROOM = 8, 10
CAPTIONS = {"train": "It's a DOG, isn't it?", "val": "It's a zebra"}
ANSWERS = {"train": ["yes"] * 4 + ["no"] * 3 + ["maybe"], "val": ["yes"] * 6 + ["never", "maybe"]}


def params_of(**text: object) -> Params:
    """Two steps of everything, on pictures of 32 pixels."""
    values = read_preset("tiny")
    values["model"]["text"] |= {"max_length": ROOM, "on_long": "cut"} | text
    sections = [values["align"], values["pretrain"], *values["train_vqa"].values()]
    for section in sections:
        section |= {"steps": 2, "batch_size": 4, "warmup_steps": 0, "eval_every": 2}
    values["train_vqa"]["classifier"]["max_answers"] = 2
    values["runtime"] |= {"progress": "off", "threads": 1}
    return parse_params(values)


def write_tables() -> None:
    """Pictures that are all told and asked the same; a caption, a question and a phrase each."""
    rng = np.random.default_rng(0)
    for split, caption in CAPTIONS.items():
        images = rng.integers(0, 256, (PICTURES, 1, 32, 32), np.uint8)
        folder, n = Path("data") / split, PICTURES
        write_scenes(folder, [images], [[]] * n, [[caption]] * n, [["key"]] * n)
        asked, answers = ["Is it a dog?"] * n, ANSWERS[split]
        phrases = [f"{answer}, of course" for answer in answers]
        write_questions(folder, np.arange(n), ["own"] * n, asked, answers, phrases)


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tables()


def run_stages(params: Params) -> None:
    align.align(params, Execution())
    pretrain.pretrain(params, Execution())
    for head in train_vqa.HEADS:
        train_vqa.train_vqa(params, head, Execution())


@pytest.mark.usefixtures("tables")
def test_words_of_a_small_vocabulary():
    run_stages(params_of(max_vocab=13))
    metrics = read_json("metrics/align.json")
    tokenizer = TextTokenizer.load("models/align")
    for split, caption in CAPTIONS.items():
        texts = [caption, "Is it a dog?"] * PICTURES
        texts += [f"{answer}, of course" for answer in ANSWERS[split]]
        words = [tokenizer.spelled(text).split() for text in texts]
        known = {word for own in words for word in own if tokenizer.tokens([word]) != [[UNK_ID]]}
        lacking = [sum(word not in known for word in own) for own in words]
        shares = metrics["unknown_words"][split]
        assert shares["words"] == pytest.approx(sum(lacking) / sum(map(len, words)), abs=1e-6)
        assert shares["texts"] == pytest.approx(np.mean([n > 0 for n in lacking]), abs=1e-6)
        assert 0 < shares["words"] < shares["texts"] < 1
        assert metrics["texts_cut"][split] == sum(len(own) + 2 > ROOM for own in words)
    assert metrics["texts_cut"] == {"train": PICTURES, "val": 0}

    files = [Path("models", *part) / "tokenizer.json" for part in FOLDERS]
    assert len({file.read_bytes() for file in files}) == 1
    classifier = read_json("metrics/train_vqa_classifier.json")
    assert classifier["answer_coverage"] == {"train": 7 / 8, "val": 6 / 8}
    assert "answer_coverage" not in read_json("metrics/train_vqa_generator.json")
    heads = Heads.load(Path("models/train_vqa"), 4, torch.device("cpu"))
    assert heads.classifier.answers == ["no", "yes"]
    assert heads.tokenizer.cuts_at == heads.max_length == ROOM
    replies = heads.reply(read_scenes("data/val"), read_questions("data/val"))
    assert set(replies.answers.answer) <= {"no", "yes"}


@pytest.mark.usefixtures("tables")
def test_byte_pairs_leave_nothing_unknown():
    run_stages(params_of(tokenizer="bpe", max_vocab=270))
    metrics = read_json("metrics/align.json")
    nothing = {"words": 0.0, "texts": 0.0}
    assert metrics["unknown_words"] == {"train": nothing, "val": nothing}
    assert metrics["texts_cut"]["val"] > 0
    assert TextTokenizer.load("models/train_vqa/generator").vocab_size == 270


@pytest.mark.usefixtures("tables")
def test_a_long_text_stops_the_run():
    with pytest.raises(UserError) as error:
        align.align(params_of(on_long="error", tokenizer="bpe"), Execution())
    assert str(error.value).startswith("data/train: scene 0: text of ")
    assert not Path("models").exists()


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("split", CAPTIONS)
@pytest.mark.parametrize("column", ["caption", "question", "phrase"])
def test_any_text_of_training_that_is_too_long_stops_it_at_once(split: str, column: str):
    folder, n = Path("data") / split, PICTURES
    texts = {name: ["it is"] * n for name in ("caption", "question", "phrase")}
    texts[column][5] = "is " * 40 + "it"
    texts[column][6] = "is " * 40 + "it so"
    images = np.zeros((n, 1, 32, 32), np.uint8)
    write_scenes(folder, [images], [[]] * n, [[text] for text in texts["caption"]], [["key"]] * n)
    asked, phrases = texts["question"], texts["phrase"]
    write_questions(folder, np.arange(n), ["own"] * n, asked, ANSWERS[split], phrases)
    with pytest.raises(UserError) as error:
        align.align(params_of(on_long="error", max_length=40), Execution())
    row = "scene 6" if column == "caption" else "question 6"
    assert str(error.value).startswith(f"data/{split}: {row}: text of 44 tokens")
