"""The pydantic tree that mirrors `params.yaml`, section by section.

It holds no defaults: every value that a run uses stands in `params.yaml`. So a new
parameter changes no old result, and DVC need not watch this file.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from vlm.config.data import AugmentConfig, DataConfig, check_augmenting
from vlm.config.measuring import BenchmarkConfig, EvaluateConfig, RuntimeConfig
from vlm.config.section import NaturalFloat, NaturalInt, PositiveFloat, PositiveInt, Section
from vlm.errors import UserError
from vlm.rules import (
    check_batch,
    check_conv_stem,
    check_heads,
    check_patches,
    check_pixel_statistics,
    check_pretrained,
    check_shares,
    check_sinusoids,
    check_vocabulary,
)

MLPRatio = Annotated[float, Field(ge=0.25, le=64)]  # width of the MLP over the model's
Probability = Annotated[float, Field(ge=0, lt=1)]


# Where DVC sees a change: `data/external` is a dependency of the stages that read it.
WeightsFile = Annotated[str, Field(pattern=r"^data/external/(\w[\w.-]*/)*\w[\w.-]*\.safetensors$")]


class VisionConfig(Section):
    """The vision encoder: a small ViT."""

    stem: Literal["patch", "conv"]
    patch_size: PositiveInt
    position: Literal["sinusoidal_2d", "sinusoidal_1d", "learned"]
    pooling: Literal["cls", "mean"]
    hidden: PositiveInt
    depth: NaturalInt
    heads: PositiveInt
    mlp_ratio: MLPRatio
    dropout: Probability
    norm: Literal["pre", "post"]
    norm_eps: PositiveFloat
    pixel_mean: Annotated[list[float], Field(min_length=1)]  # one for all channels, or each its own
    pixel_std: Annotated[list[PositiveFloat], Field(min_length=1)]
    pretrained: WeightsFile | None

    @model_validator(mode="after")
    def _shapes(self) -> Self:
        check_heads(self.hidden, self.heads)
        check_sinusoids(self.position, self.hidden)
        if self.stem == "conv":
            check_conv_stem(self.patch_size)
        if self.pretrained is not None:
            check_pretrained(self.stem, self.position, self.norm)
        return self


class ProjectorConfig(Section):
    """The MLP from the encoder's width to the text's."""

    hidden: PositiveInt


class TextConfig(Section):
    """The text side: its width, its length, and the encoder over its embeddings."""

    hidden: PositiveInt
    depth: NaturalInt  # 0: the mean of the embeddings
    heads: PositiveInt
    mlp_ratio: MLPRatio
    dropout: Probability
    norm: Literal["pre", "post"]
    max_length: Annotated[int, Field(ge=2)]  # tokens, begin and end marks included
    on_long: Literal["error", "cut"]  # a longer text stops the run, or loses its end
    tokenizer: Literal["word", "bpe"]
    max_vocab: Annotated[int, Field(ge=5)]  # tokens known at most, the four marks included

    @model_validator(mode="after")
    def _shapes(self) -> Self:
        check_heads(self.hidden, self.heads)
        check_vocabulary(self.tokenizer, self.max_vocab)
        return self


class DecoderConfig(Section):
    """The text decoder; its width is the text's."""

    depth: PositiveInt
    heads: PositiveInt
    mlp_ratio: MLPRatio
    dropout: Probability
    norm: Literal["pre", "post"]


class ModelConfig(Section):
    """The parts that `align` and `pretrain` make and every later stage inherits."""

    vision: VisionConfig
    projector: ProjectorConfig
    text: TextConfig
    decoder: DecoderConfig

    @model_validator(mode="after")
    def _shapes(self) -> Self:
        check_heads(self.text.hidden, self.decoder.heads)
        return self


class OptimizerConfig(Section):
    """AdamW, linear warm-up, then cosine; the keys that every training section shares.

    Adam at a constant rate is this with final_rate 1, warmup_steps 0 and weight_decay 0.
    """

    steps: PositiveInt
    batch_size: PositiveInt  # pictures a step
    learning_rate: PositiveFloat  # the peak
    final_rate: Annotated[float, Field(ge=0, le=1)]  # the last rate, as a share of the peak
    warmup_steps: NaturalInt
    weight_decay: NaturalFloat
    beta2: Annotated[float, Field(gt=0, lt=1)]
    clip_norm: NaturalFloat  # gradients longer than this are cut to it; 0 cuts none
    accumulate: PositiveInt  # micro-batches a step, weighed by their supervised items
    eval_every: PositiveInt  # steps between validations
    val_pictures: PositiveInt  # pictures of the validation split that each validation reads
    keep: Literal["best", "last"]  # weights of the best validation, or of the last step

    @model_validator(mode="after")
    def _schedule(self) -> Self:
        if self.warmup_steps > self.steps:
            raise ValueError(f"warmup_steps {self.warmup_steps} exceeds steps {self.steps}")
        if self.accumulate > self.batch_size:
            raise ValueError(f"accumulate {self.accumulate} exceeds batch_size {self.batch_size}")
        return self


