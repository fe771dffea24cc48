"""`gif paper`: the paper's tables and figures, measured here, with the published numbers beside ours."""

from __future__ import annotations

import re
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.markup import escape
from rich.table import Column, Table

from flows.cli.options import Overrides, Page
from flows.cli.output import Console, note
from flows.cli.sweep import refuse_failures
from flows.cli.swept import Given, Swept, run_sweep
from flows.cli.tuning import describe_trials, run_tuned
from gif_core.artifacts import ArtifactStore, with_ancestors
from gif_core.sweeps import Variant, read_draw
from schemas.errors import GifError
from schemas.experiments import BESIDE, DEMO, EXPERIMENTS, Experiment, Scale, read_experiment

if TYPE_CHECKING:
    from gif_core.paper import Chart, Grid, Result
    from gif_core.training import MeasuredCentroids
    from schemas.experiments import Row

NAMES = (*EXPERIMENTS, *BESIDE)
RUNS = ("runs", "separation")
"""Kinds of experiments that train."""
ASSUMED = 8 * 2**30
"""Bytes of memory where the system does not say how many are free."""
SHARE = 0.7
"""Share of the memory that is free which a measurement may use."""


def paper(
    experiment: Annotated[str, typer.Argument(help=f"'ls', 'all', or one of {', '.join(NAMES)}.")],
    data: Annotated[str | None, typer.Option(help="Folder of datasets and benchmarks ($GIF_DATA).")] = None,
    scale: Annotated[str, typer.Option(help="'full': the paper's size. 'demo': drawn faces, a minute a run.")] = "full",
    overrides: Overrides = None,
    seeds: Annotated[str, typer.Option(help="Seeds of the runs, divided by commas.")] = "0",
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 1,
    device: Annotated[str, typer.Option(help="Where costs are measured: cpu, cuda or cuda:N.")] = "cpu",
    out: Page = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the runs and what each would compute.")] = False,
) -> None:
    """Run an experiment of the paper, and show it in the paper's own form with the published numbers beside ours.

    At full scale the presets `paper/…` train with the paper's method as printed; costs are measured as far as memory
    reaches and computed beyond. After an interruption the same command continues.

    Examples:
      gif paper ls

      gif paper table1 --data /faces --dry-run

      gif paper figure5d --scale demo --seeds 0,1,2 --out figure5d.html

      gif paper all --scale demo --out paper.html
    """
    if experiment == "ls":
        _list()
        return
    if scale not in ("full", "demo"):
        raise ValueError(f"--scale is full or demo, not {scale!r}")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise ValueError(f"--device is cpu, cuda or cuda:N, not {device!r}")
    changes = (*([f"data={data}"] if data else ()), *(overrides or ()))
    asked = _Asked(cast(Scale, scale), changes, seeds, jobs, device, dry_run)
    results, failed = [], 0
    for name in EXPERIMENTS if experiment == "all" else (experiment,):
        try:
            result, lost = asked.run(name)
        except GifError as error:
            if experiment != "all":
                raise
            note(f"{name} failed: {error}")
            result, lost = None, 1
        failed += lost
        if result:
            _show(result)
            results.append(result)
            _write(out, results)
    if out and results:
        print(f"page: {out}")
    refuse_failures(failed)


def _write(out: Path | None, results: list[Result]) -> None:
    """Write what is finished so far."""
    if out:
        from gif_core.paper import write_page

        write_page(out, results)


