"""`gif sweep`: the pipeline with several values of settings and several seeds, and a table of the differences."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

from flows.cli.options import Config, Overrides, Page, Preset, reach, read_config
from flows.cli.output import Console
from flows.cli.sweep_runs import run_here, run_on_pool
from gif_core.artifacts import ArtifactStore
from gif_core.planning import leave_out_missing_sets, plan_stages
from gif_core.sweeps import Variant, compare_identities, expand, find_evaluation, summarise, write_page
from schemas.errors import GifError

if TYPE_CHECKING:
    from gif_core.artifacts import Artifact
    from gif_core.reporting import ScoredRun
    from gif_core.sweeps import Section
    from schemas.run import RunConfig


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
    out: Page = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the runs and what each would compute.")] = False,
) -> None:
    """Run the pipeline with several values of settings, and compare the scores seed by seed.

    What the runs share is computed once. The first value of each setting is the one that others are compared with.
    After an interruption the same command continues; runs on a work pool go on without it.

    With --work-pool each run is one of the deployment gif/full-pipeline, which `gif deploy` makes: workers need the
    store and every path of the settings under the same address.

    Examples:
      gif sweep --preset demo --vary training.head=gif,cosface,partial_fc --seeds 0,1,2 --out heads.html

      gif sweep -c run.yaml --vary tokenization.length=3,4,5 --vary training.gamma=1,3 --seeds 0,1 --paired --jobs 2

      gif sweep -c run.yaml --vary training.head=gif,cosface --seeds 0,1,2 --work-pool gif
    """
    given = Given(config, preset, tuple(overrides or ()))
    swept = run_sweep(given, expand(vary), seeds, jobs=jobs, work_pool=work_pool, dry_run=dry_run)
    sections = swept.summarise(paired=paired)
    show_sections(sections)
    if out and sections:
        write_page(out, sections, shlex.join(["gif", *sys.argv[1:]]))
        print(f"page: {out}")
    refuse_failures(swept.failed)


@dataclass(frozen=True)
class Given:
    """What all runs of a sweep begin with, as on the command line of `gif run`."""

    config: str | None
    preset: str | None
    overrides: tuple[str, ...]

    def settings(self, more: list[str], preset: str | None = None) -> RunConfig:
        """The settings of a run with these overrides too, and with another preset if one is given."""
        chosen = [*self.overrides, *more]
        return leave_out_missing_sets(read_config(self.config, preset or self.preset, chosen, required=True))

    def arguments(self, more: list[str], preset: str | None = None) -> list[str]:
        """The same as arguments of `gif run`."""
        start = ["--config", self.config] if self.config else ["--preset", str(preset or self.preset)]
        return [*start, *(word for override in (*self.overrides, *more) for word in ("--set", override))]


@dataclass(frozen=True)
class Swept:
    """The runs of a sweep, as far as they are finished."""

    variants: list[Variant]
    settings: list[dict[int, RunConfig]]
    """Settings of every variant by seed."""
    failed: int = 0

    @cached_property
    def evaluations(self) -> list[dict[int, Artifact]]:
        """The scores of every variant by seed."""
        found = [
            {seed: find_evaluation(ArtifactStore(given.store), given) for seed, given in of_seeds.items()}
            for of_seeds in self.settings
        ]
        return [{seed: each for seed, each in of_seeds.items() if each} for of_seeds in found]

    @cached_property
    def runs(self) -> list[dict[int, ScoredRun]]:
        """The same, with their lineage."""
        from gif_core.reporting import load_run

        return [
            {seed: load_run(ArtifactStore(given[seed].store), each.ref.key) for seed, each in of_seeds.items()}
            for given, of_seeds in zip(self.settings, self.evaluations, strict=True)
        ]

    def summarise(self, *, paired: bool, base: int = 0) -> list[Section]:
        """A section for each metric; differences are to the variant at position `base`."""
        order = sorted(range(len(self.variants)), key=lambda place: place != base)
        first = self.evaluations[base]
        errors = [compare_identities(first, self.evaluations[place]) for place in order] if paired else None
        return summarise([self.variants[place].name for place in order], [self.runs[place] for place in order], errors)


def run_sweep(
    given: Given, variants: list[Variant], seeds: str, *, jobs: int, work_pool: str | None = None, dry_run: bool
) -> Swept:
    """Run all variants with all seeds; a dry run shows what it would do."""
    numbers = _read_seeds(seeds)
    settings = [
        {seed: given.settings(variant.with_seed(seed), variant.preset) for seed in numbers} for variant in variants
    ]
    reach(settings[0][numbers[0]].store)
    places = [(number, seed) for number in range(len(variants)) for seed in numbers]
    if dry_run:
        _show_runs(variants, {place: settings[place[0]][place[1]] for place in places})
        return Swept(variants, [{} for _ in variants])
    names = {place: f"{variants[place[0]].name}, seed {place[1]}" for place in places}
    if work_pool is not None:
        on_pool = [(names[number, seed], settings[number][seed]) for number, seed in places]
        return Swept(variants, settings, run_on_pool(on_pool, work_pool))
    commands = [
        (names[number, seed], given.arguments(variants[number].with_seed(seed), variants[number].preset))
        for number, seed in places
    ]
    return Swept(variants, settings, run_here(commands, jobs))


def refuse_failures(failed: int) -> None:
    """End with an error if runs failed."""
    if failed:
        raise GifError(f"{failed} runs failed, as said above; the same command runs them again")


def _read_seeds(text: str) -> list[int]:
    try:
        return list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise GifError(f"--seeds takes numbers such as 0,1,2, not {text!r}") from None


def _show_runs(variants: list[Variant], wanted: dict[tuple[int, int], RunConfig]) -> None:
    """A line per run; what an earlier run of the sweep computes counts as stored."""
    table, made = Table("variant", "seed", "would compute"), set[str]()
    for (number, seed), settings in wanted.items():
        plans = plan_stages(ArtifactStore(settings.store), settings)
        fresh = [name for name, plan in plans.items() if plan.action == "run" and plan.ref.key not in made]
        made |= {plan.ref.key for plan in plans.values()}
        table.add_row(escape(variants[number].name), str(seed), ", ".join(fresh) or "nothing: all is stored")
    Console().print(table)


def show_sections(sections: list[Section]) -> None:
    """A table per metric."""
    from gif_core.sweeps.page import HEAD, cells

    for section in sections:
        columns = [Column(name, justify="left" if not place else "right") for place, name in enumerate(HEAD)]
        table = Table(*columns, title=escape(f"{section.set}: {section.metric}"))
        for line in section.lines:
            table.add_row(*map(escape, cells(line)))
        Console().print(table)
