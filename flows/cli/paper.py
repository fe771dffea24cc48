"""`gif paper`: experiments of the paper as sweeps, with the published numbers beside ours."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from flows.cli.options import Overrides
from flows.cli.output import Console, note
from flows.cli.sweep import Given, refuse_failures, run_sweep, show_sections
from gif_core.sweeps import Variant, write_page
from schemas.experiments import EXPERIMENTS, Experiment, read_experiment

DEMO_SIZE = (
    "Faces are drawn, the network is small and trained for minutes: rows can be compared with each other, not with the "
    "paper's numbers."
)


def paper(
    experiment: Annotated[str, typer.Argument(help=f"'ls', or one of {', '.join(EXPERIMENTS)}.")],
    data: Annotated[str | None, typer.Option(help="Folder of datasets and benchmarks ($GIF_DATA).")] = None,
    scale: Annotated[str, typer.Option(help="'full': the paper's preset. 'demo': drawn faces, minutes.")] = "full",
    overrides: Overrides = None,
    seeds: Annotated[str, typer.Option(help="Seeds of the runs, divided by commas.")] = "0",
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 1,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write a self-contained HTML page.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the runs and what each would compute.")] = False,
) -> None:
    """Run an experiment of the paper: its variants as a sweep, then our scores and the published ones.

    Not here yet: Figures 1a, 1c, 4, 5a, 5b, Table 3, the cost of separation, CLIP against DINO.

    Examples:
      gif paper ls

      gif paper figure5d --scale demo --seeds 0,1,2 --out figure5d.html

      gif paper table2 --data /faces --dry-run
    """
    if experiment == "ls":
        _list()
        return
    wanted = read_experiment(experiment)
    if scale not in ("full", "demo"):
        raise ValueError(f"--scale is full or demo, not {scale!r}")
    more = [f"data={data}"] if data else []
    given = Given(None, "demo" if scale == "demo" else wanted.preset, (*more, *(overrides or ())))
    variants = [Variant(settings, name) for name, settings in wanted.variants.items()]
    sections, failed = run_sweep(given, variants, seeds, paired=True, jobs=jobs, dry_run=dry_run)
    show_sections(sections)
    if not dry_run:
        _show_published(wanted)
    for remark in (*wanted.remarks, *([DEMO_SIZE] if scale == "demo" else [])):
        note(remark)
    if out and sections:
        write_page(out, sections, f"gif paper {experiment} --scale {scale} --seeds {seeds}")
        print(f"page: {out}")
    refuse_failures(failed)


def _list() -> None:
    table = Table("experiment", "what", "rows")
    for name in EXPERIMENTS:
        found = read_experiment(name)
        table.add_row(name, escape(found.title), str(len(found.variants)))
    Console().print(table)


def _show_published(wanted: Experiment) -> None:
    """The published percentages of the methods that the experiment has rows for."""
    from gif_core.reporting.published import BENCHMARKS, PUBLISHED

    rows = [row for row in PUBLISHED if row.trained_on == wanted.trained_on and row.method in wanted.variants]
    if not rows:
        return
    title = f"published, trained on {wanted.trained_on}, in percent"
    table = Table("method", "backbone", "by", *BENCHMARKS, title=title)
    for row in rows:
        numbers = ("–" if value is None else f"{value:.2f}" for value in row.percentages)
        table.add_row(escape(row.method), row.backbone, escape(row.source), *numbers)
    Console().print(table)
