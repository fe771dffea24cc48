"""`gif doctor`: check whether this machine, its store and its Prefect server can run the pipeline."""

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from flows.cli.checks import (
    Check,
    check_detector,
    check_disks,
    check_faiss,
    check_gpu,
    check_memory,
    check_store,
    check_weights,
)
from flows.cli.environment import prepare
from flows.cli.gpu_checks import check_cuda
from flows.cli.machine_checks import check_machines
from flows.cli.options import Overrides, reach
from flows.cli.output import Console
from flows.cli.server_checks import check_server
from flows.cli.version_checks import check_versions
from schemas.loading import load_config
from schemas.presets import PRESETS
from schemas.run import RunConfig

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    source: Annotated[
        str, typer.Argument(metavar="[CONFIG]", help=f"A YAML file or a preset: {', '.join(PRESETS)}.")
    ] = "demo",
    overrides: Overrides = None,
) -> None:
    """Check versions, GPU, FAISS, the store, weights, detector, disk, memory and Prefect; exit code 1 on a failure.

    The store, the encoder, the device and the other machines are those of the configuration. Test files in the store
    are removed.

    Examples:
      gif doctor

      gif doctor run.yaml --set store=s3://bucket/artifacts
    """
    prepare()
    config = load_config(source, overrides)
    reach(config.store)
    console, failed = Console(), False
    table = Table("", "what", "found", "what to do", title=f"store {config.store}")
    with Console(stderr=True).status("Checking …"):
        for check in _all_checks(config):
            mark = f"[{STYLES[check.state]}]{check.state}[/]"
            table.add_row(mark, check.name, escape(check.found), escape(check.advice))
            failed |= check.state == "fail"
    console.print(table)
    if failed:
        raise typer.Exit(1)


def _all_checks(config: RunConfig) -> Iterator[Check]:
    yield from check_versions()
    yield check_gpu(config.execution.device)
    yield from check_cuda(config.execution.device)
    yield check_faiss(config.execution.device)
    yield from check_store(config.store)
    yield check_weights(config.embedding)
    yield check_detector()
    yield from check_disks(config.store)
    yield check_memory()
    yield from check_server()
    yield from check_machines(config.execution)
