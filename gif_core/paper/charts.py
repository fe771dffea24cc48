"""Charts as SVG: lines and bars, on linear or logarithmic axes."""

import math
from collections.abc import Iterator
from dataclasses import replace
from html import escape
from typing import Final

from gif_core.paper.results import Chart

WIDTH, HEIGHT, LEFT, TOP, LEGEND = 420, 240, 70, 30, 190
"""Size of the plot in pixels, its margins, and the room for names on its right."""
COLOURS: Final = ("#0e7490", "#e5534b", "#e8862e", "#a06ee1", "#2da06f", "#3b82f6", "#8a94a6")
TICKS: Final = 5
LETTER, LINE = 6, 14
"""About the width of a letter, and the height of a line, in pixels."""


class _Axis:
    """Places of values between two ends."""

    def __init__(self, values: list[float], *, log: bool, from_zero: bool = False) -> None:
        self.log = log
        low, high = min(values), max(values)
        if log:
            self.low, self.high = float(math.floor(math.log10(low))), float(math.ceil(math.log10(high)))
        else:
            margin = 0.08 * (high - low) or 0.5 * abs(high) or 1.0
            self.low, self.high = (0.0 if from_zero else low - margin), high + margin
        if self.low == self.high:
            self.high += 1

    def share(self, value: float) -> float:
        """Where a value lies between both ends."""
        place = math.log10(value) if self.log else value
        return (place - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Values to write at the axis."""
        if self.log:
            return [10.0**power for power in range(int(self.low), int(self.high) + 1)]
        step = 10 ** math.floor(math.log10((self.high - self.low) / TICKS))
        step *= next(factor for factor in (1, 2, 5, 10) if (self.high - self.low) / (step * factor) <= TICKS)
        first = math.ceil(self.low / step)
        return [step * number for number in range(first, math.floor(self.high / step) + 1)]


def draw(chart: Chart) -> str:
    """The chart as an SVG element; a logarithmic axis has no place for values up to zero, which are left out."""
    chart = _drawable(chart)
    points = [point for line in chart.series.values() for point in line]
    if not points:
        return ""
    values = [y for _, y in points] + list(chart.levels.values())
    y_axis = _Axis(values, log="y" in chart.log, from_zero=chart.kind == "bars")
    places = [-0.5, len(chart.labels) - 0.5] if chart.labels else [x for x, _ in points]
    x_axis = _Axis(places, log="x" in chart.log)
    parts = [*_axes(chart, x_axis, y_axis), *_levels(chart, y_axis)]
    for number, (name, line) in enumerate(chart.series.items()):
        if chart.kind == "bars":
            parts += _bars(line, number, len(chart.series), x_axis, y_axis)
        else:
            parts += _line(line, number, x_axis, y_axis, is_loose=name in chart.loose)
        parts.append(_text(LEFT + WIDTH + 12, TOP + 14 + 18 * number, name, fill=_colour(number)))
    size = f'viewBox="0 0 {LEFT + WIDTH + LEGEND} {TOP + HEIGHT + 46}" width="{LEFT + WIDTH + LEGEND}"'
    return f'<svg {size} role="img" font-size="12" font-family="sans-serif">{"".join(parts)}</svg>'


def _drawable(chart: Chart) -> Chart:
    def fits(x: float, y: float) -> bool:
        return (x > 0 or "x" not in chart.log) and (y > 0 or "y" not in chart.log)

    series = {name: [point for point in line if fits(*point)] for name, line in chart.series.items()}
    levels = {name: level for name, level in chart.levels.items() if fits(1, level)}
    return replace(chart, series=series, levels=levels)


def _axes(chart: Chart, x_axis: _Axis, y_axis: _Axis) -> Iterator[str]:
    yield _text(LEFT, TOP - 12, f"{chart.title}: {chart.y}", weight="600")
    for value in y_axis.ticks():
        y = _y(y_axis, value)
        yield f'<path d="M{LEFT} {y:.1f}h{WIDTH}" stroke="#8a94a6" stroke-opacity=".3"/>'
        yield _text(LEFT - 8, y + 4, _number(value), anchor="end")
    named = list(enumerate(chart.labels)) if chart.labels else [(value, _number(value)) for value in x_axis.ticks()]
    is_tight = any(len(label) * LETTER * len(named) > WIDTH for _, label in named)
    for number, (place, label) in enumerate(named):
        lower = LINE if is_tight and number % 2 else 0
        yield _text(_x(x_axis, place), TOP + HEIGHT + 18 + lower, label, anchor="middle")
    yield _text(LEFT + WIDTH / 2, TOP + HEIGHT + 38, chart.x, anchor="middle")


def _levels(chart: Chart, y_axis: _Axis) -> Iterator[str]:
    """Dashed lines: of a series, `what: series`, in its colour and named beside it, others named on the line."""
    colours = {name: _colour(number) for number, name in enumerate(chart.series)}
    beside = dict.fromkeys(what for what, of in map(_parts, chart.levels) if of in colours)
    for name, value in chart.levels.items():
        y, of = _y(y_axis, value), _parts(name)[1]
        colour = colours.get(of, "currentColor")
        yield f'<path d="M{LEFT} {y:.1f}h{WIDTH}" stroke="{colour}" stroke-dasharray="6 4"/>'
        if of not in colours:
            yield _text(LEFT + 4, y - 4, name)
    for number, what in enumerate(beside, start=len(colours)):
        yield _text(LEFT + WIDTH + 12, TOP + 14 + 18 * number, f"dashed: {what}")


def _parts(level: str) -> tuple[str, str]:
    what, _, of = level.rpartition(": ")
    return what, of


def _line(line: list[tuple[float, float]], number: int, x_axis: _Axis, y_axis: _Axis, *, is_loose: bool) -> list[str]:
    spots = [(_x(x_axis, x), _y(y_axis, y), y) for x, y in sorted(line)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in spots)
    colour = _colour(number)
    circles = (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{value:g}</title></circle>'
        for x, y, value in spots
    )
    connected = f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    return [*circles] if is_loose else [connected, *circles]


def _bars(line: list[tuple[float, float]], number: int, count: int, x_axis: _Axis, y_axis: _Axis) -> list[str]:
    slot = (_x(x_axis, 1) - _x(x_axis, 0)) * 0.8 / count
    bars = []
    for place, value in line:
        x, y = _x(x_axis, place) + slot * (number - count / 2), _y(y_axis, value)
        bars.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{slot * 0.9:.1f}" height="{max(TOP + HEIGHT - y, 0):.1f}" '
            f'fill="{_colour(number)}"><title>{value:g}</title></rect>'
        )
    return bars


def _x(axis: _Axis, value: float) -> float:
    return LEFT + WIDTH * axis.share(value)


def _y(axis: _Axis, value: float) -> float:
    return TOP + HEIGHT * (1 - axis.share(value))


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _number(value: float) -> str:
    """A number as a label: 3, 0.25, 10k, 64M, 100G."""
    if value >= 1e6:
        return f"{value / 1e6:g}M" if value < 1e9 else f"{value / 1e9:g}G"
    return f"{value / 1e3:g}k" if value >= 1e4 else f"{value:g}"


def _text(x: float, y: float, text: str, *, anchor: str = "start", fill: str = "currentColor", weight: str = "") -> str:
    style = f' font-weight="{weight}"' if weight else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}"{style}>{escape(text)}</text>'
