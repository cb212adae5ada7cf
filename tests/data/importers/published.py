"""Small invented data sets in the layouts of CLEVR, VQA v2 and LLaVA."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PIL import Image

from vlm.data.importers.rows import Bad, Found

Rows = list[Any]


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def write_picture(path: Path, shade: int) -> None:
    """3 x 2 pixels; another shade is another picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (3, 2), (shade, 255 - shade, 40)).save(path)


def halves(read: Iterable[Found | Bad]) -> tuple[list[Found], list[Bad]]:
    """What was found, and what is bad."""
    found, bad = [], []
    for each in read:
        (found if isinstance(each, Found) else bad).append(each)
    return found, bad


def number_of_rows(read: Iterable[Found | Bad]) -> int:
    """Rows out and rows listed."""
    return sum(len(each.rows) if isinstance(each, Found) else 1 for each in read)


def thing(size: str, color: str, material: str, shape: str, x: int, y: int) -> dict[str, Any]:
    """An object of a CLEVR scene, by its place in the picture."""
    kinds = {"size": size, "color": color, "material": material, "shape": shape}
    return {**kinds, "pixel_coords": [x, y, 9.5], "rotation": 12.5, "3d_coords": [0.1, 0.2, 0.3]}


def clevr_scene(picture: str, things: Rows, relations: str = "relationships") -> dict[str, Any]:
    """A scene as CLEVR keeps it: for each object, those that stand so to it."""
    stands = {
        "left": lambda a, b: a[0] < b[0],
        "right": lambda a, b: a[0] > b[0],
        "front": lambda a, b: a[1] > b[1],
        "behind": lambda a, b: a[1] < b[1],
    }
    places = [each["pixel_coords"] for each in things]
    lists = {
        name: [[j for j, a in enumerate(places) if holds(a, b)] for b in places]
        for name, holds in stands.items()
    }
    return {"image_filename": picture, "objects": things, relations: lists}


THINGS = {
    "train_000000": [
        thing("large", "red", "metal", "cube", 10, 10),
        thing("small", "blue", "rubber", "sphere", 20, 30),
        thing("small", "red", "rubber", "cylinder", 30, 20),
    ],
    "train_000001": [thing("small", "green", "metal", "sphere", 5, 5)],
    "val_000000": [],
}
RED = [("scene",), ("filter_color", [0], "red")]
_TWO = [("scene",), ("count", [0]), ("scene",), ("filter_size", [2], "small"), ("count", [3])]
_BOTH = [*RED, ("filter_size", [0], "small")]
_SMALL_RED, _EITHER = ([*_BOTH, (how, [1, 2])] for how in ("intersect", "union"))
# Picture, question, answer, family, and the program's nodes: a function, its inputs, its constant.
CLEVR = [
    ("train_000000", "How many red things?", "2", "count", [*RED, ("count", [1])]),
    ("train_000001", "Are there red things?", "no", "exist", [*RED, ("exist", [1])]),
    (
        "train_000000",
        "What shape is the metal thing?",
        "cube",
        "query_attribute",
        [("scene",), ("filter_material", [0], "metal"), ("unique", [1]), ("query_shape", [2])],
    ),
    (
        "train_000000",
        "How many things are right of the cube or behind the sphere?",
        "2",
        "count",
        [
            ("scene",),
            ("filter_shape", [0], "cube"),
            ("unique", [1]),
            ("relate", [2], "right"),
            ("filter_shape", [0], "sphere"),
            ("unique", [4]),
            ("relate", [5], "behind"),
            ("filter_size", [6], "small"),
            ("union", [3, 7]),
            ("count", [8]),
        ],
    ),
    (
        "train_000000",
        "Are there fewer things than small ones?",
        "no",
        "compare_integer",
        [*_TWO, ("less_than", [1, 4])],
    ),
    (
        "train_000000",
        "Is the cube of the color of the cylinder?",
        "yes",
        "compare_attribute",
        [
            ("scene",),
            ("filter_shape", [0], "cube"),
            ("unique", [1]),
            ("query_color", [2]),
            ("scene",),
            ("filter_shape", [4], "cylinder"),
            ("unique", [5]),
            ("query_color", [6]),
            ("equal_color", [3, 7]),
        ],
    ),
    ("val_000000", "How many red things?", "0", "count", [*RED, ("count", [1])]),
    (
        "train_000000",
        "How many others are as small as the sphere?",
        "1",
        "count",
        [
            ("scene",),
            ("filter_shape", [0], "sphere"),
            ("unique", [1]),
            ("same_size", [2]),
            ("count", [3]),
        ],
    ),
    ("val_000000", "Is anything small and red?", "no", "exist", [*_SMALL_RED, ("exist", [3])]),
    ("train_000001", "How many are small or red?", "1", "count", [*_EITHER, ("count", [3])]),
]


