"""A model on disk: a folder with `model.safetensors` and `config.json`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

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


def save_model(folder: str | Path, model: DualEncoder) -> None:
    """Write a model's weights and configuration."""
    folder = Path(folder)
    description = {"format": FORMAT, "model": asdict(model.config), **_describe(model)}
    tensors = {name: tensor.contiguous().cpu() for name, tensor in model.state_dict().items()}
    with atomic_path(folder / WEIGHTS) as partial:
        save_file(tensors, partial, metadata=METADATA)
    write_json(folder / CONFIG, description)


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
    known = {f.name for f in fields(VLMConfig)}
    got = values.get("model")
    if not isinstance(got, dict):
        raise UserError(f"{path}: model: got {got!r}, expected the model's settings")
    if set(got) != known:
        odd = sorted(set(got) ^ known)
        raise UserError(f"{path}: settings {odd} are missing or unknown in this version")
    return VLMConfig(**got)


def _with_head(kind: type[Any], path: Path, values: Mapping[str, Any]) -> Any:
    head = values.get("head")
    try:
        return kind(_config(path, values), **head)  # pyright: ignore[reportCallIssue]
    except TypeError as error:
        raise UserError(f"{path}: head: got {head!r}, which doesn't fit: {error}") from None


def _filled(model: Any, folder: str | Path) -> Any:
    path = Path(folder) / WEIGHTS
    _load_strictly(model, _read_tensors(Path(folder)), path, "")
    return model.eval()


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    path = folder / WEIGHTS
    if not path.is_file():
        raise UserError(f"{path}: no such file; expected a model folder with {WEIGHTS}")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path}: not readable as safetensors: {error}") from None


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
