"""Where the project lies, and its presets."""

from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).parent.parent


def read_preset(name: str) -> dict:
    """The values of `presets/NAME.yaml`."""
    return YAML(typ="safe").load((ROOT / "presets" / f"{name}.yaml").read_text())
