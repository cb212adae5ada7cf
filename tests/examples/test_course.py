"""The six lessons, run small: what they print, how short they are, and what they import."""

import ast
import importlib
import re
import sys

import pytest
from project import ROOT

import vlm

COURSE = ROOT / "examples/course"
LESSONS = sorted(path.stem for path in COURSE.glob("*.py"))


@pytest.fixture
def printed(monkeypatch, capsys):
    """printed(name, **sizes): what the lesson prints."""
    monkeypatch.syspath_prepend(COURSE)

    def run(name: str, **sizes) -> str:
        importlib.import_module(name).main(**sizes)
        return capsys.readouterr().out

    return run


def numbers(pattern: str, text: str) -> list[float]:
    """All that the pattern's one group finds."""
    return [float(found) for found in re.findall(pattern, text)]


def test_there_are_six():
    assert [name[:7] for name in LESSONS] == [f"lesson{n}" for n in range(1, 7)]


@pytest.mark.parametrize("name", LESSONS)
def test_short_and_of_public_names_only(name):
    source = (COURSE / f"{name}.py").read_text()
    assert len(source.splitlines()) < 60
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None
            top = node.module.partition(".")[0]
            if top == "vlm":
                assert node.module == "vlm"
                assert {alias.name for alias in node.names} <= set(vlm.__all__)
            else:
                assert top in sys.stdlib_module_names | {"torch", *LESSONS}
        elif isinstance(node, ast.Import):
            tops = {alias.name.partition(".")[0] for alias in node.names}
            assert tops <= sys.stdlib_module_names | {"torch"}


@pytest.mark.parametrize("name", LESSONS)
def test_runs_only_as_a_script(name):
    last = ast.parse((COURSE / f"{name}.py").read_text()).body[-1]
    assert ast.unparse(last) == "if __name__ == '__main__':\n    main()"


def test_patches(printed):
    text = printed("lesson1_patches")
    assert "picture (1, 3, 224, 224) -> tokens (1, 196, 768)" in text
    assert "14 x 14 = 196 patches of 768 values each" in text
    assert "590,592 parameters" in text
    assert numbers(r"differ by at most (\S+)", text)[0] <= 1e-4
    places = ("right", "below it", "corner")
    one, two = (
        [numbers(rf"{kind} positions .*{place} (\d\.\d+)", text)[0] for place in places]
        for kind in ("1-D", "2-D")
    )
    assert one[0] > one[1] and two[0] == two[1] > two[2]


def test_encoder(printed):
    text = printed("lesson2_encoder", image_size=32, depth=2)
    assert "picture (1, 3, 32, 32) -> tokens (1, 5, 768), CLS (1, 768)" in text
    assert f"{2 * 7_087_872 + 590_592 + 3 * 768:,} parameters" in text  # blocks, patches, CLS, norm
    assert "7,087,872 of them in each of 2 blocks" in text
    assert "12 heads of width 64" in text
    assert "4 x 4 = 16 between patches" in text and "5 x 5 = 25" in text
    assert numbers(r"same picture again: CLS differs by (\S+)", text) == [0.0]
    assert numbers(r"another picture: CLS differs by (\S+)", text)[0] > 1e-3


def test_alignment(printed):
    text = printed("lesson3_alignment", steps=60, image_size=32, depth=1)
    assert "encoder: 0 parameters learn" in text and "text table: 0 parameters learn" in text
    assert "projector: 1,312,256 parameters learn" in text
    losses = numbers(r"all pairs (\S+)", text)
    assert 0.95 < losses[0] < 1.05 and losses[-1] <= 0.87
    assert sorted(losses, reverse=True) == losses
    assert 0.80 < numbers(r"every picture: (\S+)", text)[0] < 0.85


def test_fusion(printed):
    text = printed("lesson4_fusion", length=6)
    assert "4,746,752 parameters" in text
    assert "text (1, 6), picture (1, 197, 256) -> logits (1, 6, 1024)" in text
    assert "[1, 1, 1, 0, 0]" in text
    before, after = numbers(r"before it move by ([^,\s]+)", text), numbers(r"on by (\S+)", text)
    assert before[0] <= 1e-6 and after[0] > 0.1
    assert numbers(r"picture changed: logits move by (\S+)", text)[0] > 1e-2
    assert numbers(r"use_cache=True: logits move by (\S+)", text)[0] <= 1e-5
    assert numbers(r"over a cache: logits move by (\S+)", text)[0] <= 1e-5


def test_pretraining(printed):
    text = printed("lesson5_pretraining", num_pairs=40, steps=12, seeds=(0, 1))
    assert "contrastive loss; a guess costs 2.77" in text and "LM loss; a guess costs 6.24" in text
    firsts, lasts = numbers(r"first step (\d\.\d+)", text), numbers(r"last five (\d\.\d+)", text)
    assert len(firsts) == len(lasts) == 4
    assert all(last < first for first, last in zip(firsts, lasts, strict=True))
    assert 2.5 < firsts[0] < 3.5 and 6.0 < firsts[2] < 6.7
    assert firsts[0] != firsts[1]


def test_evaluation(printed):
    text = printed("lesson6_evaluation", n_samples=12, num_pairs=20, steps=2, seeds=(0, 1))
    assert "12 unseen pairs, before and after 2 steps" in text
    assert len(re.findall(r"-> \d\.\d\d \[\d\.\d\d, \d\.\d\d\], chance \d\.\d{3}", text)) == 9
    assert numbers(r"seed \d: image_to_text_R@\d+ .*chance (\S+)", text) == [0.25, 0.5, 0.25, 0.5]
    assert len(numbers(r"seed \d: text_to_image_R@\d+ (\S+)", text)) == 4


@pytest.mark.slow
def test_fifty_steps_of_pretraining_are_seen_in_recall(printed):
    """At full size, each seed and direction: the interval lies above chance."""
    text = printed("lesson6_evaluation")
    lows, chances = (
        numbers(pattern, text)
        for pattern in (r"seed \d: .*\[(\d\.\d+)", r"seed \d: .*chance (\d\.\d+)")
    )
    assert len(lows) == 12
    assert all(low > chance for low, chance in zip(lows, chances, strict=True))


@pytest.mark.slow
def test_the_bridge_brings_its_pairs_together(printed):
    """At full size: from orthogonal to at most 0.85, over all pairs."""
    before, *_, after = numbers(r"over all pairs (\d\.\d+)", printed("lesson3_alignment"))
    assert before == pytest.approx(1.0, abs=0.03)
    assert after <= 0.85


@pytest.mark.slow
def test_fifty_steps_of_pretraining_are_seen_in_both_losses(printed):
    """At full size, means over three seeds of the first step and of the last five."""
    text = printed("lesson5_pretraining")
    pattern = r"all: (\S+) \(spread \S+\) -> (\S+) "
    (first, last), (first_lm, last_lm) = (map(float, found) for found in re.findall(pattern, text))
    assert 2.7 < first < 3.5 and 2.2 < last < 2.6  # ln 16 is 2.77
    assert 6.2 < first_lm < 6.6 and 4.4 < last_lm < 4.9  # ln 512 is 6.24
