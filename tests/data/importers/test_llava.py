import json
from pathlib import Path
from typing import Any

import pytest
from published import TALKS, halves, number_of_rows, talk, write_json, write_llava, write_picture

from vlm.data.importers.llava import read
from vlm.data.importers.rows import Asked, Bad
from vlm.errors import UserError


def test_a_picture_has_the_turns_of_its_conversations(tmp_path: Path):
    rows = write_llava(tmp_path)
    found, bad = halves(read(tmp_path))
    assert bad == [] and number_of_rows(found) == rows
    assert [(each.split, Path(str(each.picture)).name) for each in found] == [
        (None, "a.jpg"),
        (None, "b.jpg"),
        ("test", "d.jpg"),
        ("val", "c.jpg"),
    ]
    assert found[0].rows == ("chat_8k.json row 1", "chat_8k.json row 3")
    assert [(each.question, each.answer) for each in found[0].asked] == [
        ("What is it?", "A plus."),
        ("Is it big?", "No, it is small."),
        ("And the color?", "White."),
    ]
    assert found[1].asked == (Asked("Who is there?", "Nobody.", "Nobody.", family="conversation"),)
    assert [each.question for each in found[3].asked] == ["Left?", "Right?", "Up?", "Down?"]
    assert found[3].rows == tuple(f"val.jsonl line {number}" for number in (1, 2, 3, 4))


@pytest.mark.parametrize(
    ("turn", "question"),
    [
        ("<image>\nWhat is it?", "What is it?"),
        ("What is it?\n<image>", "What is it?"),
        ("What is\n<image>\nin it?", "What is in it?"),
        ("In <image>, what is it?", "In, what is it?"),
        ("What is it in <image> ?", "What is it in?"),
        ("What<image>is it?", "What is it?"),
        ("What is it?", "What is it?"),
    ],
)
@pytest.mark.parametrize("roles", [False, True])
def test_the_mark_of_the_picture_is_taken_out(
    tmp_path: Path, turn: str, question: str, roles: bool
):
    write_picture(tmp_path / "a.jpg", 0)
    talks = [
        talk("a.jpg", turn, "This.", roles=roles),
        talk("a.jpg", "First?", "Yes.", turn, "This.", roles=roles),
    ]
    write_json(tmp_path / "train.json", talks)
    (found,) = read(tmp_path)
    assert not isinstance(found, Bad) and found.split == "train"
    assert [each.question for each in found.asked] == [question, "First?", question]


BROKEN = {
    "got 3, expected an object": 3,
    "image: got no picture": talk(None, "Why?", "So."),
    "image: got 2 pictures": talk(["a.jpg", "b.jpg"], "Why?", "So."),
    "image: got 0 pictures": talk([], "Why?", "So."),
    "image: got 3": talk(3, "Why?", "So."),
    "no such file": talk("none.jpg", "Why?", "So."),
    "a path through '..'": talk("../a.jpg", "Why?", "So."),
    "conversations: got 2 <image>": talk("a.jpg", "<image><image> Why?", "So."),
    "conversations: got 3 <image>": talk("a.jpg", "<image> <image> Why?", "So.", "<image>", "So."),
    "conversations: got 3 turns": talk("a.jpg", "Why?", "So.", "And?"),
    "conversations: got 1 turns": talk("a.jpg", "Why?"),
    "conversations: got []": talk("a.jpg"),
    "conversations: got 'Why?'": {"image": "a.jpg", "conversations": "Why?"},
    "conversations: got None": {"image": "a.jpg"},
    "turn 1 without <image>: got ' '": talk("a.jpg", "<image>", "So."),
    "turn 4: got ''": talk("a.jpg", "Why?", "So.", "And?", ""),
    "turn 2: got <image> in a reply": talk("a.jpg", "Why?", "<image> So."),
    "turn 2: got 'So.', expected an object": {
        "image": "a.jpg",
        "conversations": [{"from": "human", "value": "Why?"}, "So."],
    },
    "turn 1: got it from 'gpt', expected human": {
        "image": "a.jpg",
        "conversations": talk("a.jpg", "Why?", "So.")["conversations"][::-1],
    },
    "turn 2: got it from 'human', expected gpt": {
        "image": "a.jpg",
        "conversations": [{"from": "human", "value": "Why?"}] * 2,
    },
    "turn 1: got it from 'system', expected human": {
        "image": "a.jpg",
        "conversations": [{"role": "system", "content": "Be good."}] * 2,
    },
    "turn 1: got it from None": {"image": "a.jpg", "conversations": [{}, {}]},
    "turn 1: got [{'type': 'text'}]": {
        "image": "a.jpg",
        "conversations": [{"role": "user", "content": [{"type": "text"}]}] * 2,
    },
}


@pytest.mark.parametrize(("reason", "row"), BROKEN.items(), ids=BROKEN)
def test_a_broken_conversation_is_listed_as_a_whole(tmp_path: Path, reason: str, row: Any):
    rows = write_llava(tmp_path)
    write_json(tmp_path / "chat_8k.json", [TALKS[0], row, *TALKS[1:]])
    found, bad = halves(read(tmp_path))
    assert [each.row for each in bad] == ["chat_8k.json row 2"] and reason in bad[0].reason
    assert number_of_rows(found) == rows


def test_a_list_of_one_picture_is_that_picture(tmp_path: Path):
    write_picture(tmp_path / "c.jpg", 0)
    write_json(tmp_path / "chat.json", [talk(["c.jpg"], "Why?", "So.")])
    write_json(tmp_path / "valid.json", [talk("c.jpg", "Why?", "So.")])
    found, _ = halves(read(tmp_path))
    assert [each.picture for each in found] == [tmp_path / "c.jpg"] * 2
    assert [each.split for each in found] == [None, "val"]


def test_a_cut_line_is_one_bad_row(tmp_path: Path):
    rows = write_llava(tmp_path)
    lines = (tmp_path / "val.jsonl").read_text().splitlines()
    (tmp_path / "val.jsonl").write_text("\n".join([lines[0], lines[1][:30], *lines[2:]]))
    found, bad = halves(read(tmp_path))
    assert [each.row for each in bad] == ["val.jsonl line 2"]
    assert number_of_rows(found) == rows - 1


def test_files_of_another_kind_are_named(tmp_path: Path):
    for root in (tmp_path, tmp_path / "none"):
        with pytest.raises(UserError, match=r"got no such files, expected \*.json or"):
            list(read(root))
    write_llava(tmp_path)
    (tmp_path / "more.json").write_text(json.dumps({"a": 1}))
    with pytest.raises(UserError, match=r"more\.json: got {'a': 1}, expected JSON: a list"):
        list(read(tmp_path))
