"""Parameters: their schema, and reading them from a file."""

from vlm.config.loading import load_params, parse_params
from vlm.config.schema import (
    AlignConfig,
    BenchmarkConfig,
    ClassifierConfig,
    DataConfig,
    EvaluateConfig,
    GeneratorConfig,
    ModelConfig,
    OptimizerConfig,
    Params,
    PretrainConfig,
    RuntimeConfig,
    WorldConfig,
)

__all__ = [
    "AlignConfig",
    "BenchmarkConfig",
    "ClassifierConfig",
    "DataConfig",
    "EvaluateConfig",
    "GeneratorConfig",
    "ModelConfig",
    "OptimizerConfig",
    "Params",
    "PretrainConfig",
    "RuntimeConfig",
    "WorldConfig",
    "load_params",
    "parse_params",
]
