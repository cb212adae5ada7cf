"""Worlds for the tests, and a slow reading of scenes that shares no code with `vlm.scenes`."""

from typing import Any

from vlm.config.data import DataConfig

DEFAULT: dict[str, Any] = {
    "image_size": 32,
    "channels": 1,
    "shapes": ["plus", "circle"],
    "colors": ["white"],
    "min_radius": 4,
    "max_radius": 4,
    "min_objects": 0,
    "max_objects": 3,
    "spacing": 9,
    "margin": 6,
    "max_tries": 30,
    "held_out": [],
    "noise": 0.03,
    "clutter": 0,
    "overlap": 1.0,
}
COLORFUL: dict[str, Any] = DEFAULT | {
    "image_size": 48,
    "channels": 3,
    "shapes": ["plus", "circle", "square", "triangle", "diamond", "ring", "star"],
    "colors": ["red", "white", "blue"],
    "min_radius": 3,
    "max_radius": 5,
    "max_objects": 5,
    "spacing": 7,
    "margin": 2,
}
OWN: dict[str, Any] = {
    "path": "data/external/own",
    "image_size": 32,
    "channels": 3,
    "fit": "pad",
    "on_bad": "error",
    "val_share": 0.1,
    "test_share": 0.1,
    "max_pixels": 50_000_000,
}
SHARES = {"what_shape": 1.0, "count": 1.0, "exists": 2.0, "position": 2.0, "relation": 2.0}
SEVEN = SHARES | {"compare": 2.0, "color": 2.0}  # for worlds of two colours or more


def make_data(world: dict[str, Any] | None = None, **changes: Any) -> DataConfig:
    """The default data section, with another world or other values."""
    values: dict[str, Any] = {
        "source": "scenes",
        "train_scenes": 40,
        "val_scenes": 20,
        "test_scenes": 30,
        "test_ood_scenes": 12,
        "world": world or DEFAULT,
        "captions_per_scene": 3,
        "questions_per_scene": 8,
        "families": SHARES,
        "answer_balance": "natural",
        "degenerate": "keep",
        "relation_margin": 3,
        "own": OWN,
    }
    return DataConfig.model_validate(values | changes)
