"""What makes each error appear that a published data set meets whose files aren't as expected."""

import json
from typing import Any

from error_page import Raiser
from raise_own import ROOT, imported


def read(source: str, **files: Any) -> Raiser:
    """Imports a folder of JSON files, named without their ending; `__` is a folder's end."""
    return imported(
        source,
        {f"{name.replace('__', '/')}.json": json.dumps(file) for name, file in files.items()},
    )


VAL = {"data_subtype": "val2014"}
QUESTIONS = "OpenEnded_mscoco_val2014_questions"
PUBLISHED: dict[str, Raiser] = {
    f"{ROOT}/questions/CLEVR_val_questions.json: got no list of questions, expected one": read(
        "clevr", questions__CLEVR_val_questions={"info": {}}
    ),
    (
        f"{ROOT}/v2_mscoco_val2014_annotations.json: got annotations without their questions,"
        " expected both files"
    ): read(
        "vqa_v2",
        v2_mscoco_val2014_annotations={**VAL, "annotations": []},
        v2_OpenEnded_mscoco_train2014_questions={"questions": []},
    ),
    (
        f"{ROOT}/v2_{QUESTIONS}.json: got questions of the same split as {QUESTIONS}.json,"
        " expected one file of them"
    ): read(
        "vqa_v2", **{name: {**VAL, "questions": []} for name in (QUESTIONS, f"v2_{QUESTIONS}")}
    ),
    f"{ROOT}: got no such files, expected questions/*.json": read("clevr", notes={}),
}
