"""What an experiment shows: tables, charts and remarks."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Grid:
    """A table of text; numbers are right-aligned from column `numbers_from` on."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers_from: int = 1


@dataclass(frozen=True)
class Chart:
    """Lines or bars over the same places on the horizontal axis."""

    title: str
    x: str
    y: str
    series: dict[str, list[tuple[float, float]]]
    """Points of each line, or bars of each group; x is a number, or the position of a label in `labels`."""
    kind: Literal["lines", "bars"] = "lines"
    labels: tuple[str, ...] = ()
    """Names of the positions 0, 1, … of the horizontal axis; without them it is a scale of numbers."""
    loose: tuple[str, ...] = ()
    """Series whose points are not connected."""
    levels: dict[str, float] = field(default_factory=dict)
    """Horizontal lines."""
    log: Literal["", "y", "xy"] = ""
    """Which axes are logarithmic."""


@dataclass(frozen=True)
class Result:
    """An experiment, ready to be printed or to become part of a page."""

    name: str
    title: str
    command: str
    grids: tuple[Grid, ...]
    charts: tuple[Chart, ...] = ()
    remarks: tuple[str, ...] = ()
