"""What makes each error of the page's section on data appear."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from error_page import Raiser
from raise_parameters import tiny

from stages import generate
from vlm.app.compare import compare
from vlm.data import drawn, png
from vlm.data.loading import CaptionData, QuestionData
from vlm.data.schema import QUESTIONS, SCENES
from vlm.data.tables import read_questions, read_scenes
from vlm.data.tokenizer import TextTokenizer
from vlm.data.writing import write_questions, write_scenes
from vlm.evaluation.pairing import pair_questions
from vlm.evaluation.timings import COLUMNS
from vlm.model.vlm import VLMConfig
from vlm.model.vqa import AnswerClassifier
from vlm.reporting.inputs import read_inputs
from vlm.scenes.scene import from_records
from vlm.scenes.truth import Truth
from vlm.training.execution import Execution
from vlm.training.objectives import classification
from vlm.training.train import train

TRAIN = "data/train"
SCENE_SHARD = Path(TRAIN) / "scenes-00000.parquet"
SWEEP, CONFUSION = "plots/benchmark_kv_cache/sweep.tsv", "plots/evaluate/confusion.csv"
TOKENIZER = TextTokenizer.fit(["a plus", "is it a plus", "yes"])
CONFIG = VLMConfig(
    image_size=16,
    patch_size=8,
    in_channels=1,
    vision_hidden=16,
    vision_depth=1,
    text_hidden=16,
    vocab_size=TOKENIZER.vocab_size,
)
Rows = list[dict[str, Any]]


def write_split(folder: str = TRAIN, questions: bool = True) -> None:
    """A split of 8 pictures with a caption and two questions each."""
    images = np.random.default_rng(0).integers(0, 256, (8, 1, 16, 16), np.uint8)
    write_scenes(folder, [images], [[]] * 8, [["a plus"]] * 8, [["plus"]] * 8)
    if questions:
        texts = (["exists"] * 16, ["is it a plus"] * 16, ["yes"] * 16, ["yes"] * 16)
        write_questions(folder, np.arange(8).repeat(2), *texts)


def scenes_changed(
    change: Callable[[Rows], Any], read: Callable[[str], Any] = read_scenes
) -> Raiser:
    """Reads a split after a change, in place, to the rows of its scenes."""

    def raiser() -> None:
        write_split()
        rows = pq.read_table(SCENE_SHARD).to_pylist()
        change(rows)
        pq.write_table(pa.Table.from_pylist(rows, SCENES), SCENE_SHARD)
        read(TRAIN)

    return raiser


def all_withheld() -> None:
    """A split without any answer."""
    write_split()
    path = Path(TRAIN) / "questions-00000.parquet"
    rows = [row | {"answer": None} for row in pq.read_table(path).to_pylist()]
    pq.write_table(pa.Table.from_pylist(rows, QUESTIONS), path)
    read_questions(TRAIN)


def four_scenes(rows: Rows) -> None:
    del rows[4:]


def picture(row: int, encoded: bytes) -> Callable[[Rows], None]:
    """Puts other bytes in the place of a row's picture."""
    return lambda rows: rows[row]["image"].update(bytes=encoded)


def captions(folder: str) -> CaptionData:
    return CaptionData(read_scenes(folder), TOKENIZER, 6)


def broken_shard() -> None:
    SCENE_SHARD.parent.mkdir(parents=True)
    SCENE_SHARD.write_bytes(b"PAR1 no more")
    read_scenes(TRAIN)


def shard_of_another_schema() -> None:
    SCENE_SHARD.parent.mkdir(parents=True)
    pq.write_table(pa.table({"scene_id": ["0"]}), SCENE_SHARD)
    read_scenes(TRAIN)


def no_questions() -> None:
    write_split(questions=False)
    read_questions(TRAIN)


def the_same_picture_twice() -> None:
    """A world with room for one picture, and noise that moves no pixel of it."""
    one = {"image_size": 9, "margin": 4, "shapes": ["plus"], "min_objects": 1, "max_objects": 1}
    changes = {f"data__world__{key}": value for key, value in (one | {"held_out": []}).items()}
    families = {"what_shape": 1, "count": 1}
    vision = {"model__vision__patch_size": 3, "model__vision__stem": "patch"}
    generate.main(tiny(**changes, **vision, data__world__noise=0.0001, data__families=families))


def nothing_to_learn(train_answers: list[str], val_answers: list[str]) -> Raiser:
    """Trains a classifier for these answers on tables in which every answer is `yes`."""

    def raiser() -> None:
        write_split()
        scenes, questions = read_scenes(TRAIN), read_questions(TRAIN)
        model = AnswerClassifier(CONFIG, ["no", "yes"])
        train(
            model,
            classification(model),
            QuestionData(scenes, questions, TOKENIZER, 8, train_answers),
            QuestionData(scenes, questions, TOKENIZER, 8, val_answers),
            tiny(train_vqa__classifier__batch_size=8).train_vqa.classifier,
            Execution(),
            source=Path("data"),
            seed=0,
            metrics_path=Path("metrics.json"),
            curve_path=Path("curve.tsv"),
        )

    return raiser