class AlignConfig(OptimizerConfig):
    """Frozen encoder, frozen text table; the projector learns."""


class PretrainConfig(OptimizerConfig):
    """InfoNCE plus next-token loss on captions; everything learns."""

    lm_weight: NaturalFloat
    init_temperature: Annotated[float, Field(ge=0.01, le=1000)]
    mask_equivalent: bool  # leave equal captions of other pictures out of the negatives
    augment: AugmentConfig


class ClassifierConfig(OptimizerConfig):
    """The closed-vocabulary head."""

    fusion: Literal["multiply", "concat", "attention"]
    fusion_depth: PositiveInt  # blocks of attention fusion
    head_hidden: PositiveInt
    max_answers: PositiveInt  # the vocabulary: so many of train's answers, the commonest
    question_frequency: NaturalFloat  # of the question's Fourier features; 0 for none
    freeze_text: bool  # keep the text encoder as training found it
    start: Literal["pretrain", "scratch"]  # from what pretraining left, or from random weights
    augment: AugmentConfig


class GeneratorConfig(OptimizerConfig):
    """The phrase generator."""

    memory: Literal["pooled", "tokens"]
    context: Literal["fused", "none"]
    question_frequency: NaturalFloat  # of the question's Fourier features; 0 for none
    freeze_text: bool  # keep the text encoder as training found it
    start: Literal["pretrain", "scratch"]  # from what pretraining left, or from random weights
    augment: AugmentConfig
    pad_phrases: NaturalInt  # tokens that every phrase is padded to; 0: the batch's longest


class TrainVQAConfig(Section):
    """One section per head; DVC runs one stage per head."""

    classifier: ClassifierConfig
    generator: GeneratorConfig


class Params(Section):
    """The whole of `params.yaml`."""

    seed: Annotated[int, Field(ge=0, lt=2**63)]
    data: DataConfig
    model: ModelConfig
    align: AlignConfig
    pretrain: PretrainConfig
    train_vqa: TrainVQAConfig
    benchmark_kv_cache: BenchmarkConfig
    evaluate: EvaluateConfig
    runtime: RuntimeConfig

    @model_validator(mode="after")
    def _image(self) -> Self:
        data, vision = self.data, self.model.vision
        check_patches(data.image_size, vision.patch_size)
        check_pixel_statistics("model.vision.pixel_mean", vision.pixel_mean, data.channels)
        check_pixel_statistics("model.vision.pixel_std", vision.pixel_std, data.channels)
        return self

    @model_validator(mode="after")
    def _augmenting(self) -> Self:
        check_augmenting("pretrain.augment", self.pretrain.augment, self.data, captions=True)
        for head in ("classifier", "generator"):
            augment = getattr(self.train_vqa, head).augment
            check_augmenting(f"train_vqa.{head}.augment", augment, self.data, captions=False)
        return self

    @model_validator(mode="after")
    def _own(self) -> Self:
        if not self.data.is_drawn and self.evaluate.fresh_scenes:
            raise ValueError(
                f"evaluate.fresh_scenes: got {self.evaluate.fresh_scenes} with data.source"
                f" {self.data.source}, expected 0: only scenes can be drawn anew"
            )
        return self

    @model_validator(mode="after")
    def _batches(self) -> Self:
        if self.data.is_drawn:  # else the number of pictures is known once they are read
            self.check_batches(self.data.train_scenes)
        for name, section in self._trainings().items():
            try:
                check_shares(section.batch_size, section.accumulate, self.runtime.processes)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return self

    def check_batches(self, num_pictures: int) -> None:
        """Raise UserError where a training asks for more pictures at once than there are."""
        for name, section in self._trainings().items():
            try:
                check_batch(section.batch_size, num_pictures)
            except ValueError as error:
                raise UserError(f"{name}: {error}") from None

    def _trainings(self) -> dict[str, OptimizerConfig]:
        return {
            "align": self.align,
            "pretrain": self.pretrain,
            "train_vqa.classifier": self.train_vqa.classifier,
            "train_vqa.generator": self.train_vqa.generator,
        }
