"""Presets: named configurations to start from, one YAML file each in this folder."""

from importlib import resources
from typing import Any, Final, Literal, get_args

import yaml

PresetName = Literal[
    "demo",
    "casia",
    "ms1mv2",
    "ms1mv3",
    "glint360k",
    "webface4m",
    "webface12m",
    "webface42m",
    "insightface-r50",
    "insightface-r100",
    "insightface-vit-b",
    "paper/demo",
    "paper/casia-r100",
    "paper/casia-vit-b",
    "paper/ms1mv2-r100",
    "paper/ms1mv2-vit-b",
    "paper/ms1mv3-r100",
    "paper/ms1mv3-vit-b",
    "paper/glint360k-r100",
    "paper/glint360k-vit-b",
    "paper/webface4m-r100",
    "paper/webface4m-vit-b",
    "paper/webface12m-r100",
    "paper/webface12m-vit-b",
    "paper/webface42m-r100",
    "paper/webface42m-vit-b",
]

PRESETS: Final[tuple[PresetName, ...]] = get_args(PresetName)
MAIN_PRESETS: Final = ", ".join(name for name in PRESETS if "/" not in name)
"""Those that errors list; the others are the paper's: `gif run -h` lists all."""
BASES: Final = ("benchmarks", "paper/method", "paper/r100", "paper/vit-b")
"""Files that presets build on."""


def read_preset(name: str) -> dict[str, Any]:
    """The settings of one preset, from its YAML file and from those that it names under `presets`, later ones last."""
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}; known presets: {', '.join(PRESETS)}")
    return _read_file(name)


def _read_file(name: str) -> dict[str, Any]:
    settings: dict[str, Any] = yaml.safe_load(resources.files(__name__).joinpath(f"{name}.yaml").read_text("utf-8"))
    for base in reversed(settings.pop("presets", [])):
        settings = merge(_read_file(base), settings)
    return settings


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Apply `changes` to `base`: tables are merged key by key, all other values are replaced."""
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
