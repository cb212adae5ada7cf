"""`vlm shapes`: the figures that it prints add up, and are those of the formulas."""

import copy
import re
import subprocess
import sys

import pytest
import torch
from project import ROOT, read_preset
from typer.testing import CliRunner

from vlm.app.cli import app
from vlm.app.shapes import (
    Section,
    Vocabulary,
    config_in_force,
    count_vocabulary,
    page,
    shapes_in_force,
    shapes_of_defaults,
)
from vlm.app.step import time_step
from vlm.app.trace import Row, shape, table
from vlm.config import Params, parse_params
from vlm.model.memory import Memory, MemoryPart
from vlm.model.vqa import AnswerClassifier
from vlm.training.vision_language import VisionLanguageModel

WORDS = Vocabulary(43, ["no", "yes"], "")
TINY = ROOT / "presets/tiny.yaml"


def changed(**values) -> dict:
    """The tiny preset with dotted keys (written with __) changed."""
    tree = copy.deepcopy(read_preset("tiny"))
    for name, value in values.items():
        *sections, key = name.split("__")
        section = tree
        for part in sections:
            section = section[part]
        assert key in section
        section[key] = value
    return tree


def vit_b16(**values) -> Params:
    """The tiny preset around an encoder of the size of ViT-B/16."""
    picture = {"image_size": 224, "channels": 3}
    vision = {"stem": "patch", "patch_size": 16, "hidden": 768, "depth": 12, "heads": 12}
    tree = changed(
        **{f"data__world__{key}": value for key, value in picture.items()},
        **{f"model__vision__{key}": value for key, value in {**vision, "mlp_ratio": 4.0}.items()},
        **values,
    )
    return parse_params(tree)


@pytest.fixture(scope="module")
def tiny() -> Section:
    return shapes_in_force(parse_params(changed()), WORDS)


def find(rows: list[Row], *path: str) -> Row:
    """The row of this name within that of the name before, from a model on."""
    for level, name in enumerate(path):
        names = [(row.level, row.name.split()[0]) for row in rows]
        rows = rows[names.index((level, name)) :]
    return rows[0]


def adds_up(rows: list[Row]) -> bool:
    """Each row with rows below it is their sum."""
    for index, row in enumerate(rows):
        below = []
        for other in rows[index + 1 :]:
            if other.level <= row.level:
                break
            below += [other.parameters] if other.level == row.level + 1 else []
        if below and sum(below) != row.parameters:
            return False
    return True


NUMBER = r"\d[\d,]*(?: \(\w+\)| heads| layers)?"
EQUATION = re.compile(rf"({NUMBER}(?: [x+/] {NUMBER})*) = (\d[\d,]*)")


def equations(lines: list[str]) -> list[tuple[int, int]]:
    """What stands before each `=`, worked out, and the number after it."""
    pairs = EQUATION.findall("\n".join(lines))
    terms = [re.sub(r"[^\dx+/]", "", re.sub(r"\(\w+\)", "", left)) for left, _ in pairs]
    values = [eval(term.replace("x", "*").replace("/", "//")) for term in terms]
    return [
        (value, int(right.replace(",", "")))
        for value, (_, right) in zip(values, pairs, strict=True)
    ]


CHOICES = [
    {},
    {"model__vision__stem": "patch", "model__vision__pooling": "mean"},
    {"model__vision__position": "learned", "model__text__depth": 0},
    {"model__vision__depth": 0, "model__text__depth": 2, "model__decoder__depth": 3},
    {"model__vision__norm": "post", "model__text__norm": "post", "model__decoder__norm": "post"},
    {"train_vqa__classifier__fusion": "attention", "train_vqa__generator__memory": "pooled"},
    {"train_vqa__classifier__fusion": "concat", "train_vqa__generator__context": "none"},
    {"train_vqa__classifier__question_frequency": 0.0},
]


@pytest.mark.parametrize("choice", CHOICES)
def test_rows_add_up_to_the_model_whatever_is_chosen(choice):
    params = parse_params(changed(**choice))
    section = shapes_in_force(params, WORDS)
    model = VisionLanguageModel(config_in_force(params, WORDS))
    total = sum(p.numel() for p in model.parameters())
    assert find(section.rows, "pretraining").parameters == total
    assert adds_up(section.rows)
    models = [row.name for row in section.rows if row.level == 0]
    assert models == ["pretraining", "classifier", "generator"]
    for line in section.arithmetic:
        found = equations([line])
        assert bool(found) == (" = " in line) and all(left == right for left, right in found), line


