"""Reading `params.yaml`: every mistake in one line that names the key."""

import re
import reprlib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import YAMLError

from vlm.config.data import Family
from vlm.config.schema import Params
from vlm.errors import UserError
from vlm.scenes.questions import longest_text
from vlm.scenes.render import check_stamps
from vlm.scenes.sampler import check_held_out

MARKS = 2  # the begin and end marks around every text


def load_params(path: str | Path) -> Params:
    """Read and validate a whole parameter file.

    YAML 1.2, as DVC writes it: `1e-4` is a float and `no` a string.

    Raises:
        UserError: the file is missing, isn't YAML, or holds a wrong value.
    """
    path = Path(path)
    try:
        values = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; expected a parameter file") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; expected a parameter file") from None
    except DuplicateKeyError as error:
        key, line = str(error.problem).split('"')[1], error.problem_mark.line + 1
        raise UserError(f"{path}: line {line}: duplicate key {key}") from None
    except (YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    if values is None:
        raise UserError(f"{path}: empty, expected sections")
    return parse_params(values)


def parse_params(values: Any) -> Params:
    """Validate a tree of values as `params.yaml` holds them.

    Raises:
        UserError: naming the first wrong key, what was got and what was expected.
    """
    if not isinstance(values, Mapping):
        raise UserError(f"params: got {type(values).__name__}, expected sections")
    for message in _unknown_keys(values, Params, ()):
        raise UserError(message)
    try:
        params = Params.model_validate(values)
    except ValidationError as error:
        raise UserError(_message(error)) from None
    if params.data.is_drawn:
        check_stamps(params.data.world)
        check_held_out(params.data.world)
        _check_text_length(params)
    _check_padding(params)
    return params


def _check_text_length(params: Params) -> None:
    """The world can't ask or say anything longer than the model can read, unless that is cut.

    How many byte pairs a text takes isn't known before they are learned.
    """
    text = params.model.text
    if text.on_long == "cut" or text.tokenizer == "bpe":
        return
    longest, room = longest_text(params.data) + MARKS, text.max_length
    if longest > room:
        raise UserError(
            f"model.text.max_length: got {room}, expected at least {longest}, the longest text of"
            " this world with its begin and end marks"
        )


def _check_padding(params: Params) -> None:
    """The decoder has no position for a longer phrase, be it padding or not."""
    padded, room = params.train_vqa.generator.pad_phrases, params.model.text.max_length
    if padded > room:
        raise UserError(
            f"train_vqa.generator.pad_phrases: got {padded}, expected at most"
            f" model.text.max_length {room}"
        )


def _unknown_keys(
    values: Mapping[Any, Any], section: type[BaseModel], path: tuple[str, ...]
) -> Iterator[str]:
    """A message for each key that the schema doesn't have."""
    for key, value in values.items():
        name = ".".join((*path, str(key)))
        if key not in section.model_fields:
            near = get_close_matches(str(key), section.model_fields, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else f"expected {_names(section)}"
            yield f"{name}: unknown; {hint}"
            continue
        inner = section.model_fields[key].annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel) and isinstance(value, Mapping):
            yield from _unknown_keys(value, inner, (*path, str(key)))


def _names(section: type[BaseModel]) -> str:
    return "one of " + ", ".join(section.model_fields)


def _message(error: ValidationError) -> str:
    """The first fault of a pydantic error, in one line."""
    fault = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in fault["loc"] if part != "[key]")
    if fault["type"] == "missing":
        return f"{name}: missing"
    if fault["type"] == "value_error":  # a rule of ours, which says it all
        message = str(fault["ctx"]["error"]) if "ctx" in fault else fault["msg"]
        return f"{name}: {message}" if name else message
    if "[key]" in fault["loc"] and fault["type"] == "literal_error":
        near = get_close_matches(str(fault["input"]), get_args(Family), n=1, cutoff=0.6)
        if near:
            return f"{name}: unknown; did you mean {near[0]}?"
    if fault["type"] == "model_type":
        return f"{name}: got {reprlib.repr(fault['input'])}, expected a section"
    return f"{name}: got {fault['input']!r}, expected {_expected(fault['type'], fault['msg'])}"


def _expected(kind: str, text: str) -> str:
    """What should be, by the type and the text of a pydantic error."""
    if kind == "string_pattern_mismatch":  # the schema's two patterns: WeightsFile and OwnFolder
        return f"a path like data/external/NAME{'.safetensors' * ('safetensors' in text)}"
    text = re.sub(r"^(Input|List|Dictionary) should (be |have )?", "", text)
    return text.partition(" after validation")[0]
