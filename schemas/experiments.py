"""Experiments of the paper: what varies, on which preset; one YAML file each."""

from importlib import resources
from typing import Final

import yaml

from schemas.base import Frozen
from schemas.presets import PresetName

EXPERIMENTS: Final = ("table2", "figure5c", "figure5d", "figure5ef", "supplement-lambda")
FOLDER: Final = "presets/paper/experiments"


class Experiment(Frozen):
    """A table or figure of the paper as runs of the pipeline."""

    title: str
    preset: PresetName
    """Preset of the experiment at the paper's size."""
    variants: dict[str, tuple[str, ...]]
    """Settings `stage.field=value` of each row; the others are compared with the first."""
    trained_on: str | None = None
    """Training set whose published scores are shown beside ours; null: none are."""
    remarks: tuple[str, ...] = ()
    """Where the paper contradicts itself or the record."""


def read_experiment(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in EXPERIMENTS:
        raise ValueError(f"unknown experiment {name!r}; known experiments: {', '.join(EXPERIMENTS)}")
    text = resources.files("schemas").joinpath(f"{FOLDER}/{name}.yaml").read_text("utf-8")
    return Experiment.model_validate(yaml.safe_load(text))
