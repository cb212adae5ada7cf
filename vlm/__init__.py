"""A small vision-language model, made from nothing and measured honestly.

The public names load on use, so that `import vlm` is quick and drags no torch in.
"""

from importlib import import_module
from typing import Any

_PUBLIC = {
    "vlm.data.mock": ["mock_pairs", "synthesize_image"],
    "vlm.data.tokenizer": ["TextTokenizer"],
    "vlm.errors": ["UserError"],
    "vlm.evaluation.intervals": ["wilson"],
    "vlm.evaluation.retrieval": ["recall_at_k"],
    "vlm.evaluation.suite": ["EvalSuite", "build_eval_suite", "evaluate"],
    "vlm.evaluation.text_metrics": ["bleu4"],
    "vlm.evaluation.vqa_metrics": ["vqa_exact_match"],
    "vlm.generation": ["generate", "stream"],
    "vlm.losses": ["cosine_alignment_loss", "info_nce_loss", "lm_loss"],
    "vlm.model.attention": ["attention", "causal_mask", "watch_attention"],
    "vlm.model.decoder": ["DecoderConfig", "VisionLanguageDecoder"],
    "vlm.model.folder": ["load_captioner", "load_classifier", "load_generator"],
    "vlm.model.kv_cache": ["KVCache"],
    "vlm.model.patch_embed": ["PatchEmbed", "sinusoidal_1d", "sinusoidal_2d", "unfold_then_linear"],
    "vlm.model.pretrained": ["load_vit"],
    "vlm.model.projector": ["MLPProjector", "freeze"],
    "vlm.model.text": ["PAD_ID"],
    "vlm.model.vit": ["ViTConfig", "VisionEncoder"],
    "vlm.model.vlm": ["VLMConfig"],
    "vlm.model.vqa": ["AnswerClassifier", "PhraseGenerator"],
    "vlm.training.vision_language": ["VisionLanguageModel"],
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = list(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'vlm' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
