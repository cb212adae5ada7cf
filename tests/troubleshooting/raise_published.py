"""What makes each error appear that a published data set meets whose files aren't as expected."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from error_page import Raiser

from vlm.data.importers import clevr, vqa_v2

OWN = Path("data/external/own")
QUESTIONS = "v2_OpenEnded_mscoco_val2014_questions.json"


def reading(read: Callable[[Path], Iterator[Any]], files: Mapping[str, Any]) -> Raiser:
    """Reads a folder of JSON files."""

    def raiser() -> None:
        for name, content in files.items():
            (OWN / name).parent.mkdir(parents=True, exist_ok=True)
            (OWN / name).write_text(json.dumps(content))
        list(read(OWN))

    return raiser


VAL = {"data_subtype": "val2014"}
PUBLISHED: dict[str, Raiser] = {
    (
        "data/external/own/questions/CLEVR_val_questions.json: got no list of questions,"
        " expected one"
    ): reading(clevr.read, {"questions/CLEVR_val_questions.json": {"info": {}}}),
    (
        "data/external/own/v2_mscoco_val2014_annotations.json: got annotations without their"
        " questions, expected both files"
    ): reading(
        vqa_v2.read,
        {
            "v2_mscoco_val2014_annotations.json": {**VAL, "annotations": []},
            "v2_OpenEnded_mscoco_train2014_questions.json": {"questions": []},
        },
    ),
    (
        "data/external/own/v2_OpenEnded_mscoco_val2014_questions.json: got questions of the same"
        " split as OpenEnded_mscoco_val2014_questions.json, expected one file of them"
    ): reading(
        vqa_v2.read, {name: {**VAL, "questions": []} for name in (QUESTIONS, QUESTIONS[3:])}
    ),
    "data/external/own: got no such files, expected questions/*.json": reading(clevr.read, {}),
}
