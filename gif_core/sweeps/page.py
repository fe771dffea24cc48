"""A sweep as a self-contained HTML page: a plot and a table for every metric."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

from gif_core.runtime import metric_name, set_name
from gif_core.sweeps.summary import Line, Section

STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}td,th{padding:.2rem .8rem;text-align:right}"
    "td:first-child,th:first-child{text-align:left}"
    "tr:nth-child(even){background:#8881}@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}}"
)
WIDTH, ROW, LEFT = 640, 26, 220
"""Of a plot, in pixels: its width, the height of a variant, where the axis begins."""
HEAD: Final = ("variant", "seeds", "mean ± deviation", "difference", "± over seeds", "± over identities")


def write_page(path: Path, sections: Sequence[Section], command: str, remarks: Sequence[str] = ()) -> None:
    """Write the page; `command` is what made it, and `remarks` are lines on its tuning."""
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Sweep</title><style>{STYLE}</style><h1>Sweep</h1>",
        f"<p><code>{escape(command)}</code></p><p>Means over seeds in percent; differences to the first variant, "
        "seed by seed, in points, with their standard errors.</p>",
        *(f"<p>{escape(remark)}</p>" for remark in remarks),
    ]
    for section in sections:
        title = f"{set_name(section.set)}: {metric_name(section.metric)}"
        parts += [f"<h2>{escape(title)}</h2>", plot(section), table(section)]
    path.write_text("\n".join(parts), encoding="utf-8")


def cells(line: Line) -> tuple[str, ...]:
    """A line of the table, in percent and points."""
    spread = "" if line.deviation is None else f" ± {100 * line.deviation:.2f}"
    rest = (line.difference, line.seed_error, line.identity_error)
    shown = (
        "" if value is None else f"{100 * value:{'+' if not place else ''}.2f}" for place, value in enumerate(rest)
    )
    return (line.variant, str(line.seeds), f"{100 * line.mean:.2f}{spread}", *shown)


def table(section: Section) -> str:
    """The lines of a section."""
    head = "".join(f"<th>{name}" for name in HEAD)
    rows = ("<tr>" + "".join(f"<td>{escape(cell)}" for cell in cells(line)) for line in section.lines)
    return f"<table><tr>{head}{''.join(rows)}</table>"


def plot(section: Section) -> str:
    """Mean and deviation of every variant on one axis, as SVG."""
    ends = [(line.mean - (line.deviation or 0), line.mean + (line.deviation or 0)) for line in section.lines]
    low, high = min(each[0] for each in ends), max(each[1] for each in ends)
    margin = max((high - low) * 0.1, 0.001)

    def place(value: float) -> float:
        return LEFT + (WIDTH - LEFT - 10) * (value - low + margin) / (high - low + 2 * margin)

    marks = []
    for number, (line, (begin, end)) in enumerate(zip(section.lines, ends, strict=True)):
        y = ROW * (number + 0.5)
        marks.append(
            f'<text x="0" y="{y + 5}" fill="currentColor">{escape(line.variant)}</text>'
            f'<line x1="{place(begin):.1f}" x2="{place(end):.1f}" y1="{y}" y2="{y}" stroke="teal" stroke-width="2"/>'
            f'<circle cx="{place(line.mean):.1f}" cy="{y}" r="5" fill="teal">'
            f"<title>{100 * line.mean:.2f} %</title></circle>"
        )
    height = ROW * len(section.lines)
    return f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">{"".join(marks)}</svg>'
