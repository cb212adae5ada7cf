"""Parameters: their schema, and reading them from a file."""

from vlm.config.data import AugmentConfig, DataConfig, OwnConfig, WorldConfig
from vlm.config.loading import load_params, parse_params
from vlm.config.schema import (
    AlignConfig,
    BenchmarkConfig,
    ClassifierConfig,
    EvaluateConfig,
    GeneratorConfig,
    ModelConfig,
    OptimizerConfig,
    Params,
    PretrainConfig,
    RuntimeConfig,
)

__all__ = [
    "AlignConfig",
    "AugmentConfig",
    "BenchmarkConfig",
    "ClassifierConfig",
    "DataConfig",
    "EvaluateConfig",
    "GeneratorConfig",
    "ModelConfig",
    "OptimizerConfig",
    "OwnConfig",
    "Params",
    "PretrainConfig",
    "RuntimeConfig",
    "WorldConfig",
    "load_params",
    "parse_params",
]
