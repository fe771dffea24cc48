"""Tuning before a sweep: every variant gets the same random trials, on identities that the sweep does not verify."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from flows.cli.output import note
from flows.cli.swept import Given, Swept, read_seeds, run_sweep
from gif_core.sweeps import Variant, draw_trials, with_drawn
from schemas.errors import GifError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gif_core.sweeps import Draw, Drawn

TITLE: Final = "held_out"
DEVELOPMENT: Final = (
    f"evaluation.sets=[{{kind: {TITLE}}}]",
    "evaluation.systems=[model]",
    "evaluation.identification=null",
)
"""Trials verify pairs of held-out identities, and nothing else, whatever a variant evaluates."""


@dataclass(frozen=True)
class Trials:
    """The values that a variant tried, and what came of them."""

    variant: Variant
    drawn: Sequence[Drawn]
    accuracies: Sequence[float | None]
    """On pairs of development identities; None where a trial failed."""

    @property
    def best(self) -> int | None:
        """The place of the best trial; None if all failed."""
        done = [place for place, accuracy in enumerate(self.accuracies) if accuracy is not None]
        return max(done, key=lambda place: self.accuracies[place] or 0.0, default=None)


def run_tuned(
    given: Given,
    variants: list[Variant],
    draws: Sequence[Draw],
    trials: int,
    seeds: str,
    *,
    jobs: int,
    work_pool: str | None = None,
    dry_run: bool,
) -> tuple[Swept, list[Trials]]:
    """For one variant after another: the trials with the first seed, then the runs with the values of the best."""
    drawn, tried, all_runs = draw_trials(draws, trials), list[Trials](), list[Swept]()
    for variant in variants:
        found, failed = _try(
            given, variant, drawn, read_seeds(seeds)[0], jobs=jobs, work_pool=work_pool, dry_run=dry_run
        )
        tried.append(found)
        if found.best is None:
            note(f"{variant.name}: its runs follow, with the values of the best" if dry_run else describe_trials(found))
            all_runs.append(Swept([variant], [{}], failed))
            continue
        note(describe_trials(found))
        chosen = [with_drawn(variant, drawn[found.best])]
        swept = run_sweep(given, chosen, seeds, jobs=jobs, work_pool=work_pool, dry_run=dry_run)
        all_runs.append(replace(swept, failed=swept.failed + failed))
    joined = Swept(
        [variant for swept in all_runs for variant in swept.variants],
        [settings for swept in all_runs for settings in swept.settings],
        sum(swept.failed for swept in all_runs),
    )
    return joined, tried


def _try(
    given: Given,
    variant: Variant,
    drawn: Sequence[Drawn],
    seed: int,
    *,
    jobs: int,
    work_pool: str | None,
    dry_run: bool,
) -> tuple[Trials, int]:
    """The trials of a variant, and how many failed."""
    trials = [
        _on_development(given, with_drawn(variant, values), f"{variant.name}, trial {number}")
        for number, values in enumerate(drawn, start=1)
    ]
    swept = run_sweep(given, trials, str(seed), jobs=jobs, work_pool=work_pool, dry_run=dry_run)
    accuracies = [runs[seed].scores.get(TITLE, {}).get("accuracy") if seed in runs else None for runs in swept.runs]
    return Trials(variant, drawn, accuracies), swept.failed


def _on_development(given: Given, variant: Variant, label: str) -> Variant:
    """The variant without the identities that its runs verify, and with as many others held out."""
    ingestion = given.settings(list(variant.overrides), variant.preset).ingestion
    share, end = ingestion.held_out, ingestion.shares[1]
    if not share:
        raise GifError("trials need development identities: set ingestion.held_out above 0, for instance to 0.1")
    if end + share >= 1:
        raise GifError(
            f"trials hold out as many identities again: ingestion.held_out={share} leaves none to train on, lower it"
        )
    left_out = f"ingestion.left_out={end}"
    return replace(variant, overrides=(*variant.overrides, left_out, *DEVELOPMENT), label=label)


def describe_trials(trials: Trials) -> str:
    """A line on what was tried and what is best."""
    shown = ", ".join("failed" if each is None else f"{100 * each:.2f} %" for each in trials.accuracies)
    if trials.best is None:
        return f"{trials.variant.name}: no trial has scores ({shown})"
    tuned = with_drawn(trials.variant, trials.drawn[trials.best]).overrides
    values = ", ".join(each for each in tuned if each not in trials.variant.overrides)
    return f"{trials.variant.name}: of trials with {shown}, number {trials.best + 1} is best: {values}"
