"""`gif estimate`: what a run would cost, before anybody starts it."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from flows.cli.options import Config, Overrides, Preset, read_config
from flows.cli.output import Console, note
from gif_core.runtime import duration, parse_count, size, thousands

if TYPE_CHECKING:
    from gif_core.estimation import Estimate

LONG = 100
"""Hours from which minutes are left out."""


def estimate(
    config: Config = None,
    preset: Preset = None,
    overrides: Overrides = None,
    identities: Annotated[str | None, typer.Option(help="Identities of the data, such as 2e6.")] = None,
    images: Annotated[str | None, typer.Option(help="Images of the data, such as 4.2e7.")] = None,
    gpus: Annotated[int | None, typer.Option(min=0, help="Number of GPUs; 0: none. Default: those here.")] = None,
    gpu: Annotated[str | None, typer.Option(help="Kind of GPU, such as A100 or H100. Default: the one here.")] = None,
    cores: Annotated[
        int | None, typer.Option(min=1, help="Cores of a machine. Default: of this one, or 12 per GPU.")
    ] = None,
    rate: Annotated[float | None, typer.Option(min=0, help="Price of all machines per hour.")] = None,
) -> None:
    """Estimate bytes, memory, hours and what limits each stage of a run, and its price; nothing is run.

    Rates are those that 'gif bench' measured here; where it measured none, stated reference figures.

    Examples:
      gif estimate --preset webface42m --gpus 8 --gpu A100 --rate 20

      gif estimate --config run.yaml --identities 2e6 --images 4.2e7
    """
    settings = read_config(config, preset, overrides, required=True)
    given = [text and parse_count(text, name) for text, name in ((identities, "--identities"), (images, "--images"))]
    with Console(stderr=True).status("Counting …"):
        from gif_core.estimation import describe_machine, estimate_run, find_scale

        scale = find_scale(settings, given[0] or None, given[1] or None)
        found = estimate_run(settings, scale, describe_machine(gpus, gpu, cores))
    _show(found)
    for remark in found.remarks:
        note(remark)
    if rate is not None:
        print(f"price: {found.price(rate):,.2f} at {rate:g} per hour, one stage after another")


def _show(found: "Estimate") -> None:
    scale, machine = found.scale, found.machine
    cores = f"{machine.machines} × {machine.cores} cores" if machine.machines > 1 else f"{machine.cores} cores"
    where = f"{machine.gpus} × {machine.gpu}, {cores}" if machine.gpus else cores
    title = f"{thousands(scale.identities)} identities, {thousands(scale.images)} images on {where}"
    columns = ["stage", "reads", "writes", "memory", *(["of a GPU"] if machine.gpus else []), "time", "limit"]
    table = Table(*columns, title=escape(title), box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for cost in found.stages:
        sizes = [cost.reads, cost.writes, cost.host_memory, *([cost.device_memory] if machine.gpus else [])]
        table.add_row(cost.stage, *(size(each) if each else "–" for each in sizes), _time(cost.seconds), cost.limit)
    table.columns[0].no_wrap = True
    table.add_row("all", *[""] * (len(columns) - 3), _time(found.seconds), "", style="bold")
    console = Console()
    console.print(table)
    for cost in found.stages:
        console.print(f"  {cost.stage}: {cost.source}", markup=False, highlight=False)


def _time(seconds: float) -> str:
    hours = seconds / 3600
    return duration(seconds) if hours < LONG else f"{hours:,.0f} h"
