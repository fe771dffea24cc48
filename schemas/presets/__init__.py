"""Presets: named configurations to start from, one YAML file each in this folder."""

from importlib import resources
from typing import Any, Final, Literal, get_args

import yaml

PresetName = Literal["demo", "casia", "ms1mv2", "ms1mv3", "glint360k", "webface4m", "webface12m", "webface42m"]

PRESETS: Final[tuple[PresetName, ...]] = get_args(PresetName)


def read_preset(name: str) -> dict[str, Any]:
    """The settings of one preset, from its YAML file."""
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}; known presets: {', '.join(PRESETS)}")
    text = resources.files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    settings: dict[str, Any] = yaml.safe_load(text)
    return settings


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Apply `changes` to `base`: tables are merged key by key, all other values are replaced."""
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
