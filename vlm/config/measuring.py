"""The sections that measure, and how the work is run; they shape no model."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from vlm.config.section import NaturalFloat, NaturalInt, PositiveFloat, PositiveInt, Section


class BenchmarkConfig(Section):
    """The sweep of the KV-cache benchmark."""

    batch_sizes: Annotated[list[PositiveInt], Field(min_length=1)]
    lengths: Annotated[list[PositiveInt], Field(min_length=1)]  # new tokens
    repeats: PositiveInt  # timed rounds of an arm in a cell, at most
    warmup: NaturalInt
    max_seconds: PositiveFloat  # once its rounds in a cell have taken so long, no further one

    @model_validator(mode="after")
    def _has_no_size_twice(self) -> Self:
        for name, sizes in (("batch_sizes", self.batch_sizes), ("lengths", self.lengths)):
            if len(set(sizes)) < len(sizes):
                raise ValueError(f"{name} {sizes} holds a size twice")
        return self


class EvaluateConfig(Section):
    """How the test split is scored."""

    batch_size: PositiveInt  # pictures a forward pass
    gallery: PositiveInt  # pictures in the retrieval gallery
    resamples: PositiveInt  # bootstrap resamples
    samples: PositiveInt  # pictures in the sample sheet
    fresh_scenes: NaturalInt  # drawn besides the test split and scored too; 0 for none


class RuntimeConfig(Section):
    """How the work is run: may change rounding, never meaning. In no stage's DVC params."""

    device: Literal["auto", "cpu", "cuda"]
    threads: PositiveInt  # of each process
    processes: PositiveInt  # that train together on this machine
    workers: PositiveInt  # processes that draw or import data
    picture_memory_mib: PositiveInt  # pictures stay in memory if they fit, else are read again
    parallel: Literal["replicate", "shard"]  # each holds the whole model, or a share of it
    precision: Literal["auto", "fp32", "bf16"]  # of products in training; auto: bf16 on GPUs
    compile: bool  # torch.compile the training step; needs a C++ compiler
    checkpoint_seconds: NaturalFloat  # between two checkpoints of a training; 0: after each step
    progress: Literal["auto", "on", "off"]
    activation_checkpointing: bool  # the vision encoder's blocks are computed again going backward
