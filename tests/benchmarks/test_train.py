"""The training benchmark: a fair plain script, honest clocks, and a table that hides nothing."""

import re

import pytest
import torch

from benchmarks import train
from benchmarks.plain_recipe import (
    PlainClassifier,
    PlainGenerator,
    count_right,
    examples,
    sinusoids,
    train_plainly,
)
from benchmarks.race import Arm, Judgement, Paced, race, ratio_to, table
from vlm.config import load_params
from vlm.data.drawn import draw
from vlm.data.tokenizer import TextTokenizer
from vlm.marks import EOS_ID, PAD_ID

RECIPE = load_params(train.PRESETS / "notebook.yaml")
PADDED = RECIPE.train_vqa.generator.pad_phrases


@pytest.fixture(scope="module")
def few():
    scenes, asked = draw(RECIPE.data, 0, "train", 60).tables()
    tokenizer = TextTokenizer.fit([*asked.question, *asked.phrase])
    answers = sorted(set(asked.answer))
    return examples(scenes, asked, tokenizer, answers, PADDED), tokenizer.vocab_size, len(answers)


def models(vocabulary: int, answers: int):
    torch.manual_seed(0)
    return PlainClassifier(RECIPE, vocabulary, answers), PlainGenerator(RECIPE, vocabulary)


def judged(name: str, *judgements: tuple[int, float, int]) -> Arm:
    return Arm(name, lambda: 0, 100, [Judgement(*each) for each in judgements])


def test_the_plain_models_take_a_row_a_question(few):
    data, vocabulary, answers = few
    classifier, generator = models(vocabulary, answers)
    rows = torch.arange(5)
    pictures, questions = data.pictures(rows), data.questions[rows]
    assert classifier(pictures, questions).shape == (5, answers)
    memory = generator.memory(pictures, questions)
    assert memory.shape == (5, 2, RECIPE.model.text.hidden)
    assert generator(memory, data.phrases[rows, :-1]).shape == (5, PADDED - 1, vocabulary)


def test_a_plain_row_depends_on_neither_its_neighbours_nor_padding_nor_later_words(few):
    data, vocabulary, answers = few
    classifier, generator = models(vocabulary, answers)
    rows = torch.arange(8)
    pictures, questions = data.pictures(rows), data.questions[rows]
    together = classifier(pictures, questions)
    length = int((questions[3] != PAD_ID).sum())
    alone = classifier(pictures[3:4], questions[3:4, :length])
    torch.testing.assert_close(together[3:4], alone, atol=1e-5, rtol=1e-5)
    memory, phrases = generator.memory(pictures, questions), data.phrases[rows]
    whole = generator(memory, phrases)
    torch.testing.assert_close(whole[:, :4], generator(memory, phrases[:, :4]))


def test_sinusoids_are_those_of_the_paper():
    table = sinusoids(7, 6)
    for position in range(7):
        for pair in range(3):
            angle = torch.tensor(position / 10_000 ** (2 * pair / 6))
            torch.testing.assert_close(table[position, 2 * pair], angle.sin())
            torch.testing.assert_close(table[position, 2 * pair + 1], angle.cos())


def test_a_phrase_counts_as_right_exactly_where_greedy_decoding_gives_it(few):
    data, vocabulary, answers = few
    _, generator = models(vocabulary, answers)
    rows = torch.arange(6)
    memory = generator.memory(data.pictures(rows), data.questions[rows])
    longest = PADDED
    said = data.phrases[rows, :1]
    while said.shape[1] < longest:  # the slow obvious way, ended or not
        said = torch.cat([said, generator(memory, said)[:, -1].argmax(-1, keepdim=True)], dim=1)
    ends = (said == EOS_ID).long().cumsum(1) - (said == EOS_ID).long() > 0
    own = said.masked_fill(ends, PAD_ID)
    assert generator.right(data._replace(phrases=own), rows).all()
    wrong = own.clone()
    wrong[:, 1] = (wrong[:, 1] + 1) % vocabulary
    assert not generator.right(data._replace(phrases=wrong), rows).any()


@pytest.mark.parametrize("head", [0, 1])
def test_the_plain_recipe_learns_what_it_is_shown(few, head):
    data, vocabulary, answers = few
    model = models(vocabulary, answers)[head]
    config = RECIPE.train_vqa.generator.model_copy(update={"batch_size": 30, "learning_rate": 5e-3})
    before = model.loss(data, torch.arange(60)).detach()
    assert list(train_plainly(model, data, config, 0, every=50, most=120)) == [50, 100, 120]
    assert model.loss(data, torch.arange(60)).detach() < before / 2
    assert count_right(model, data, 25) > 36  # of 60; the commonest answer has fewer