def test_the_head_is_the_one_that_the_stage_trains(tiny):
    params = parse_params(changed())
    head = params.train_vqa.classifier
    model = AnswerClassifier(
        config_in_force(params, WORDS),
        WORDS.answers,
        head.fusion,
        head.fusion_depth,
        head.head_hidden,
        head.question_frequency,
    )
    total = sum(p.numel() for p in model.parameters())
    assert find(tiny.rows, "classifier").parameters == total


# 32 / 8 = 4 to a side, so 16 patches and CLS; texts of 32 tokens, of which 31 are predicted.
@pytest.mark.parametrize(
    ("path", "takes", "gives"),
    [
        ("pretraining vision", "(B, 1, 32, 32)", "(B, 17, 32), (B, 32)"),
        ("pretraining vision stem", "(B, 1, 32, 32)", "(B, 16, 32)"),
        ("pretraining vision blocks", "(B, 17, 32)", "(B, 17, 32)"),
        ("pretraining projector", "(B, 17, 32), (B, 32)", "(B, 17, 32), (B, 32)"),
        ("pretraining text", "(B, 32)", "(B, 32, 32), (B, 32)"),
        ("pretraining decoder", "(B, 31), (B, 17, 32)", "(B, 31, 43)"),
        ("pretraining decoder blocks", "(B, 31, 32), (B, 17, 32)", "(B, 31, 32)"),
        ("pretraining decoder head", "(B, 31, 32)", "(B, 31, 43)"),
        ("classifier", "(B, 1, 32, 32), (B, 32)", "(B, 2)"),
        ("generator decoder", "(B, 31), (B, 17, 32), (B, 32, 32)", "(B, 31, 43)"),
    ],
)
def test_shapes_of_the_tiny_preset(tiny, path, takes, gives):
    row = find(tiny.rows, *path.split())
    assert (row.takes, row.gives) == (takes, gives)


def test_parts_stand_in_the_order_in_which_data_flows():
    params = parse_params(changed(model__vision__position="learned"))
    rows = shapes_in_force(params, WORDS).rows
    names = [row.name for row in rows[: [row.name for row in rows].index("classifier")]]
    assert names == [
        *("pretraining", "vision", "stem", "cls", "positions", "blocks (1)", "norm", "projector"),
        *("text", "embedding", "positions", "blocks (1)", "norm"),
        *("decoder", "embedding", "positions", "blocks (1)", "norm", "head", "log_tau"),
    ]


def test_arithmetic_of_vit_b16():
    section = shapes_in_force(vit_b16(), WORDS)
    assert section.arithmetic[:7] == [
        "224 / 16 gives 14 x 14 = 196 patches of 16 x 16 x 3 = 768 values",
        "patch projection: 768 x 768 + 768 = 590,592 parameters",
        "positions: 196 x 768 = 150,528 fixed values, nothing learned",
        "with CLS: 196 + 1 = 197 tokens",
        "width of a head: 768 / 12 = 64",
        "scores a head a layer: 196 x 196 = 38,416 between patches, 197 x 197 = 38,809 with CLS",
        "scores a picture: 38,809 x 12 heads x 12 layers = 5,588,496",
    ]
    assert find(section.rows, "pretraining", "vision").parameters == 85_647_360
    assert all(left == right for left, right in equations(section.arithmetic))
    learned = shapes_in_force(vit_b16(model__vision__position="learned"), WORDS)
    assert "positions: 196 x 768 = 150,528 parameters" in learned.arithmetic
    assert find(learned.rows, "pretraining", "vision").parameters == 85_647_360 + 150_528


def test_the_conv_stem_is_told_as_it_is(tiny):
    lines = tiny.arithmetic
    assert lines[:2] == [
        "32 / 8 gives 4 x 4 = 16 tokens, one for each 8 x 8 pixels",
        "the conv stem halves the picture 3 times, and a token sees some of its neighbours'"
        " pixels too",
    ]
    assert lines[2].startswith("conv stem: 8 x 1 x 3 x 3 + 8 + 16 x 8 x 3 x 3 + 16 + 32 x 16 x")


def test_the_librarys_defaults():
    rows, arithmetic = shapes_of_defaults()
    assert adds_up(rows)
    assert all(left == right for left, right in equations(arithmetic))
    assert [row[3:] for row in rows if row.level == 0] == [
        ("(1, 3, 224, 224)", "(1, 196, 768)", 590_592),
        ("(1, 3, 224, 224)", "(1, 197, 768), (1, 768)", 85_647_360),
        ("(1, 197, 768)", "(1, 197, 512)", 1_312_256),
        ("(1, 32), (1, 197, 256)", "(1, 32, 1024)", 4_746_752),
    ]


