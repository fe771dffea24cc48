"""The runs of a sweep: their settings, running those that are missing, and what they scored."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from flows.cli.options import reach, read_config
from flows.cli.output import Console, note
from flows.cli.sweep_runs import find_fault, run_here, run_on_pool
from gif_core.artifacts import ArtifactStore
from gif_core.planning import leave_out_missing_sets, plan_stages
from gif_core.sweeps import Variant, compare_identities, find_evaluation, summarise
from schemas.errors import GifError

if TYPE_CHECKING:
    from gif_core.artifacts import Artifact
    from gif_core.reporting import ScoredRun
    from gif_core.sweeps import Section
    from schemas.run import RunConfig


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
    numbers = read_seeds(seeds)
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
    here = [
        (
            names[number, seed],
            settings[number][seed],
            given.arguments(variants[number].with_seed(seed), variants[number].preset),
        )
        for number, seed in places
    ]
    return Swept(variants, settings, run_here(here, jobs))


def read_seeds(text: str) -> list[int]:
    """The numbers of `--seeds`."""
    try:
        return list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise GifError(f"--seeds takes numbers such as 0,1,2, not {text!r}") from None


def _show_runs(variants: list[Variant], wanted: dict[tuple[int, int], RunConfig]) -> None:
    """A line per run; what an earlier run of the sweep computes counts as stored."""
    table, made, faults = Table("variant", "seed", "would compute"), set[str](), list[str]()
    for (number, seed), settings in wanted.items():
        if fault := find_fault(settings):
            table.add_row(escape(variants[number].name), str(seed), "cannot run, see below")
            faults.append(fault)
            continue
        plans = plan_stages(ArtifactStore(settings.store), settings)
        fresh = [name for name, plan in plans.items() if plan.action == "run" and plan.ref.key not in made]
        made |= {plan.ref.key for plan in plans.values()}
        table.add_row(escape(variants[number].name), str(seed), ", ".join(fresh) or "nothing: all is stored")
    Console().print(table)
    for fault in dict.fromkeys(faults):
        note(fault)
