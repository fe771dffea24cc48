"""Tables of runs, artifacts and scores for the terminal."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

from rich.table import Table

from flows.cli.output import Console
from gif_core.artifacts import ArtifactStore
from schemas.artifacts import Manifest, RunRecord, StageRecord
from schemas.files import REPORT_FILE
from schemas.run import RunConfig
from schemas.stages import STAGES, StageName

HEADLINES: Mapping[StageName, tuple[str, ...]] = {
    "ingestion": (
        "{identities:,} identities and {held_out:,} held out",
        "{images:,} images",
        "{quarantine:,} refused",
        "{moved:,} relabelled",
    ),
    "embedding": ("{images:,} images → vectors of {dimensions:,} numbers",),
    "separation": ("nearest two: {min_distance_before:.2f} → {min_distance:.2f} apart",),
    "tokenization": ("codes of {length} tokens, each one of {vocab_size}",),
    "training": ("{steps:,} steps", "loss {loss:.3g}", "validation {val_accuracy:.1%}"),
    "evaluation": ("verification {model_accuracy:.2%}",),
    "reporting": ("one page of {bytes:,} bytes",),
}
"""What a person wants to know of each stage; a phrase whose metrics an artifact lacks is left out."""
SYSTEMS = {"raw_pixels": "raw pixels", "encoder": "the encoder's own vectors", "model": "the trained model"}


def show_run(console: Console, store: ArtifactStore, record: RunRecord) -> None:
    """Print the stages of a run, its scores and the path of its report."""
    table = Table("stage", "artifact", "time", "result", title=f"run {record.run_id}: {record.state}")
    for stage in STAGES:
        if stage in record.stages:
            _add_stage(table, store, stage, record.stages[stage])
    console.print(table)
    if record.error:
        console.print(f"{record.current}: {record.error}", style="red", markup=False, highlight=False)
    if "evaluation" in record.stages and (scores := _metrics(store, "evaluation", record.stages["evaluation"])):
        _show_scores(console, scores)
    if "reporting" in record.stages:
        ref = store.ref("reporting", record.stages["reporting"].key)
        if store.find(ref.stage, ref.key):
            report = store.open(ref)
            _show_conclusions(console, store, record, report.manifest)
            console.print(f"report: {report.path(REPORT_FILE)}", soft_wrap=True, highlight=False)


def _show_conclusions(console: Console, store: ArtifactStore, record: RunRecord, report: Manifest) -> None:
    """Print the lines that the report begins with, if it has any."""
    if not report.settings.get("beside"):
        return
    from gif_core.reporting import conclude_report

    for number, line in enumerate(conclude_report(store, RunConfig.model_validate(record.config), report), start=1):
        console.print(f"{number}. {line}", highlight=False, markup=False)


def _add_stage(table: Table, store: ArtifactStore, stage: StageName, done: StageRecord) -> None:
    style = "dim" if done.action == "reused" else ""
    spent = "reused" if done.action == "reused" else f"{done.seconds:.1f} s"
    table.add_row(stage, done.key[:12], spent, headline(stage, _metrics(store, stage, done)), style=style)


def headline(stage: StageName, metrics: Mapping[str, float | int | str]) -> str:
    """What a person wants to know of a stage, in a few words."""
    phrases = []
    for phrase in HEADLINES[stage]:
        with suppress(KeyError, ValueError):
            phrases.append(phrase.format(**metrics))
    return ", ".join(phrases)


def _metrics(store: ArtifactStore, stage: StageName, done: StageRecord) -> Mapping[str, float | int | str]:
    ref = store.ref(stage, done.key)
    return store.open(ref).manifest.metrics if store.find(stage, done.key) else {}


def _show_scores(console: Console, metrics: Mapping[str, float | int | str]) -> None:
    table = Table("verification of held-out identities", "accuracy", title=f"{metrics.get('pairs', 0):,} pairs")
    for system, words in SYSTEMS.items():
        if f"{system}_accuracy" in metrics:
            table.add_row(words, f"{float(metrics[f'{system}_accuracy']):.2%}")
    others = Table("other set", "metric of the model", "")
    for name, value in metrics.items():
        title, _, metric = name.partition("/")
        if metric:
            others.add_row(title, metric, value if isinstance(value, str) else f"{value:.2%}")
    for each in (table, others):
        if each.row_count:
            console.print(each)
    if not table.row_count:
        console.print("No held-out identities were verified: set ingestion.held_out above 0.")


def format_metric(value: float | int | str) -> str:
    """A metric with thousands separators, or with four significant digits."""
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def format_age(moment: datetime) -> str:
    """How long ago a moment was, in the largest fitting unit."""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"
