"""What each section of the report shows, read from the artifacts of a run."""

import base64
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from gif_core.artifacts import Artifact
from gif_core.images import Faces, draw_contact_sheet
from gif_core.reporting import plots
from gif_core.reporting.plots import Curve
from gif_core.reporting.sections.scores import headline_scores
from gif_core.reporting.sections.tables import count_identities, describe_encoder
from schemas.run import RunConfig
from schemas.stages import STAGES, StageName

Inputs = Mapping[StageName, Artifact]
Shown = dict[str, Any]

PEOPLE_SHOWN: Final = 6
FACES_SHOWN: Final = 8
LEAST_COHESIVE: Final = 5


def show_glance(config: RunConfig, inputs: Inputs) -> Shown:
    """The run in a few figures."""
    return {
        "title": config.reporting.title,
        "finished": max(artifact.manifest.created_at for artifact in inputs.values()),
        "trained": count_identities(inputs["ingestion"], "identities"),
        "held_out": count_identities(inputs["ingestion"], "held_out"),
        "codes": inputs["tokenization"].manifest.metrics,
        "scores": list(headline_scores(inputs["evaluation"])),
        "raw_pixels": inputs["evaluation"].manifest.metrics.get("raw_pixels_accuracy"),
        "training": inputs["training"].manifest,
        "head": config.training.head,
        "backbone": config.training.backbone,
        "seconds": sum(artifact.manifest.seconds for artifact in inputs.values()),
        "untrained_encoder": config.embedding.pretrained == "random",
    }


def show_faces(config: RunConfig, inputs: Inputs) -> Shown:
    """Some identities of the first shard, and how many images all identities has."""
    ingestion = inputs["ingestion"]
    identities = pq.read_table(ingestion.path("identities.parquet"))
    counts_N = identities["num_samples"].to_numpy()
    labels = identities["label"]
    faces = Faces([ingestion.path(ingestion.names("identities-")[0])])
    identities_shown = _choose_identities(faces)
    return {
        "strips": [_show_strip(faces, person, labels[person].as_py(), counts_N[person]) for person in identities_shown],
        "smallest": counts_N.min(),
        "median": np.median(counts_N),
        "largest": counts_N.max(),
        "quarantined": pq.read_metadata(ingestion.path("quarantine.parquet")).num_rows,
        "counts": plots.draw_sample_counts(counts_N),
    }


def show_vectors(config: RunConfig, inputs: Inputs) -> Shown:
    """How far the code vectors were moved apart, and what that cost."""
    separation = inputs["separation"]
    curve = pq.read_table(separation.path("curve.parquet"))
    gap, kept = _measured(curve, "gap"), _measured(curve, "neighbours_kept")
    ranks = _measured(curve, "spearman")
    shown = {"Neighbours kept": kept} | ({"Rank correlation": ranks} if len(ranks.x) else {})
    gap_there = gap.y[np.searchsorted(gap.x, kept.x)]
    return {
        "encoder": describe_encoder(config),
        "metrics": separation.manifest.metrics,
        "embedding": inputs["embedding"].manifest.metrics,
        "least_cohesive": pq.read_table(inputs["embedding"].path("least_cohesive.parquet"))[
            :LEAST_COHESIVE
        ].to_pylist(),
        "curves": plots.draw_separation(gap, shown),
        "trade_off": plots.draw_trade_off(gap_there, kept.y, kept.x.tolist()),
        "distances": _draw_distances(separation),
    }


def _measured(curve: pa.Table, name: str) -> Curve:
    """A column over the epochs at which it was measured; empty when the table has no such column."""
    if name not in curve.column_names:
        return Curve(np.empty(0), np.empty(0))
    there = curve.filter(pc.is_valid(curve[name]))
    return Curve(there["epoch"].to_numpy(), there[name].cast("float64").to_numpy())


def _draw_distances(separation: Artifact) -> Any:
    """Nothing when the artifact has no histogram, or nobody has a pair."""
    if "distances.parquet" not in separation.names():
        return None
    table = pq.read_table(separation.path("distances.parquet"))
    edges, before, after = (table[name].cast("float64").to_numpy() for name in ("distance", "before", "after"))
    return plots.draw_distances(edges, before, after) if (before + after).any() else None


def show_artifacts(config: RunConfig, inputs: Inputs) -> Shown:
    """Where everything came from."""
    return {"manifests": [inputs[stage].manifest for stage in STAGES if stage in inputs]}


def show_reproduce(config: RunConfig, inputs: Inputs) -> Shown:
    """The whole configuration, as a file that `gif run` takes."""
    settings = config.model_dump(mode="json", exclude={"preset", "store", "execution"})
    return {"yaml": yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)}


def _choose_identities(faces: Faces) -> list[int]:
    """Identities of these shards, from the one with the most faces to the one with the fewest."""
    identities, counts = np.unique(faces.labels_N, return_counts=True)
    ranked = identities[np.argsort(-counts, kind="stable")]
    places = np.linspace(0, len(ranked) - 1, min(PEOPLE_SHOWN, len(ranked)))
    return [int(person) for person in ranked[places.astype(np.int64)]]


def _show_strip(faces: Faces, person: int, label: str, count: int) -> Shown:
    """Some faces of a person as an inline image, and how much of a full row they take."""
    image = base64.b64encode(draw_contact_sheet(faces, [person], FACES_SHOWN)).decode()
    width = min(int(np.sum(faces.labels_N == person)), FACES_SHOWN) / FACES_SHOWN
    return {"label": label, "count": count, "image": f"data:image/jpeg;base64,{image}", "width": width}
