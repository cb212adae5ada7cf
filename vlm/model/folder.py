"""A model on disk: a folder with `model.safetensors` and `config.json`."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from vlm.errors import UserError
from vlm.files import atomic_path, read_json, write_json
from vlm.model.vlm import ContrastiveCaptioner, DualEncoder, VLMConfig
from vlm.model.vqa import AnswerClassifier, PhraseGenerator

WEIGHTS, CONFIG = "model.safetensors", "config.json"
FORMAT = 1
# The one metadata key: several would be written in random order, and the bytes would differ.
METADATA: Final = {"format": "pt"}
SETTINGS: Final = TypeAdapter(VLMConfig)


def save_model(
    folder: str | Path, model: DualEncoder, weights: Mapping[str, Tensor] | None = None
) -> None:
    """Write a model's weights and configuration.

    Args:
        folder: where to.
        model: what its class and settings say of it; its weights too, unless `weights` are given.
        weights: whole tensors, where those of `model` lie in shards.

    Raises:
        OSError: the disk is full, or the system won't write for another reason.
    """
    folder = Path(folder)
    description = {"format": FORMAT, "model": asdict(model.config), **_describe(model)}
    weights = model.state_dict() if weights is None else weights
    tensors = {name: tensor.contiguous().cpu() for name, tensor in weights.items()}
    with atomic_path(folder / WEIGHTS) as partial:
        save_tensors(tensors, partial, METADATA)
    write_json(folder / CONFIG, description, decimals=None)


def load_config(folder: str | Path) -> VLMConfig:
    """The sizes and choices of the model in `folder`."""
    return _config(Path(folder) / CONFIG, _read_config(Path(folder)))


def load_captioner(folder: str | Path) -> ContrastiveCaptioner:
    """What `pretrain` left, in eval mode."""
    path, values = _read_kind(folder, "captioner")
    return _filled(ContrastiveCaptioner(_config(path, values)), folder)


def load_classifier(folder: str | Path) -> AnswerClassifier:
    """What `train_vqa` left of the classifier, in eval mode."""
    path, values = _read_kind(folder, "classifier")
    return _filled(_with_head(AnswerClassifier, path, values), folder)


def load_generator(folder: str | Path) -> PhraseGenerator:
    """What `train_vqa` left of the generator, in eval mode."""
    path, values = _read_kind(folder, "generator")
    return _filled(_with_head(PhraseGenerator, path, values), folder)


def load_parts(model: nn.Module, folder: str | Path, parts: Sequence[str]) -> None:
    """Give the named submodules of `model` the weights they have in `folder`.

    Raises:
        UserError: a tensor is missing, unknown or of another shape, or weights can't be read.
    """
    tensors = _read_tensors(Path(folder))
    for part in parts:
        prefix = f"{part}."
        share = {
            name.removeprefix(prefix): tensor
            for name, tensor in tensors.items()
            if name.startswith(prefix)
        }
        _load_strictly(model.get_submodule(part), share, Path(folder) / WEIGHTS, prefix)


def read_tensors(path: Path, expected: str) -> dict[str, Tensor]:
    """The tensors of one safetensors file, by name.

    Raises:
        UserError: there is no such file, which names what was `expected`, or it can't be read.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; expected {expected}")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path}: not readable as safetensors: {error}") from None


def save_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
    """Write one safetensors file.

    Raises:
        OSError: the disk is full, or the system won't write for another reason.
    """
    try:
        save_file(tensors, path, metadata)
    except SafetensorError as error:
        # The library gives the system's error, a full disk's for one, as text alone.
        found = re.search(r"\(os error (\d+)\)", str(error))
        if found is None:
            raise
        number = int(found[1])
        raise OSError(number, os.strerror(number), str(path)) from error


def _describe(model: DualEncoder) -> dict[str, Any]:
    """The kind of model, and what its constructor takes beside the configuration."""
    if isinstance(model, AnswerClassifier):
        head = {
            "answers": model.answers,
            "fusion": model.fusion,
            "fusion_depth": model.fusion_depth,
            "head_hidden": model.head_hidden,
            "question_frequency": model.question_frequency,
        }
        return {"kind": "classifier", "head": head}
    if isinstance(model, PhraseGenerator):
        head = {
            "memory": model.memory_kind,
            "context": model.context,
            "question_frequency": model.question_frequency,
        }
        return {"kind": "generator", "head": head}
    return {"kind": "captioner" if isinstance(model, ContrastiveCaptioner) else "dual_encoder"}


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not path.is_file():
        raise UserError(f"{path}: no such file; expected a model folder with {CONFIG}")
    try:
        values = read_json(path)
    except ValueError:
        raise UserError(f"{path}: not valid JSON; expected a model's configuration") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: got a {type(values).__name__}, expected an object")
    if values.get("format") != FORMAT:
        raise UserError(f"{path}: got format {values.get('format')}, expected {FORMAT}")
    return values


def _read_kind(folder: str | Path, kind: str) -> tuple[Path, dict[str, Any]]:
    path, values = Path(folder) / CONFIG, _read_config(Path(folder))
    if values.get("kind") != kind:
        raise UserError(f"{path}: got a model of kind {values.get('kind')!r}, expected {kind!r}")
    return path, values


def _config(path: Path, values: Mapping[str, Any]) -> VLMConfig:
    got, known = values.get("model"), {f.name for f in fields(VLMConfig)}
    if not isinstance(got, dict):
        raise UserError(f"{path}: model: got {got!r}, expected the model's settings")
    if missing := sorted(known - set(got)):
        raise UserError(f"{path}: model: missing {', '.join(missing)}")
    if unknown := sorted(set(got) - known):
        raise UserError(f"{path}: model: unknown {', '.join(unknown)}")
    try:
        config = SETTINGS.validate_json(json.dumps(got), strict=True)
        _ = config.vision, config.text, config.decoder  # which hold the rules of shape
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in fault["loc"])
        expected = fault["msg"].removeprefix("Input should be ")
        raise UserError(
            f"{path}: model: {name}: got {fault['input']!r}, expected {expected}"
        ) from None
    except UserError as error:
        raise UserError(f"{path}: model: {error}") from None
    return config


def _with_head(kind: type[Any], path: Path, values: Mapping[str, Any]) -> Any:
    config, head = _config(path, values), values.get("head")
    try:
        return kind(config, **head)  # pyright: ignore[reportCallIssue]
    except TypeError as error:
        raise UserError(f"{path}: head: got {head!r}, which doesn't fit: {error}") from None


def _filled(model: Any, folder: str | Path) -> Any:
    path = Path(folder) / WEIGHTS
    _load_strictly(model, _read_tensors(Path(folder)), path, "")
    return model.eval()


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    return read_tensors(folder / WEIGHTS, f"a model folder with {WEIGHTS}")


def _load_strictly(
    module: nn.Module, tensors: Mapping[str, Tensor], path: Path, prefix: str
) -> None:
    """Load all of `tensors`, or say which one doesn't fit."""
    wanted = module.state_dict()
    for name, tensor in wanted.items():
        if name not in tensors:
            raise UserError(f"{path}: tensor {prefix}{name} is missing")
        got, expected = tuple(tensors[name].shape), tuple(tensor.shape)
        if got != expected:
            raise UserError(f"{path}: tensor {prefix}{name}: got shape {got}, expected {expected}")
    for name in tensors:
        if name not in wanted:
            raise UserError(f"{path}: tensor {prefix}{name} is unknown to this architecture")
    module.load_state_dict(dict(tensors))
