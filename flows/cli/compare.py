"""`gif compare`: runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from flows.cli.options import Store
from gif_core.artifacts import ArtifactMissingError, ArtifactStore, find_run, list_runs, resolve
from gif_core.reporting import find_evaluation
from schemas.artifacts import RunRecord

if TYPE_CHECKING:
    from gif_core.reporting import Table as Compared


def compare(
    store: Store,
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN RUN…", help="Ids of runs, or artifacts of training or evaluation; a beginning does."
        ),
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write a page, which needs no network.")] = None,
) -> None:
    """Put runs side by side: the settings that differ, the scores of the models, and what training cost.

    Examples:
      gif compare 20260301-1200 20260301-1830

      gif compare training/4f2a evaluation@latest --out comparison.html
    """
    if len(runs) < 2:
        raise ArtifactMissingError("name at least two runs to compare; 'gif runs ls' lists them")
    from gif_core.reporting import load_run, tabulate

    opened = ArtifactStore(store)
    loaded = [load_run(opened, _evaluation_of(opened, name)) for name in runs]
    _show(tabulate(loaded, runs))
    if out:
        from gif_core.reporting import write_comparison

        write_comparison(out, loaded, runs)
        print(f"page: {out}")


def _evaluation_of(store: ArtifactStore, name: str) -> str:
    """The key of the scores that a person means: those of a run, of a model, or themselves."""
    if any(run.run_id.startswith(name) for run in list_runs(store)):
        return _scores_of_run(store, find_run(store, name))
    ref = resolve(store, name)
    if ref.stage == "training":
        return find_evaluation(store, ref.key)
    if ref.stage != "evaluation":
        raise ArtifactMissingError(f"{ref} has no scores: name a run, or an artifact of training or evaluation")
    return ref.key


def _scores_of_run(store: ArtifactStore, run: RunRecord) -> str:
    if "evaluation" in run.stages:
        return run.stages["evaluation"].key
    if "training" in run.stages:
        return find_evaluation(store, run.stages["training"].key)
    raise ArtifactMissingError(f"run {run.run_id} has neither trained nor evaluated: there is nothing to compare")


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