def nodes(program: Iterable[Any], generator: bool = False) -> Rows:
    """A program in the keys of the published files, or in those of CLEVR's generator."""
    name, constants = ("type", "side_inputs") if generator else ("function", "value_inputs")
    spelled = []
    for function, *rest in program:
        node = {name: function, "inputs": rest[0] if rest else []}
        if rest[1:] or not generator:
            node[constants] = rest[1:]
        spelled.append(node)
    return spelled


def write_clevr(root: Path, generator: bool = False, flat: bool = False) -> int:
    """Two annotated splits and a test split without answers; the number of its rows."""
    rows: dict[str, Rows] = {"train": [], "val": [], "test": []}
    scenes: dict[str, Rows] = {"train": [], "val": []}
    for shade, (name, things) in enumerate(THINGS.items()):
        split = name.partition("_")[0]
        relations = "relations" if generator else "relationships"
        scenes[split].append(clevr_scene(f"CLEVR_{name}.png", things, relations))
        folder = root / "images" if flat else root / "images" / split
        write_picture(folder / f"CLEVR_{name}.png", shade)
    for picture, question, answer, _, program in CLEVR:
        split, number = picture.split("_")
        typed = {"yes": True, "no": False}.get(answer, int(answer) if answer.isdigit() else answer)
        row = {"image_filename": f"CLEVR_{picture}.png", "image_index": int(number)}
        row |= {"question": question, "answer": typed if generator else answer}
        rows[split].append(row | {"program": nodes(program, generator), "split": split})
    write_picture(
        root / ("CLEVR_test_000000.png" if flat else "images/test/CLEVR_test_000000.png"), 9
    )
    rows["test"] = [{"image_filename": "CLEVR_test_000000.png", "question": "Is it red?"}]
    questions, kept = ("", "") if flat else ("questions/", "scenes/")
    for split, listed in rows.items():
        content = {"info": {"split": split}, "questions": listed}
        write_json(root / f"{questions}CLEVR_{split}_questions.json", content)
    for split, listed in scenes.items():
        content = {"info": {"split": split}, "scenes": listed}
        write_json(root / f"{kept}CLEVR_{split}_scenes.json", content)
    return len(CLEVR) + 1


def annotation(question: int, picture: int, *answers: str, **more: Any) -> dict[str, Any]:
    """What ten annotators said; `answers` are repeated to ten, the last as often as need be."""
    every = [*answers, *[answers[-1]] * (10 - len(answers))]
    given = [
        {"answer": answer, "answer_confidence": "yes", "answer_id": place}
        for place, answer in enumerate(every, 1)
    ]
    return {"question_id": question, "image_id": picture, "answers": given, **more}


