"""What each section of the report shows, read from the artifacts of a run."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from gif_core import figures
from gif_core.artifacts import Artifact
from gif_core.contact_sheet import contact_sheet
from gif_core.faces import Faces
from gif_core.figures import Curve
from gif_core.formatting import plain_name
from gif_core.scores import read_scores
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
        "trained": _count_people(inputs["ingestion"], "identities"),
        "held_out": _count_people(inputs["ingestion"], "held_out"),
        "codes": inputs["tokenization"].manifest.metrics,
        "accuracy": _read_accuracies(inputs["evaluation"]),
        "untrained_encoder": config.embedding.pretrained == "random",
    }


def show_scores(config: RunConfig, inputs: Inputs) -> Shown:
    """Verification of people who were held out: a table and the ROC."""
    evaluation = inputs["evaluation"]
    shown = next((name for name, found in _read_sets(evaluation).items() if found["kind"] == "held_out"), None)
    scores = _read_sets(evaluation)[shown]["subjects"] if shown else {}
    if not scores:
        return {"scores": {}}
    rates = [name for name in next(iter(scores.values())) if name.startswith("tar_at_far_")]
    curves = read_curves(evaluation.path("roc.parquet"), "subject", "far", "tar", [("set", "=", shown)])
    return {
        "scores": scores,
        "notes": {"encoder": _describe_encoder(config), "model": config.training.backbone},
        "rates": {name: float(name.removeprefix("tar_at_far_")) for name in rates},
        "pairs": evaluation.manifest.metrics["pairs"],
        "roc": figures.draw_roc({plain_name(subject): curves[subject] for subject in scores}),
    }


def show_faces(config: RunConfig, inputs: Inputs) -> Shown:
    """Some people of the first shard, and how many images everybody has."""
    ingestion = inputs["ingestion"]
    people = pq.read_table(ingestion.path("identities.parquet"))
    counts_N = people["num_samples"].to_numpy()
    labels = people["label"]
    faces = Faces([ingestion.path(ingestion.names("identities-")[0])])
    people_shown = _choose_people(faces)
    return {
        "strips": [_show_strip(faces, person, labels[person].as_py(), counts_N[person]) for person in people_shown],
        "smallest": counts_N.min(),
        "median": np.median(counts_N),
        "largest": counts_N.max(),
        "quarantined": pq.read_metadata(ingestion.path("quarantine.parquet")).num_rows,
        "counts": figures.draw_sample_counts(counts_N),
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
        "encoder": _describe_encoder(config),
        "metrics": separation.manifest.metrics,
        "embedding": inputs["embedding"].manifest.metrics,
        "least_cohesive": pq.read_table(inputs["embedding"].path("least_cohesive.parquet"))[
            :LEAST_COHESIVE
        ].to_pylist(),
        "curves": figures.draw_separation(gap, shown),
        "trade_off": figures.draw_trade_off(gap_there, kept.y, kept.x.tolist()),
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
    return figures.draw_distances(edges, before, after) if (before + after).any() else None


def show_training(config: RunConfig, inputs: Inputs) -> Shown:
    """The curves of training."""
    curves = read_curves(inputs["training"].path("metrics.parquet"), "name", "step", "value")
    losses = {"loss": "Total", "loss_codes": "Codes", "loss_alignment": "Alignment"}
    tokens = {name: f"Token {name.partition('/')[2]}" for name in curves if name.startswith("token_accuracy/")}
    accuracies = tokens | {"code_accuracy": "Whole code"}
    return {
        "metrics": inputs["training"].manifest.metrics,
        "gamma": config.training.gamma,
        "losses": figures.draw_curves(_rename(curves, losses), "Loss"),
        "accuracies": figures.draw_curves(_rename(curves, accuracies), "Images predicted right", share=True),
        "alignment": figures.draw_curves(_rename(curves, {"alignment": "z·h"}), "Cosine z·h"),
        "speed": figures.draw_curves(_rename(curves, {"images_per_second": "Speed"}), "Images per second"),
    }


def show_artifacts(config: RunConfig, inputs: Inputs) -> Shown:
    """Where everything came from."""
    return {"manifests": [inputs[stage].manifest for stage in STAGES if stage in inputs]}


def show_reproduce(config: RunConfig, inputs: Inputs) -> Shown:
    """The whole configuration, as a file that `gif run` takes."""
    settings = config.model_dump(mode="json", exclude={"preset", "store", "execution"})
    return {"yaml": yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)}


def read_curves(path: Path, name: str, x: str, y: str, filters: Any = None) -> dict[str, Curve]:
    """The curve of every name in a long table, or in those rows of it, in the order of their first rows."""
    table = pq.read_table(path, columns=[name, x, y], filters=filters)
    parts = {value: table.filter(pc.equal(table[name], value)) for value in table[name].unique().to_pylist()}
    return {value: Curve(part[x].to_numpy(), part[y].to_numpy()) for value, part in parts.items()}


def _rename(curves: Mapping[str, Curve], names: Mapping[str, str]) -> dict[str, Curve]:
    return {shown: curves[name] for name, shown in names.items()}


def _count_people(ingestion: Artifact, split: str) -> dict[str, int]:
    counts = pq.read_table(ingestion.path(f"{split}.parquet"), columns=["num_samples"])["num_samples"]
    return {"identities": len(counts), "images": pc.sum(counts).as_py() or 0}


def _read_sets(evaluation: Artifact) -> dict[str, Mapping[str, Any]]:
    return read_scores(evaluation.path("scores.json"))


def _read_accuracies(evaluation: Artifact) -> dict[str, float | int | str]:
    metrics = evaluation.manifest.metrics
    return {name.removesuffix("_accuracy"): value for name, value in metrics.items() if name.endswith("_accuracy")}


def _describe_encoder(config: RunConfig) -> str:
    weights = "untrained weights" if config.embedding.pretrained == "random" else config.embedding.pretrained
    return f"{config.embedding.model}, {weights}"


def _choose_people(faces: Faces) -> list[int]:
    """People of these shards, from the one with the most faces to the one with the fewest."""
    people, counts = np.unique(faces.labels_N, return_counts=True)
    ranked = people[np.argsort(-counts, kind="stable")]
    places = np.linspace(0, len(ranked) - 1, min(PEOPLE_SHOWN, len(ranked)))
    return [int(person) for person in ranked[places.astype(np.int64)]]


def _show_strip(faces: Faces, person: int, label: str, count: int) -> Shown:
    """Some faces of a person as an inline image, and how much of a full row they take."""
    image = base64.b64encode(contact_sheet(faces, [person], FACES_SHOWN)).decode()
    width = min(int(np.sum(faces.labels_N == person)), FACES_SHOWN) / FACES_SHOWN
    return {"label": label, "count": count, "image": f"data:image/jpeg;base64,{image}", "width": width}
