"""`gif bench`: how fast this machine is, and where a step's time goes."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Config, Overrides, Preset, read_config
from flows.cli.output import Console
from schemas.benchmarks import BENCHMARKS

WHAT = f"One of {', '.join(BENCHMARKS)}, or 'all'."
COMMAND = (sys.executable, "-P", "-m", "flows.cli")


def bench(
    what: Annotated[str, typer.Argument(help=WHAT)],
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU if there is one.")] = "auto",
    config: Config = None,
    preset: Preset = None,
    overrides: Overrides = None,
    identities: Annotated[str, typer.Option(help="Identities that the head knows, such as 10000 or 2e6.")] = "10000",
    batch: Annotated[
        int | None, typer.Option(min=2, help="Images of a step; by default those of the settings, on a CPU at most 32.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, max=3600, help="How long the main part is measured.")] = 6.0,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Also draw the phases as an image.")] = None,
    keep: Annotated[bool, typer.Option(help="Keep the figures for 'gif estimate'.")] = True,
) -> None:
    """Measure images per second, utilisation, memory and where the time goes, with the settings of a run.

    The inputs are drawn. The network, the head and the encoder are those of the settings, by default those of the
    demo. 'start' makes a run of a few images. The last line is JSON.

    Examples:
      gif bench train

      gif bench train --preset webface42m --device cuda --identities 2e6 --plot step.svg

      gif bench all --config run.yaml
    """
    settings = read_config(config, preset, overrides)
    names = BENCHMARKS if what == "all" else (what,)
    if plot and (what == "all" or plot.suffix != ".svg"):
        raise ValueError("--plot draws one benchmark as an image: give one name, and a file that ends in .svg")
    from gif_core.benchmarking import describe_result, draw_svg, keep_result, run_benchmark
    from gif_core.runtime import parse_count

    count, console = parse_count(identities, "--identities"), Console(width=80)
    for name in names:
        with Console(stderr=True).status(f"Measuring {name} …"):
            result = run_benchmark(
                name, settings, device=device, seconds=seconds, identities=count, batch=batch, command=COMMAND
            )
        for line in describe_result(result):
            console.print(line, markup=False, highlight=False)
        if keep:
            keep_result(result)
        if plot:
            plot.write_text(draw_svg(result), encoding="utf-8")
        print(result.model_dump_json(exclude_none=True))
