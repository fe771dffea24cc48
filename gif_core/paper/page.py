"""Experiments as one self-contained HTML page."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

from gif_core.paper.charts import draw
from gif_core.paper.results import Grid, Result

STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:100rem;margin:2rem auto;padding:0 1rem}"
    ".wide{overflow-x:auto}table{border-collapse:collapse;margin:1rem 0;font-size:13px}"
    "caption{text-align:left;font-weight:600;padding:.3rem 0}"
    "td,th{padding:.15rem .45rem;text-align:left;white-space:nowrap}"
    "td.n,th.n{text-align:right}tr:nth-child(even){background:#8881}"
    ".charts{display:flex;flex-wrap:wrap;gap:1rem}svg{max-width:100%;height:auto}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}a{color:#7dd3fc}}"
)
TITLE: Final = "GIF: the paper's tables and figures"


def write_page(path: Path, results: Sequence[Result]) -> None:
    """Write the page, one section for each experiment in the order given."""
    parts = [f"<!doctype html><html lang=en><meta charset=utf-8><title>{TITLE}</title><style>{STYLE}</style>"]
    parts.append(f"<h1>{TITLE}</h1><ul>")
    parts += [f'<li><a href="#{result.name}">{escape(result.title)}</a>' for result in results]
    parts.append("</ul>")
    for result in results:
        parts += _section(result)
    path.write_text("\n".join(parts), encoding="utf-8")


def _section(result: Result) -> Iterator[str]:
    yield f'<h2 id="{result.name}">{escape(result.title)}</h2><p><code>{escape(result.command)}</code></p>'
    yield from (f'<div class="wide">{_table(grid)}</div>' for grid in result.grids)
    yield f'<div class="charts">{"".join(draw(chart) for chart in result.charts)}</div><ul>'
    yield from (f"<li>{escape(remark)}" for remark in result.remarks)
    yield "</ul>"


def _table(grid: Grid) -> str:
    kinds = [' class="n"' if place >= grid.numbers_from else "" for place in range(len(grid.columns))]
    head = "".join(f"<th{kind}>{escape(name)}" for kind, name in zip(kinds, grid.columns, strict=True))
    rows = (
        "<tr>" + "".join(f"<td{kind}>{escape(cell)}" for kind, cell in zip(kinds, row, strict=True))
        for row in grid.rows
    )
    return f"<table><caption>{escape(grid.title)}</caption><tr>{head}{''.join(rows)}</table>"