VQA_QUESTIONS = {
    "train2014": [
        {"image_id": 9, "question": "Is it raining?", "question_id": 90},
        {"image_id": 25, "question": "How many dogs?", "question_id": 250},
        {"image_id": 9, "question": "What is on the hill?", "question_id": 91},
        {"image_id": 30, "question": "Is it a cat?", "question_id": 300},
        {"image_id": 30, "question": "Is it a dog?", "question_id": 301},
    ],
    "val2014": [
        {"image_id": 42, "question": "Who won?", "question_id": 420},
        {"image_id": 42, "question": "Who lost?", "question_id": 421},
        {"image_id": 43, "question": "Is it over?", "question_id": 430},
    ],
    "test2015": [
        {"image_id": 7, "question": "Is it night?", "question_id": 70},
        {"image_id": 7, "question": "Why?", "question_id": 71},
    ],
}
VQA_ANNOTATIONS = {
    "train2014": [
        annotation(
            91, 9, "house", "barn", multiple_choice_answer="barn", answer_type="other",
            question_type="what is",
        ),
        annotation(
            90, 9, "no", "yes", multiple_choice_answer="yes", answer_type="yes/no",
            question_type="is it",
        ),
        annotation(250, 25, "2", multiple_choice_answer="2", answer_type="number"),
        annotation(300, 30, "yes", multiple_choice_answer="yes", answer_type="yes/no"),
        annotation(301, 30, "no", multiple_choice_answer="no", answer_type="yes/no"),
    ],
    # As OK-VQA has it: no answer chosen.
    "val2014": [
        annotation(420, 42, *["red"] * 3, *["blue"] * 3, *["a", "b", "", "c"], question_type="six"),
        annotation(421, 42, "red", question_type="six"),
        annotation(430, 43, "yes", question_type="two"),
    ],
}  # fmt: skip


def write_vqa(root: Path, folder: str = "", version: str = "v2_") -> int:
    """Two annotated splits and one without answers; the number of its rows."""
    for subtype, rows in VQA_QUESTIONS.items():
        head = {"info": {}, "data_type": "mscoco", "data_subtype": subtype}
        write_json(
            root / f"{version}OpenEnded_mscoco_{subtype}_questions.json", head | {"questions": rows}
        )
        for row in rows:
            name = f"{folder}{subtype}/COCO_{subtype}_{row['image_id']:012}.jpg"
            write_picture(root / name, row["image_id"])
    for subtype, rows in VQA_ANNOTATIONS.items():
        head = {"info": {}, "data_type": "mscoco", "data_subtype": subtype}
        write_json(
            root / f"{version}mscoco_{subtype}_annotations.json", head | {"annotations": rows}
        )
    return sum(map(len, VQA_QUESTIONS.values()))


def talk(picture: Any, *turns: str, roles: bool = False, **more: Any) -> dict[str, Any]:
    """A conversation, human first."""
    who, what = ("role", "content") if roles else ("from", "value")
    speakers = ("user", "assistant") if roles else ("human", "gpt")
    said = [{who: speakers[place % 2], what: turn} for place, turn in enumerate(turns)]
    row = {"id": "x", "conversations": said, **more}
    return row if picture is None else row | {"image": picture}


TALKS = [
    talk("a.jpg", "<image>\nWhat is it?", "A plus.", "Is it big?", "No,\nit is small."),
    talk("deep/b.jpg", "Who is there?\n<image>", "Nobody."),
    talk("a.jpg", "And the color?", "White.", roles=True),
]
WORDS = ("Left", "Right", "Up", "Down")


def write_llava(root: Path) -> int:
    """A JSON list, and JSON Lines of two splits; the number of rows."""
    for shade, name in enumerate(("images/a.jpg", "images/deep/b.jpg", "c.jpg", "d.jpg")):
        write_picture(root / name, shade)
    write_json(root / "chat_8k.json", TALKS)
    for split, picture in (("val", "c.jpg"), ("test", "d.jpg")):
        lines = [talk(picture, f"<image> {word}?", f"{word}.") for word in WORDS]
        (root / f"{split}.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    return len(TALKS) + 2 * len(WORDS)
