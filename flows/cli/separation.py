"""`gif separation`: how far apart softmax centroids and code vectors are, for any number of runs (Figure 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

from flows.cli.options import Store
from flows.cli.output import Console, note
from gif_core.artifacts import ArtifactMissingError, ArtifactStore, find_model, list_runs, run_artifacts, with_ancestors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gif_core.artifacts import Artifact
    from schemas.stages import StageName


def separation(
    store: Store,
    runs: Annotated[list[str], typer.Argument(metavar="RUN…", help="Run ids, or models as for --model.")],
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Show the smallest, mean and largest cosine distance of all pairs of softmax centroids or code vectors.

    Code vectors H are shown before and after separation, after training if they learned, and where the learned map puts
    them; heads with a row per identity have centroids. Of more than 32,768 rows a fixed sample is measured.

    Examples:
      gif separation champion

      gif separation 20260301-1200 20260301-1830
    """
    from gif_core.runtime import pick_device
    from gif_core.training import measure_centroids

    opened, chosen = ArtifactStore(store), pick_device(device)
    numbers = [Column(name, justify="right") for name in ("vectors", "min", "mean", "max")]
    table = Table("run", "cosine distance of all pairs of", *numbers)
    for run in runs:
        found = _find(opened, run)
        for row in measure_centroids(found["separation"], found.get("training"), chosen):
            scores = (f"{value:.4f}" for value in (row.scores.min, row.scores.mean, row.scores.max))
            table.add_row(escape(run), escape(row.name), f"{row.vectors:,}", *scores)
        if "training" not in found:
            note(f"{run} has no trained model: only what separation made is shown")
        table.add_section()
    Console().print(table)


def _find(store: ArtifactStore, name: str) -> Mapping[StageName, Artifact]:
    """The artifacts of a run, or those that a model was made from."""
    is_run = any(run.run_id.startswith(name) for run in list_runs(store))
    found = run_artifacts(store, name) if is_run else _with_sources(store, name)
    if "separation" not in found:
        raise ArtifactMissingError(f"{name} has no code vectors in {store.storage.url}: finish it with 'gif run'")
    return found


def _with_sources(store: ArtifactStore, name: str) -> Mapping[StageName, Artifact]:
    return with_ancestors(store, find_model(store, name).artifact)
