"""`gif faces audit`: identities and images whose labels are wrong."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from flows.cli.encoders import Device
from flows.cli.models import note_model
from flows.cli.options import Run, Store
from flows.cli.output import Console
from flows.cli.selection import SelectionError
from gif_core.artifacts import Artifact, ArtifactMissingError, ArtifactStore, find_model, find_run, run_artifacts
from schemas.embedding import EmbeddingConfig

if TYPE_CHECKING:
    from gif_core.auditing import Audit, Network
    from gif_core.runtime import Progress


def audit(
    store: Store,
    output: Annotated[
        Path, typer.Option("--output", "-o", file_okay=False, help="Folder for the page, the list and the summary.")
    ] = Path("audit"),
    run: Run = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="Compare by this model: a tag (champion), training/KEY or the first digits of the key, or a run id.",
            show_default="that of the run, or its encoder if it has none",
        ),
    ] = None,
    encoder: Annotated[
        bool, typer.Option("--encoder", help="Compare by the encoder of the run, even if the run has a model.")
    ] = False,
    min_precision: Annotated[
        float,
        typer.Option(min=0.5, max=1, help="Estimated share of duplicate and flipped findings that should be right."),
    ] = 0.9,
    min_images: Annotated[
        int, typer.Option(min=2, help="Images from which a second person of an identity gets a label of its own.")
    ] = 3,
    pictures: Annotated[int, typer.Option(min=0, max=1000, help="Findings of each kind on the page.")] = 40,
    device: Device = "auto",
) -> None:
    """Find wrong labels among the faces of a run: a page of pictures, and a list that ingestion can apply.

    duplicate: two identities are one person; both get one label.

    mixed: an identity holds two persons; the second gets a label.

    flipped: an image belongs to another identity; it gets that label.

    stray: an image is unlike its identity, and no other is surely its own; it is left out.

    Thresholds are found on the faces themselves. Look at audit.html, remove the rows of relabel.csv that you disagree
    with, and run again with ingestion.relabel. It takes several files: an audit of relabelled faces gives a second one.

    Examples:
      gif faces audit --output audit

      gif faces audit --model champion --min-precision 0.95

      gif run --config run.yaml --set ingestion.relabel=audit/relabel.csv
    """
    from gif_core.auditing import AuditedFaces, audit_faces

    if model and encoder:
        raise SelectionError("give --model or --encoder, not both")
    opened = ArtifactStore(store)
    artifacts = run_artifacts(opened, run)
    if "ingestion" not in artifacts:
        raise ArtifactMissingError("this run has no faces")
    given = AuditedFaces.open(artifacts["ingestion"])
    trained = None if encoder else artifacts.get("training")
    network = _open_network(opened, run, model, trained, device)
    done = _show_progress(audit_faces(given, network, output, precision=min_precision, min_images=min_images))
    done.write(output, pictures=pictures)
    _report(done, output)


def _open_network(
    store: ArtifactStore, run: str | None, model: str | None, trained: Artifact | None, device: str
) -> Network:
    """The model that is named, else the one that the run `trained`, else the encoder of the run."""
    from gif_core.auditing import EncoderNetwork, ModelNetwork

    if model is not None:
        found = find_model(store, model)
        note_model(found.artifact.ref, found.reason)
        return ModelNetwork(found.artifact, device)
    if trained is not None:
        note_model(trained.ref, "of the run whose faces are audited (--encoder compares by its encoder)")
        return ModelNetwork(trained, device)
    return EncoderNetwork(EmbeddingConfig.model_validate(find_run(store, run).config["embedding"]), device)


def _show_progress(steps: Generator[Progress, None, Audit]) -> Audit:
    """Run the audit with a bar on stderr."""
    console = Console(stderr=True)
    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("features")
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                done: Audit = end.value
                return done
            bar.update(task, description=step.activity, completed=step.done, total=step.total)


def _report(done: Audit, output: Path) -> None:
    from gif_core.auditing import KINDS, LIST_FILE, PAGE_FILE

    summary = done.summary()
    table = Table("found", "", "images", "what it is", title=f"labels compared by {summary['network']}")
    for kind, words in KINDS.items():
        table.add_row(kind, f"{summary['found'][kind]:,}", f"{summary['found_images'][kind]:,}", words)
    Console().print(table)
    print(f"{output / PAGE_FILE}: pictures of what was found")
    print(f"{output / LIST_FILE}: {summary['moved']:,} images get another label, {summary['dropped']:,} are left out")
    if summary["moved"] or summary["dropped"]:
        print(f"apply it: gif run … --set ingestion.relabel={output / LIST_FILE}")
