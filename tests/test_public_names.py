"""The public names as their users call them."""

import inspect

import pytest

import vlm

SIGNATURES = {
    "synthesize_image": ["seed", "image_size", "channels"],
    "sinusoidal_2d": ["grid_h", "grid_w", "dim"],
    "unfold_then_linear": ["img", "weight", "bias", "patch_size"],
    "MLPProjector": ["in_dim", "hidden_dim", "out_dim"],
    "VisionEncoder": ["cfg"],
    "VisionLanguageDecoder": ["cfg"],
    "freeze": ["module"],
    "cosine_alignment_loss": ["image_emb", "text_emb"],
    "causal_mask": ["n"],
    "info_nce_loss": ["image_emb", "text_emb", "log_tau"],
    "lm_loss": ["logits", "targets", "padding_id"],
    "recall_at_k": ["sim", "k"],
    "vqa_exact_match": ["predictions", "references"],
    "bleu4": ["generated", "references", "smoothing"],
    "build_eval_suite": ["seed", "n_samples", "vocab_size", "max_len"],
    "evaluate": ["model", "suite"],
}


@pytest.mark.parametrize(("name", "parameters"), SIGNATURES.items(), ids=SIGNATURES)
def test_signatures(name, parameters):
    """Parameters beyond these have defaults."""
    got = inspect.signature(getattr(vlm, name)).parameters
    assert list(got)[: len(parameters)] == parameters
    for extra in list(got.values())[len(parameters) :]:
        assert extra.default is not inspect.Parameter.empty, extra


def test_how_encoder_decoder_and_model_are_called():
    assert list(inspect.signature(vlm.VisionEncoder.forward).parameters) == ["self", "img"]
    decoder = inspect.signature(vlm.VisionLanguageDecoder.forward).parameters
    assert list(decoder)[1:5] == ["text_ids", "memory", "use_cache", "cache"]
    assert (decoder["use_cache"].default, decoder["cache"].default) == (False, None)
    assert list(inspect.signature(vlm.VisionLanguageModel.forward).parameters)[1:3] == [
        "images",
        "text_ids",
    ]
    settings = inspect.signature(vlm.VLMConfig).parameters
    for name in ("vision_hidden", "projection_hidden", "text_hidden", "lm_weight", "init_log_tau"):
        assert name in settings
    assert vlm.PAD_ID == 0
