"""The two tables that every stage reads, as Arrow schemas.

The `huggingface` metadata key lets `datasets.load_dataset("parquet", ...)` decode the pictures
with no code.
"""

import json
from typing import Any

import pyarrow as pa

_STRINGS = pa.list_(pa.string())


def _features(kind: pa.DataType) -> Any:
    """An Arrow type in the words of Hugging Face's `Features`; lists in its oldest form."""
    if pa.types.is_list(kind):
        return [_features(kind.value_type)]
    if pa.types.is_struct(kind):
        return {field.name: _features(field.type) for field in kind}
    return {"dtype": str(kind), "_type": "Value"}


def described(fields: dict[str, pa.DataType]) -> pa.Schema:
    """A schema whose metadata says what the columns are; those of type `IMAGE` are pictures."""
    features = {
        name: {"_type": "Image"} if kind == IMAGE else _features(kind)
        for name, kind in fields.items()
    }
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    return pa.schema(fields, metadata=metadata)


IMAGE = pa.struct(
    {"bytes": pa.binary(), "path": pa.string()}
)  # bytes: a PNG; path: its name where an owner has one
OBJECT = pa.struct(
    {
        "shape": pa.string(),
        "color": pa.string(),
        "row": pa.int64(),  # pixels, as are col and radius
        "col": pa.int64(),
        "radius": pa.int64(),
    }
)

SCENES = described(
    {
        "scene_id": pa.int64(),
        "image": IMAGE,
        "objects": pa.list_(OBJECT),
        "captions": _STRINGS,
        "caption_keys": _STRINGS,  # one for each caption
    }
)

QUESTIONS = described(
    {
        "question_id": pa.int64(),
        "scene_id": pa.int64(),
        "family": pa.string(),
        "question": pa.string(),
        "answer": pa.string(),
        "phrase": pa.string(),
        "answers": _STRINGS,  # the annotators' answers where there are several, else empty
    }
)
