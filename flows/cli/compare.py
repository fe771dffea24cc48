"""`gif compare`: runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

from flows.cli.options import Store
from flows.cli.output import Console
from gif_core.artifacts import ArtifactMissingError, ArtifactStore, find_scores

if TYPE_CHECKING:
    from gif_core.reporting import Table as Compared


def compare(
    store: Store,
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN RUN…", help="Run ids, models (as for --model of other commands), or evaluation/KEY."
        ),
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write a self-contained HTML page.")] = None,
) -> None:
    """Put runs side by side: the settings that differ, the models' scores, and the cost of training.

    Examples:
      gif compare 20260301-1200 20260301-1830

      gif compare champion training/4f2a evaluation@latest --out comparison.html
    """
    if len(runs) < 2:
        raise ArtifactMissingError("name at least two runs to compare; 'gif runs ls' lists them")
    from gif_core.reporting import load_run, tabulate

    opened = ArtifactStore(store)
    loaded = [load_run(opened, find_scores(opened, name).ref.key) for name in runs]
    _show(tabulate(loaded, runs))
    if out:
        from gif_core.reporting import write_comparison

        write_comparison(out, loaded, runs)
        print(f"page: {out}")


def _show(compared: Compared) -> None:
    table = Table(Column("", overflow="fold"), *(Column(escape(name), justify="right") for name in compared.names))
    for group, rows in compared.groups.items():
        table.add_section()
        table.add_row(f"[bold]{group}[/]")
        for row in rows:
            cells = [f"[bold]{escape(c)}[/]" if i in row.best else escape(c) for i, c in enumerate(row.cells)]
            table.add_row(escape(row.label), *cells)
    Console().print(table)
    if compared.hidden:
        print(f"{compared.hidden} more settings differ")