def report_on(files: dict[str, str]) -> Raiser:
    """Reads what the report is made of, where these files are all there is."""

    def raiser() -> None:
        Path("data/test").mkdir(parents=True)
        for name, text in files.items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(text)
        read_inputs(Path(), {})

    return raiser


def nothing_to_compare() -> None:
    texts = dict.fromkeys(("family", "phrase", "classifier_answer", "generator_phrase"), "yes")
    for folder, question in (("one", "is it a plus"), ("two", "is it a circle")):
        row = {"scene_id": 0, "question_id": 3, "question": question, "answer": "yes", **texts}
        Path(folder).mkdir()
        table = pa.Table.from_pylist([{**row, "classifier_confidence": 0.5}])
        pq.write_table(table, f"{folder}/questions.parquet")
    compare("one", "two", Path("page.html"), 1, None)


def twice_the_same_question() -> None:
    row = {"scene_id": 0, "question_id": 3, "question": "q", "answer": "yes"}
    pair_questions([row], [row, row])


def nothing_to_ask() -> None:
    params = tiny(data__families={"compare": 1}, data__degenerate="refuse")
    world = params.data.world.model_copy(update={"max_objects": 1})
    drawn.draw(params.data.model_copy(update={"world": world}), 0, "train", 8)


def a_silent_split() -> None:
    """Of test the one scene holds no single circle."""
    world = {"data__world__channels": 3, "data__world__colors": ["red", "blue"]}
    alone = {"data__world__shapes": ["circle"], "data__world__held_out": []}
    few = {"data__families": {"color": 1.0}, "data__test_scenes": 1, "data__test_ood_scenes": 4}
    generate.main(tiny(**world, **alone, **few, seed=0))


DATA: dict[str, Raiser] = {
    "B: got scene_id 0, question_id 3 twice, expected one row of it": twice_the_same_question,
    "data.families.compare: got no question that fits any of 1024 scenes of this world, expected"
    " at least one": nothing_to_ask,
    "data/train/questions-00000.parquet row 8: got scene_id 4, expected one of the 4 in the"
    " scene table": scenes_changed(four_scenes, read_questions),
    "data/train/scenes-00000.parquet row 2: got a picture of (H, W, C) (8, 8, 1), expected"
    " (16, 16, 1) as in the table's first row": scenes_changed(
        picture(2, png.encode(np.zeros((1, 8, 8), np.uint8)))
    ),
    "data/train/scenes-00000.parquet row 6: picture: got …, expected a gray or RGB PNG": (
        scenes_changed(picture(6, b"GIF89a"))
    ),
    "data/train/scenes-00000.parquet: got no rows, expected at least one": scenes_changed(
        lambda rows: rows.clear()
    ),
    "data/train/scenes-00000.parquet: got …, expected a Parquet file": broken_shard,
    "data/train/scenes-00000.parquet: scene_id: got string, expected int64": (
        shard_of_another_schema
    ),
    "data/train: got a folder without questions-00000.parquet": no_questions,
    "data/train: got no question with an answer, expected at least one": all_withheld,
    "data/train: no supervised item; expected at least one": nothing_to_learn(["no"], ["yes"]),
    "data/train: scene 3: no caption; expected 1 or more": scenes_changed(
        lambda rows: rows[3].update(captions=[], caption_keys=[]), captions
    ),
    "data/train: scene 3: text of 7 tokens, marks included, exceeds max_length 6: 'a circle and a"
    " plus'": scenes_changed(
        lambda rows: rows[3].update(captions=["a circle and a plus"]), captions
    ),
    "data/test: got no question about its 1 scenes, expected at least one": a_silent_split,
    "data/val: got 128 pictures that an earlier split has too, expected none with"
    " data.world.noise 0.0001": the_same_picture_twice,
    "data/val: got no such folder, expected scenes-00000.parquet in it": lambda: read_scenes(
        "data/val"
    ),
    "data/val: no supervised item in the first 8 pictures; raise val_pictures": (
        nothing_to_learn(["yes"], ["no"])
    ),
    "question: got 'is it a plus', expected one of this world's": lambda: Truth(tiny().data).tell(
        from_records([[]], tiny().data.world), np.array([0]), ["is it a plus"]
    ),
    "metrics/generate.json: got …, expected the JSON of the stage generate": report_on(
        {
            SWEEP: "\t".join(COLUMNS) + "\n" + "\t".join("1" * len(COLUMNS)) + "\n",
            CONFUSION: "truth,prediction\nyes,yes\n",
            "metrics/generate.json": "<<<<<<< HEAD\n{}\n",
        }
    ),
    f"{SWEEP} row 1: values: got 1, expected 2": report_on(
        {SWEEP: "batch\tlength\n8\t20\n<<<<<<< HEAD\n"}
    ),
    f"{SWEEP}: got columns batch, length, expected …": report_on({SWEEP: "batch\tlength\n8\t20\n"}),
    f"{SWEEP}: got no rows, expected those of the stage benchmark_kv_cache": report_on(
        {SWEEP: "batch\n"}
    ),
    f"{SWEEP}: no such file; expected what the stage benchmark_kv_cache writes": report_on({}),
    "one, two: got 0 questions in common among 1 and 1, expected at least half of the smaller"
    " side's": nothing_to_compare,
}
