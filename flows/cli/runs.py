"""`gif runs`: list runs, and show their stages, scores and settings."""

from typing import Annotated

import typer
import yaml
from rich.table import Column, Table

from flows.cli.options import Store
from flows.cli.output import Console
from flows.cli.tables import format_age, show_run
from gif_core.artifacts import ArtifactStore, find_run, list_runs

app = typer.Typer(help="List and show runs of the pipeline.", no_args_is_help=True)


@app.command("ls")
def ls(store: Store) -> None:
    """List all runs, newest first.

    Example:
      gif runs ls
    """
    table = Table(Column("run", no_wrap=True), "state", "preset", "started", "stages")
    for record in list_runs(ArtifactStore(store)):
        actions = [done.action for done in record.stages.values()]
        where = f" in {record.current}" if record.current else ""
        table.add_row(
            record.run_id,
            record.state + where,
            str(record.config.get("preset") or "-"),
            format_age(record.started_at),
            f"{len(actions)}, {actions.count('computed')} new",
        )
    Console().print(table)


@app.command("show")
def show(
    store: Store,
    run: Annotated[
        str | None, typer.Argument(help="A run id or its first characters; if omitted the newest run with codes.")
    ] = None,
    config: Annotated[bool, typer.Option("--config", help="Print its settings as YAML instead.")] = False,
) -> None:
    """Show one run: its stages, scores and report, or its settings.

    Examples:
      gif runs show

      gif runs show 20260301-1200 --config > run.yaml
    """
    opened = ArtifactStore(store)
    record = find_run(opened, run)
    if config:
        print(yaml.safe_dump(record.config, sort_keys=False, allow_unicode=True), end="")
    else:
        show_run(Console(), opened, record)
