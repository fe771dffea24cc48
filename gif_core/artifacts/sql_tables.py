"""The tables of `gif sql`: which files of a run they are, and those made of the store's small files."""

import json
from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa

from gif_core.artifacts.artifact import Artifact
from gif_core.artifacts.decisions import read_histories
from gif_core.artifacts.runs import list_runs
from gif_core.artifacts.store import ArtifactStore
from schemas.files import (
    CMC_FILE,
    CODE_QUALITY_FILE,
    ERRORS_FILE,
    HELD_OUT_FILE,
    IDENTITIES_FILE,
    LEAST_COHESIVE_FILE,
    METRICS_FILE,
    QUARANTINE_FILE,
    SCORE_TABLE_FILE,
    VECTORS_FILE,
)
from schemas.stages import StageName

CODE_TABLES: Final = ("codes", "nodes", "meta")
PARQUET_TABLES: Final[dict[str, tuple[StageName, str]]] = {
    "identities": ("ingestion", IDENTITIES_FILE),
    "held_out": ("ingestion", HELD_OUT_FILE),
    "quarantine": ("ingestion", QUARANTINE_FILE),
    "vectors": ("embedding", VECTORS_FILE),
    "least_cohesive": ("embedding", LEAST_COHESIVE_FILE),
    "scores": ("evaluation", SCORE_TABLE_FILE),
    "cmc": ("evaluation", CMC_FILE),
    "errors": ("evaluation", ERRORS_FILE),
    "code_quality": ("tokenization", CODE_QUALITY_FILE),
}
STAGE_COLUMNS: Final = pa.schema(
    [
        ("run", pa.string()),
        ("started_at", pa.timestamp("us", "UTC")),
        ("state", pa.string()),
        ("stage", pa.string()),
        ("key", pa.string()),
        ("action", pa.string()),
        ("seconds", pa.float64()),
        ("bytes", pa.int64()),
        ("images_per_second", pa.float64()),
        ("peak_memory", pa.int64()),
    ]
)
COMPARED: Final = pa.struct(
    [("set", pa.string()), ("metric", pa.string())]
    + [(name, pa.float64()) for name in ("champion", "challenger", "low", "high")]
)
DECISIONS: Final = pa.schema(
    [("number", pa.int64())]
    + [(name, pa.string()) for name in ("tag", "kind", "champion", "before", "challenger", "because")]
    + [("made_at", pa.timestamp("us", "UTC"))]
    + [(name, pa.string()) for name in ("ingestion", "evaluation", "run_id")]
    + [("metrics", pa.list_(COMPARED)), ("fine_tuned", pa.bool_())]
)


def known_tables(artifacts: Mapping[StageName, Artifact]) -> set[str]:
    """The tables that a run with these artifacts has."""
    stored = {
        name
        for name, (stage, file) in PARQUET_TABLES.items()
        if stage in artifacts and file in artifacts[stage].names()
    }
    codes = CODE_TABLES if "tokenization" in artifacts else ()
    return {*stored, *codes, *OF_THE_STORE, *(("metrics",) if with_metrics(artifacts) else ())}


def with_metrics(artifacts: Mapping[StageName, Artifact]) -> list[Artifact]:
    """The artifacts that have a file of metrics."""
    return [artifact for artifact in artifacts.values() if METRICS_FILE in artifact.names()]


def _artifact_table(store: ArtifactStore) -> pa.Table:
    rows = [
        {
            "stage": manifest.stage,
            "key": manifest.key,
            "created_at": manifest.created_at,
            "seconds": manifest.seconds,
            "gpu_hours": manifest.gpu_hours,
            "peak_gpu_memory": manifest.peak_gpu_memory or 0,
            "bytes": manifest.size,
            "code_version": manifest.code_version,
            "settings": json.dumps(manifest.settings),
        }
        for manifest in store.manifests()
    ]
    return pa.Table.from_pylist(rows)


def _stage_table(store: ArtifactStore) -> pa.Table:
    """What every run did about every stage, and what it cost."""
    rows = [
        {"run": run.run_id, "started_at": run.started_at, "state": run.state, "stage": stage, **done.model_dump()}
        for run in list_runs(store)
        for stage, done in run.stages.items()
    ]
    return pa.Table.from_pylist(rows, schema=STAGE_COLUMNS)


def _decision_table(store: ArtifactStore) -> pa.Table:
    """The history of champions; metrics as a list, so that `unnest(metrics)` has a row for each."""
    rows = [
        {name: value for name, value in entry.model_dump().items() if name in DECISIONS.names}
        for entry in read_histories(store)
    ]
    return pa.Table.from_pylist(rows, DECISIONS)


OF_THE_STORE: Final[Mapping[str, Callable[[ArtifactStore], pa.Table]]] = {
    "artifacts": _artifact_table,
    "stages": _stage_table,
    "decisions": _decision_table,
}
"""Tables of all runs, made of the store's small files when a query names them."""
TABLES: Final = frozenset({*CODE_TABLES, *PARQUET_TABLES, *OF_THE_STORE, "metrics"})