def test_the_ratio_is_that_of_the_seconds_to_the_target():
    ours = judged("ours", (20, 2.0, 50), (40, 4.0, 95), (60, 6.0, 90))
    plain = judged("plain", (25, 5.0, 93), (50, 10.0, 94), (75, 15.0, 99))
    assert ratio_to(plain, ours, 0.94) == "2.50"
    assert ratio_to(ours, ours, 0.94) == "1.00"
    header, first, second = table(ours, [plain], 0.94)
    assert "94%" in header
    assert re.search(r"10\.0 +4\.00 \(40\) +90\.00% \[", first) and first.endswith("1.00")
    assert re.search(r"5\.0 +10\.00 \(50\) +99\.00% \[", second) and second.endswith("2.50")


def test_a_target_never_reached_is_said():
    ours, plain = judged("ours", (20, 2.0, 95)), judged("plain", (25, 9.0, 93), (50, 18.0, 93))
    assert "never in 18 s" in table(ours, [plain], 0.94)[2]
    assert ratio_to(plain, ours, 0.94) == ">9.0"
    assert ratio_to(ours, plain, 0.94) == "-"  # nothing to divide by


def test_arms_take_turns_and_end_when_they_have_done_their_steps_and_reached_the_target():
    order: list[str] = []

    def judge(name: str, rights: list[int]):
        return lambda: order.append(name) or rights.pop(0)

    def steps(name: str):
        for step in range(1, 6):
            order.append(f"{name}{step}")
            yield step

    def ours_trains(pause):
        for step in (1, 2):
            order.append(f"ours{step}")
            pause(step)

    ours = Arm("ours", judge("judged", [1, 9]), 10)
    early = Paced("early", judge("judged", [9, 9, 9]), 10, training=steps("a"), least=3)
    never = Paced("never", judge("judged", [1] * 5), 10, training=steps("b"), least=3)
    race(ours_trains, ours, [early, never], 0.9)
    trained = [event for event in order if event != "judged"]
    assert trained == ["ours1", "a1", "b1", "ours2", "a2", "b2", "a3", "b3", "b4", "b5"]
    assert order[1::2] == ["judged"] * 10
    assert [len(arm.judgements) for arm in (ours, early, never)] == [2, 3, 5]


def test_judging_and_waiting_are_in_no_ones_time(monkeypatch):
    now = 0.0

    def pass_time(seconds: float, value: int = 0) -> int:
        nonlocal now
        now += seconds
        return value

    def steps():
        for step in (10, 20):
            pass_time(3.0)
            yield step

    def ours_trains(pause):
        for step in (1, 2):
            pass_time(1.0)
            pause(step)

    monkeypatch.setattr("benchmarks.race.time.perf_counter", lambda: now)
    ours = Arm("ours", lambda: pass_time(100.0, 10), 10)
    other = Paced("other", lambda: pass_time(500.0, 10), 10, training=steps(), least=20)
    race(ours_trains, ours, [other], 0.9)
    assert [j.seconds for j in ours.judgements] == [1.0, 2.0]
    assert [j.seconds for j in other.judgements] == [3.0, 6.0]


def test_our_parameters_hold_the_recipes_world_and_start_from_nothing():
    params = train.our_params(RECIPE.data)
    assert params.data.world == RECIPE.data.world
    assert params.data.families == RECIPE.data.families
    heads = params.train_vqa
    assert {heads.classifier.start, heads.generator.start} == {"scratch"}


def test_the_command_prints_a_line_an_arm(monkeypatch, capsys):
    recipe, ours = RECIPE.model_dump(), train.our_params(RECIPE.data).model_dump()
    for values in (recipe, ours):
        values["data"]["train_scenes"] = 40
        for head in train.HEADS:
            values["train_vqa"][head] |= {"steps": 4, "batch_size": 8, "warmup_steps": 0}
        for stage in ("align", "pretrain"):
            values[stage]["batch_size"] = 8
    parsed = [train.parse_params(values) for values in (recipe, ours)]
    monkeypatch.setattr(train, "load_params", lambda path: parsed[0])
    monkeypatch.setattr(train, "our_params", lambda data: parsed[1])
    train.main(["--threads", "1", "--fresh", "20", "--every", "2", "--patience", "2"])
    said = capsys.readouterr().out
    for name in ("ours", "plain, its scenes", "plain, our scenes"):
        assert len(re.findall(rf"^{name} +\d+\.\d .*never in \d+ s", said, re.M)) == 2
    assert "classifier: short answers" in said and "generator: whole phrases" in said


@pytest.mark.parametrize("wrong", [["--target", "0"], ["--head", "both, please"], ["--every", "0"]])
def test_a_wrong_option_ends_with_status_2(wrong, capsys):
    with pytest.raises(SystemExit) as ended:
        train.main(wrong)
    assert ended.value.code == 2
    assert "error" in capsys.readouterr().err
