"""`gif sweep`: the pipeline with several values of settings and several seeds, and a table of the differences."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

from flows.cli.options import Config, Overrides, Page, Preset
from flows.cli.output import Console
from flows.cli.swept import Given, run_sweep
from flows.cli.tuning import describe_trials, run_tuned
from gif_core.sweeps import expand, read_draws, write_page
from schemas.errors import GifError

if TYPE_CHECKING:
    from gif_core.sweeps import Section


def sweep(
    vary: Annotated[
        list[str],
        typer.Option(metavar="STAGE.FIELD=A,B", help="A setting and its values; with several, all combinations."),
    ],
    config: Config = None,
    preset: Preset = None,
    overrides: Overrides = None,
    seeds: Annotated[str, typer.Option(help="Seeds of the runs, divided by commas.")] = "0",
    paired: Annotated[
        bool, typer.Option("--paired", help="Also bootstrap the differences over the identities of each set.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time on this machine.")] = 1,
    work_pool: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Submit the runs to this work pool of Prefect, and wait for them."),
    ] = None,
    draw: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STAGE.FIELD=[log:]LOW:HIGH", help="Draw a setting in --trials, evenly or in its logarithm."
        ),
    ] = None,
    trials: Annotated[int, typer.Option(min=0, help="Random trials of each combination before its runs.")] = 0,
    out: Page = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the runs and what each would compute.")] = False,
) -> None:
    """Run the pipeline with several values of settings, and compare the scores seed by seed.

    What the runs share is computed once. The first value of each setting is the one that others are compared with.
    After an interruption the same command continues; runs on a work pool go on without it.

    With --work-pool each run is one of the deployment gif/full-pipeline, which `gif deploy` makes: workers need the
    store and every path of the settings under the same address.

    With --trials every combination is tuned alike before its runs: each tries the same random values of the settings
    of --draw, with the first seed, on development identities. Those that the runs verify are left out, others are held
    out in their place, and the trial with the highest accuracy on pairs of them gives the values of the runs.

    Examples:
      gif sweep --preset demo --vary training.head=gif,cosface,partial_fc --seeds 0,1,2 --out heads.html

      gif sweep -c run.yaml --vary tokenization.length=3,4,5 --vary training.gamma=1,3 --seeds 0,1 --paired --jobs 2

      gif sweep -c run.yaml --vary training.head=gif,cosface --seeds 0,1,2 --work-pool gif

      gif sweep -c run.yaml --vary training.head=arcface,cosface --trials 8 --draw training.learning_rate=log:0.001:0.1
    """
    given = Given(config, preset, tuple(overrides or ()))
    variants, remarks = expand(vary), list[str]()
    draws = read_draws(draw or (), variants)
    if bool(draws) != bool(trials):
        raise GifError("--trials and --draw need each other: how many values to try, and of which settings")
    if trials:
        swept, tried = run_tuned(given, variants, draws, trials, seeds, jobs=jobs, work_pool=work_pool, dry_run=dry_run)
        remarks = [describe_trials(each) for each in tried]
    else:
        swept = run_sweep(given, variants, seeds, jobs=jobs, work_pool=work_pool, dry_run=dry_run)
    sections = swept.summarise(paired=paired)
    show_sections(sections)
    if out and sections:
        write_page(out, sections, shlex.join(["gif", *sys.argv[1:]]), remarks)
        print(f"page: {out}")
    refuse_failures(swept.failed)


def refuse_failures(failed: int) -> None:
    """End with an error if runs failed."""
    if failed:
        raise GifError(f"{failed} runs failed, as said above; the same command runs them again")


def show_sections(sections: list[Section]) -> None:
    """A table per metric."""
    from gif_core.sweeps.page import HEAD, cells

    for section in sections:
        columns = [Column(name, justify="left" if not place else "right") for place, name in enumerate(HEAD)]
        table = Table(*columns, title=escape(f"{section.set}: {section.metric}"))
        for line in section.lines:
            table.add_row(*map(escape, cells(line)))
        Console().print(table)