class _Asked:
    """What the command line asks of every experiment."""

    def __init__(
        self, scale: Scale, overrides: tuple[str, ...], seeds: str, jobs: int, device: str, dry_run: bool
    ) -> None:
        self.scale, self.overrides, self.seeds = scale, overrides, seeds
        self.jobs, self.device, self.dry_run = jobs, device, dry_run

    def run(self, name: str) -> tuple[Result | None, int]:
        """The result of an experiment, none for a dry run; and how many of its runs failed."""
        from gif_core.paper import Result

        found, begin = read_experiment(name), time.monotonic()
        remarks = (*found.remarks, *(found.demo_remarks if self.scale == "demo" else ()))
        if found.kind in RUNS:
            swept, tuned = self._sweep(found)
            if self.dry_run:
                return None, 0
            grids, charts, more = self._show_runs(found, swept)
            more += tuned
            failed = swept.failed
        elif self.dry_run:
            note(f"{name}: nothing is trained")
            return None, 0
        else:
            (grids, charts, more), failed = self._measure(found), 0
        note(f"{name}: {time.monotonic() - begin:.0f} s")
        return Result(name, found.title, self._command(name), tuple(grids), tuple(charts), (*more, *remarks)), failed

    def _command(self, name: str) -> str:
        """What makes the same again."""
        changes = [word for override in self.overrides for word in ("--set", override)]
        where = ["--device", self.device] if self.device != "cpu" else []
        return shlex.join(["gif", "paper", name, "--scale", self.scale, "--seeds", self.seeds, *where, *changes])

    def _sweep(self, found: Experiment) -> tuple[Swept, list[str]]:
        """The runs, and lines on their tuning."""
        if found.tuning and self.scale != "demo":
            raise GifError(
                f"{found.title!r} draws values that suit the demo's network and optimizer: give --scale demo, or draw "
                "others with 'gif sweep --trials'"
            )
        given = Given(None, DEMO if self.scale == "demo" else found.preset, self.overrides)
        variants = [self._variant(row) for row in found.rows_at(self.scale)]
        if found.tuning is None:
            return run_sweep(given, variants, self.seeds, jobs=self.jobs, dry_run=self.dry_run), []
        draws, trials = [read_draw(each) for each in found.tuning.draws], found.tuning.trials
        swept, tried = run_tuned(given, variants, draws, trials, self.seeds, jobs=self.jobs, dry_run=self.dry_run)
        return swept, [describe_trials(each) for each in tried]

    def _variant(self, row: Row) -> Variant:
        if self.scale == "demo":
            return Variant(row.demo_settings or row.settings, row.label("demo"))
        return Variant(row.settings, row.label("full"), row.preset)

    def _show_runs(self, found: Experiment, swept: Swept) -> tuple[list[Grid], list[Chart], list[str]]:
        from gif_core.paper import RowScores, show_scores, show_separation
        from gif_core.paper.tables import describe_budgets

        rows = found.rows_at(self.scale)
        scored = [RowScores(row, runs) for row, runs in zip(rows, swept.runs, strict=True)]
        if found.kind == "separation":
            measured = [(row, _measure_separation(swept, place)) for place, row in enumerate(rows)]
            return *show_separation(measured, self.scale), describe_budgets(scored)
        differences = swept.summarise(paired=True, base=found.base_at(self.scale))
        return show_scores(found, scored, self.scale, differences)

    def _measure(self, found: Experiment) -> tuple[list[Grid], list[Chart], list[str]]:
        from gif_core.paper import show_cost, show_datasets

        if found.kind == "datasets":
            grid, chart = show_datasets()
            return [grid], [chart], []
        memory = _find_memory(self.device)
        return show_cost(found, self.scale, device=self.device, memory=memory, report=note)


def _find_memory(device: str) -> int:
    """Bytes for a measurement: a share of those that are free on this machine, and at most those of its GPU."""
    from gif_core.planning import available_memory
    from gif_core.runtime import device_memory, pick_device

    return int(min(SHARE * (available_memory() or ASSUMED), device_memory(pick_device(device))))


def _measure_separation(swept: Swept, place: int) -> list[MeasuredCentroids]:
    """Centroids and code vectors of the first finished seed of a row."""
    from gif_core.training import measure_centroids

    for seed, evaluation in swept.evaluations[place].items():
        store = ArtifactStore(swept.settings[place][seed].store)
        sources = with_ancestors(store, evaluation)
        if "separation" in sources:
            return measure_centroids(sources["separation"], sources.get("training"))
    return []


def _list() -> None:
    table = Table("experiment", "what", "needs")
    for name in NAMES:
        found = read_experiment(name)
        count, fewer = len(found.rows), len(found.rows_at("demo"))
        needs = f"{count} runs ({fewer} at the demo's size)" if found.rows else "no training"
        table.add_row(name, escape(found.title), needs)
    Console().print(table)


def _show(result: Result) -> None:
    """Print the tables and remarks of a result."""
    print(f"\n{result.title}")
    for grid in result.grids:
        _show_grid(Console(), grid)
    for remark in result.remarks:
        note(remark)


def _show_grid(console: Console, grid: Grid) -> None:
    """Print a table, in parts that have its first column in common if it is wider than the terminal."""
    shown, unlimited = [0], console.options.update_width(sys.maxsize)
    for place in range(1, len(grid.columns)):
        width = console.measure(_tabulate(grid, [*shown, place]), options=unlimited).maximum
        if len(shown) > 1 and width > console.width:
            console.print(_tabulate(grid, shown))
            shown = [0]
        shown.append(place)
    console.print(_tabulate(grid, shown))


def _tabulate(grid: Grid, places: list[int]) -> Table:
    """A table of these columns."""
    columns = [
        Column(escape(grid.columns[place]), justify="right" if place >= grid.numbers_from else "left", overflow="fold")
        for place in places
    ]
    table = Table(*columns, title=escape(grid.title))
    for row in grid.rows:
        table.add_row(*(escape(row[place]) for place in places))
    return table