def test_masks_are_no_part_of_a_shape_and_memories_are_their_tokens():
    tokens, mask = torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.bool)
    memory = Memory([MemoryPart(tokens, mask=mask)], context=torch.zeros(2, 4))
    assert shape((torch.zeros(5), memory, mask, None, [True])) == "(5,), (2, 3, 4)"


def test_columns_are_aligned():
    lines = table(shapes_of_defaults().rows)
    widths = {len(line) for line in lines if line}
    assert len(widths) == 1 and all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize(
    ("scenes", "source"),
    [
        (512, "counted over all 512 training scenes"),
        (3000, "counted over the first 2,000 training scenes"),
    ],
)
def test_the_vocabulary_is_that_of_the_training_texts(scenes, source):
    words = count_vocabulary(parse_params(changed(data__train_scenes=scenes)))
    assert words == (43, ["0", "1", "2", "3", "circle", "no", "plus", "yes"], source)


def test_the_vocabulary_is_no_larger_than_the_parameters_allow():
    few = changed(model__text__max_vocab=20, train_vqa__classifier__max_answers=2)
    words = count_vocabulary(parse_params(few))
    assert words.size == 20 and set(words.answers) < {"0", "1", "2", "3", "no", "yes"}
    assert len(words.answers) == 2
    pairs = parse_params(changed(model__text__tokenizer="bpe"))
    counted = count_vocabulary(pairs)
    assert 260 < counted.size < pairs.model.text.max_vocab
    assert "byte pairs, the four marks among them, and 8 answers" in page(TINY, pairs, counted)


def test_own_data_has_at_most_what_the_parameters_allow():
    own = parse_params(changed(data__source="imagefolder", data__own__image_size=64))
    words = count_vocabulary(own)
    assert (words.size, len(words.answers)) == (8192, 3000) and "at most" in words.source
    assert config_in_force(own, words).image_size == 64
    assert "B pictures of 3 x 64 x 64" in page(TINY, own, words)


def test_the_command_prints_both_parts_and_times_a_step():
    done = CliRunner().invoke(app, ["shapes", str(TINY), "--step", "--batch", "3"])
    assert (done.exit_code, done.exception) == (0, None)
    assert done.stderr == "timing a step, batch 3 ...\n"
    for figure in (
        *("V = 43 words", "8 answers, counted over all 512 training scenes"),
        *("590,592", "38,416", "38,809", "1,312,256", "85,647,360", "4,746,752"),
        *("(1, 196, 768)", "(1, 197, 768)", "(1, 768)", "(1, 197, 512)", "(1, 32, 1024)"),
        "One training step of pretrain, batch 3: random pictures, texts of 32 tokens, ",
    ):
        assert figure in done.stdout, figure
    for pattern in (
        *(r"^forward +([\d.]+) s \(", r"^step +([\d.]+) s \(.+clipping"),
        *(r"^peak memory +(\d+) MiB, ", r"MiB, (\d+) of it before"),
    ):
        found = re.search(pattern, done.stdout, re.MULTILINE)
        assert found is not None and float(found[1]) > 0, pattern


@pytest.mark.parametrize(("batch", "told"), [(6, "batch 6 in 4 micro-batches: "), (1, "batch 1: ")])
def test_a_step_is_cut_as_training_cuts_it(batch, told):
    section = {"pretrain__accumulate": 4, "pretrain__clip_norm": 0.0}
    params = parse_params(changed(**section, runtime__threads=1))
    assert told in time_step(params, config_in_force(params, WORDS), batch)[0]


def test_the_command_line_waits_for_no_torch():
    code = "import sys, vlm.app.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.pipeline
def test_mistakes_are_one_line(tmp_path):
    def shapes(*arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "vlm", "shapes", *arguments],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    bad = tmp_path / "bad.yaml"
    bad.write_text(TINY.read_text().replace("patch_size: 8", "patch_size: 5"))
    assert shapes(str(bad)) == (
        *(2, ""),
        "model.vision: conv stem needs patch_size a power of two, got 5\n",
    )
    assert shapes() == (2, "", "params.yaml: no such file; expected a parameter file\n")
    assert shapes(str(TINY), "--batch", "3") == (
        *(2, ""),
        "--batch: got 3 without --step, expected both\n",
    )
