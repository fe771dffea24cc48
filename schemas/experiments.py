"""Experiments of the paper: what varies, on which preset, and how the result is shown; one YAML file each."""

from importlib import resources
from typing import Final, Literal

import yaml
from pydantic import Field, PositiveInt

from schemas.base import Frozen
from schemas.presets import PresetName

EXPERIMENTS: Final = (
    "figure1a",
    "figure1c",
    "figure4",
    "table1",
    "table2",
    "figure5a",
    "figure5b",
    "figure5c",
    "figure5d",
    "figure5ef",
    "table3",
    "supplement-lambda",
    "supplement-separation",
    "supplement-dino",
)
"""The tables and figures, in the order of the paper."""
BESIDE: Final = ("heads",)
"""Experiments that the paper does not have, which are not part of all."""
FOLDER: Final = "presets/paper/experiments"
DEMO: Final[PresetName] = "paper/demo"
"""Preset of every experiment at the scale of a demonstration."""
Scale = Literal["full", "demo"]
UNNAMED: Final = "–"
"""In a column whose value the paper does not print."""


class Row(Frozen):
    """A row of a table, or a point or bar of a figure: one configuration of the pipeline."""

    name: str
    settings: tuple[str, ...] = ()
    """Settings `stage.field=value` of the row."""
    preset: PresetName | None = None
    """Preset in place of the experiment's at the paper's size."""
    demo_settings: tuple[str, ...] | None = None
    """Settings in place of `settings` at the demo's size."""
    about: dict[str, str] = Field(default_factory=dict)
    """Further columns as the paper prints them, such as the training set."""
    base: bool = False
    """Others are compared with this row; without such a row, with the first."""
    published: dict[str, float] = Field(default_factory=dict)
    """Percentages that the paper prints for this row by column, where `published` of reports does not have them."""

    def label(self, scale: Scale) -> str:
        """The name of its runs: at the paper's size with training set and backbone, in which rows of a name differ."""
        parts = [self.about.get(part, UNNAMED) for part in ("Train set", "F_θ")] if scale == "full" else []
        known = ", ".join(part for part in parts if part != UNNAMED)
        return f"{self.name} ({known})" if known else self.name


class Cost(Frozen):
    """What a cost is measured on."""

    identities: tuple[PositiveInt, ...]
    demo_identities: tuple[PositiveInt, ...]
    heads: tuple[str, ...] = ()
    """Of the heads that are known to measurements of cost: see `gif_core.paper.head_steps`."""
    backbone: str = "iresnet100"
    demo_backbone: str = "iresnet_tiny"
    batch_size: PositiveInt = 512
    demo_batch_size: PositiveInt = 32
    dimensions: PositiveInt = 512
    shows: Literal["seconds", "bytes"] = "seconds"
    """What the figure has on its vertical axis."""

    def sizes(self, scale: Scale) -> tuple[int, ...]:
        """The numbers of identities to measure."""
        return self.identities if scale == "full" else self.demo_identities


class Tuning(Frozen):
    """Random trials of a row, on identities that its runs do not verify; those of all rows are the same."""

    trials: PositiveInt
    draws: tuple[str, ...]
    """`stage.field=low:high` or `stage.field=log:low:high`: a row's own setting is not drawn, and
    `{stage.field}` in a value of its settings stands for what is drawn."""


class Experiment(Frozen):
    """A table or figure of the paper."""

    title: str
    kind: Literal["runs", "separation", "datasets", "head_cost", "training_speed", "separation_cost"] = "runs"
    """`runs` are scored, `separation` compares centroids and code vectors of runs; others need no run."""
    form: Literal["table", "bars", "curve", "lengths"] = "table"
    """How scores are drawn below their table; `lengths` adds the vocab size of each length."""
    x: str = ""
    """Name of the horizontal axis of a curve."""
    preset: PresetName = "paper/ms1mv2-r100"
    """Preset of all rows at the paper's size."""
    rows: tuple[Row, ...] = ()
    """In the order of the paper."""
    levels: tuple[str, ...] = ()
    """Rows that a curve shows as horizontal lines, as the paper does."""
    columns: tuple[str, ...] = ("LFW", "CFP-FP", "AgeDB", "CALFW", "CPLFW", "IJB-B", "IJB-C")
    """Columns of the paper's table, in its order."""
    improvement: bool = False
    """Add a row with the difference of the last row to the first."""
    fars: tuple[float, ...] = (1e-4,)
    """False accept rates of template sets."""
    pair_fars: tuple[float, ...] = ()
    """False accept rates of sets of pairs, beside their accuracy."""
    tuning: Tuning | None = None
    """Random trials of every row before its runs."""
    cost: Cost | None = None
    remarks: tuple[str, ...] = ()
    """Where the paper contradicts itself or the record, and what is not printed there."""
    demo_remarks: tuple[str, ...] = ()
    """What differs at the demo's size."""

    def rows_at(self, scale: Scale) -> tuple[Row, ...]:
        """The rows; at the demo's size without those that differ from another in dataset or backbone only."""
        if scale == "full":
            return self.rows
        distinct = {row.demo_settings or row.settings: row for row in reversed(self.rows)}
        return tuple(row for row in self.rows if distinct[row.demo_settings or row.settings] is row)

    def base_at(self, scale: Scale) -> int:
        """Position of the row that others are compared with."""
        return next((place for place, row in enumerate(self.rows_at(scale)) if row.base), 0)

    def base_label(self, scale: Scale) -> str:
        """The name of that row's runs."""
        return self.rows_at(scale)[self.base_at(scale)].label(scale)


def read_experiment(name: str) -> Experiment:
    """The experiment of that name."""
    known = (*EXPERIMENTS, *BESIDE)
    if name not in known:
        raise ValueError(f"unknown experiment {name!r}; known experiments: {', '.join(known)}")
    text = resources.files("schemas").joinpath(f"{FOLDER}/{name}.yaml").read_text("utf-8")
    return Experiment.model_validate(yaml.safe_load(text))
