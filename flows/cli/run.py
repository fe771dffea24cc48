"""`gif run` and `gif demo`: the pipeline from the terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any, Final, Literal

import typer
from rich.markup import escape
from rich.table import Table

from flows.cli.environment import names_server, prepare, share_threads
from flows.cli.milestones import milestones_printed
from flows.cli.options import Config, Overrides, Preset, Verbose, reach, read_config
from flows.cli.output import Console, note
from flows.cli.tables import show_run
from gif_core.artifacts import ArtifactStore, list_runs
from gif_core.planning import (
    check_before_run,
    is_cached,
    leave_out_missing_sets,
    missing_files,
    plan_stages,
    record_cached,
    select_stages,
)
from schemas.artifacts import RunRecord
from schemas.loading import ConfigError, load_config
from schemas.run import RunConfig
from schemas.stages import STAGES, StageName

RIVAL: Final = ["training.head=cosface", "training.scale=16", "training.margin=0.2"]
"""The demo's classifier: scale and margin are the best of those tried with this network."""
FLOWS: Final = {"gif": "flows.pipeline", "demo": "flows.demo"}
BOTH: Final = (
    "Two models are trained side by side on the same faces with the same budget: a CosFace classifier, with a row "
    "per identity, and GIF, with a code per identity."
)


def run(
    config: Config = None,
    preset: Preset = None,
    overrides: Overrides = None,
    only: Annotated[str | None, typer.Option(metavar="STAGE", help="Run this stage only, on stored artifacts.")] = None,
    from_stage: Annotated[
        str | None, typer.Option("--from", metavar="STAGE", help="Begin at this stage, on stored artifacts.")
    ] = None,
    refresh: Annotated[
        list[str] | None,
        typer.Option(metavar="STAGE", help="Compute this stage again even if it is stored; repeatable."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would run and why, without running it.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Run the pipeline, or a part of it, and reuse stored artifacts.

    Stages: ingestion, embedding, separation, tokenization, training, evaluation, reporting.

    Examples:
      gif run --preset demo --set tokenization.length=4

      gif run --config run.yaml --from training --set training.gamma=3

      gif run --config run.yaml --refresh tokenization --dry-run
    """
    given = read_config(config, preset, overrides, required=True)
    settings = leave_out_missing_sets(given)
    reach(settings.store)
    only_stage, first_stage = _stage(only, "--only"), _stage(from_stage, "--from")
    again = [name for text in refresh or [] if (name := _stage(text, "--refresh"))]
    selected = select_stages(only_stage, first_stage, again)
    for warning in check_before_run(ArtifactStore(settings.store), settings, selected):
        note(warning)
    left_out = _left_out_sets(given, settings) if "evaluation" in selected else ""
    if dry_run:
        _show_plan(settings, selected, again)
        _show_sets(settings, selected, left_out)
        return
    if left_out:
        note(left_out)
    if not _reuse_everything(settings, selected, again):
        _run_flow(settings, verbose=verbose, only=only_stage, from_stage=first_stage, refresh=again)


def demo(verbose: Verbose = False) -> None:
    """Run the whole pipeline on synthetic faces; takes minutes on a laptop's CPU.

    It trains two models with the same budget, a CosFace classifier and GIF, and ends with what they show.

    Example:
      gif demo
    """
    settings, rival = load_config("demo"), load_config("demo", RIVAL)
    if _is_scored(rival) and _reuse_everything(settings, STAGES, []):
        return
    Console(stderr=True).print(BOTH, style="dim")
    share_threads(2)
    with _continues(settings):
        record = _load_flow("demo", verbose=verbose)(settings, rival)
    show_run(Console(), ArtifactStore(settings.store), record)


def _is_scored(config: RunConfig) -> bool:
    """Whether all stages but the report are stored."""
    selected = STAGES[: STAGES.index("reporting")]
    return is_cached(plan_stages(ArtifactStore(config.store), config, selected), selected)


def _reuse_everything(config: RunConfig, selected: tuple[StageName, ...], refresh: list[StageName]) -> bool:
    """Record the run and show it, if all its stages are stored and no Prefect server would show it."""
    if refresh or names_server():
        return False
    store = ArtifactStore(config.store)
    plans = plan_stages(store, config, selected)
    if not is_cached(plans, selected):
        return False
    show_run(Console(), store, record_cached(store, config, plans, selected))
    return True


def _run_flow(settings: RunConfig, *, verbose: bool, **options: Any) -> None:
    """Run the flow `gif` and show what it did."""
    with _continues(settings):
        record = _load_flow("gif", verbose=verbose)(settings, **options)
    show_run(Console(), ArtifactStore(settings.store), record)


@contextmanager
def _continues(settings: RunConfig) -> Iterator[None]:
    """Print the milestones of a run; after Ctrl-C, say that the same command continues."""
    try:
        with milestones_printed():
            yield
    except KeyboardInterrupt:
        note(f"interrupted{_where(settings)}. What is finished is stored: the same command continues from there.")
        raise typer.Exit(130) from None


def _where(settings: RunConfig) -> str:
    """The stage that was interrupted, by the record of the newest run with these settings."""
    given = settings.model_dump(mode="json")
    current = next((run.current for run in list_runs(ArtifactStore(settings.store)) if run.config == given), None)
    return f" in {current}" if current else ""


def _stage(text: str | None, option: str) -> StageName | None:
    for stage in STAGES:
        if text == stage:
            return stage
    if text is None:
        return None
    raise ConfigError(f"{option} {text}: there is no such stage; there are: {', '.join(STAGES)}")


def _load_flow(name: Literal["gif", "demo"], *, verbose: bool) -> Callable[..., RunRecord]:
    """A flow with a Prefect server to report to; imported only now, as Prefect takes seconds."""
    prepare(verbose=verbose)
    notes = Console(stderr=True)
    with notes.status("Loading …"):
        from flows.cli.server import ensure_server

        flow: Callable[..., RunRecord] = getattr(import_module(FLOWS[name]), name)
    ensure_server(notes)
    return flow


def _left_out_sets(given: RunConfig, settings: RunConfig) -> str:
    """Which sets are left out, and where their files would be."""
    missing = [each for each in given.evaluation.sets if each not in settings.evaluation.sets]
    places = ", ".join(f"{each.title} ({missing_files(each)[0][1]})" for each in missing)
    return f"evaluation leaves out what is not there: {places}" if places else ""


def _show_sets(settings: RunConfig, selected: tuple[StageName, ...], left_out: str) -> None:
    if "evaluation" in selected:
        scored = ", ".join(each.title for each in settings.evaluation.sets)
        Console().print(escape("; ".join(filter(None, [f"evaluation scores {scored}", left_out]))))


def _show_plan(config: RunConfig, selected: tuple[StageName, ...], refresh: list[StageName]) -> None:
    table = Table("stage", "artifact", "would", "because", title=f"dry run on {config.store}")
    plans = plan_stages(ArtifactStore(config.store), config, selected, refresh)
    for stage, plan in plans.items():
        would = plan.action if stage in selected else "be left alone"
        style = "bold" if would == "run" else "dim"
        table.add_row(stage, plan.ref.key[:12], would, escape(plan.reason), style=style)
    Console().print(table)
