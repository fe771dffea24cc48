"""`gif runs`: what was run, with which settings, and what came of it."""

from typing import Annotated

import typer
import yaml
from rich.console import Console
from rich.table import Column, Table

from flows.cli.options import Store
from flows.cli.tables import format_age, show_run
from gif_core.artifacts import ArtifactStore, find_run, list_runs

app = typer.Typer(help="List and show runs of the pipeline.", no_args_is_help=True)


@app.command("ls")
def ls(store: Store) -> None:
    """List all runs, the newest first."""
    table = Table(Column("run", no_wrap=True), "state", "preset", "started", "computed", "reused")
    for record in list_runs(ArtifactStore(store)):
        actions = [done.action for done in record.stages.values()]
        where = f" in {record.current}" if record.current else ""
        table.add_row(
            record.run_id,
            record.state + where,
            str(record.config.get("preset") or "-"),
            format_age(record.started_at),
            str(actions.count("computed")),
            str(actions.count("reused")),
        )
    Console().print(table)


@app.command("show")
def show(
    store: Store,
    run: Annotated[str | None, typer.Argument(help="A run's id or its beginning; the newest if not given.")] = None,
    config: Annotated[bool, typer.Option("--config", help="Print its settings as YAML instead.")] = False,
) -> None:
    """Show one run: its stages, scores and report, or the settings it had."""
    opened = ArtifactStore(store)
    record = find_run(opened, run)
    if config:
        print(yaml.safe_dump(record.config, sort_keys=False, allow_unicode=True), end="")
    else:
        show_run(Console(), opened, record)
