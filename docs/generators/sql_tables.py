"""The page of SQL tables: names from the code that opens them, columns from the schemas that their writers use."""

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import duckdb
import numpy as np
import pyarrow as pa
from markdown_pieces import code, table

from gif_core.artifacts import metrics
from gif_core.artifacts import sql_tables as tables
from gif_core.embedding import mean_vectors
from gif_core.evaluation import results
from gif_core.ingestion import conversion
from gif_core.tokenization import code_table, codes, quality
from schemas.artifacts import Manifest
from schemas.files import CODES_DUCKDB_FILE

INTRODUCTION = """# SQL tables

Generated from the code. `gif sql "SELECT …"` and `ArtifactStore.sql("SELECT …")` read these tables of one run, without
changing anything; `gif sql` alone lists those that the run has. [Ask questions in SQL](../how-to/sql.md) has examples.
"""
MEANINGS = {
    "codes": "One row per identity with its code; `c1` … `cl` are the tokens, `leaf` the code as one number.",
    "nodes": "One row per node of the code tree: how many identities are below it, and how many may be.",
    "meta": "Length and vocab size of the codes, the number of identities, and what else describes the table.",
    "code_quality": "One row per level: how full it is, what the capacity bound costs, and how often near neighbours "
    "share a prefix, against chance.",
    "identities": "The identities to train on. `source` is the position in `ingestion.sources`.",
    "held_out": "The identities that are kept aside for evaluation.",
    "quarantine": "Images and identities that were refused, with the reason.",
    "vectors": "One row per identity: its vector (Eq. 3), and the mean cosine of its images to it (`cohesion`).",
    "least_cohesive": "The identities whose images agree least.",
    "metrics": "Every metric that training and evaluation recorded, by step.",
    "scores": "Every score of every evaluation set, with protocol, flags and the model's key.",
    "cmc": "Share of probes whose own identity is among the first `rank` (1:N).",
    "errors": "The most confident errors of every pair set, with both images.",
    "artifacts": "Every artifact in the store, not only those of the run.",
    "stages": "What every run of the store did about every stage, and what it cost.",
    "decisions": "Every decision about a champion; `unnest(metrics, recursive := true)` has a row per compared metric.",
}


def page() -> str:
    """The whole page."""
    found = columns()
    if missing := set(found) ^ set(MEANINGS):
        raise ValueError(f"docs/generators/sql_tables.py and the tables of the code differ in {sorted(missing)}")
    sections = [f"## {name}\n\n{MEANINGS[name]}\n\n{table(('column', 'type'), found[name])}" for name in MEANINGS]
    return "\n".join([INTRODUCTION, *sections])


def columns() -> dict[str, list[tuple[str, str]]]:
    """Columns and types of every table, as DuckDB names them."""
    connection = duckdb.connect(":memory:")
    found = _code_tables()
    for name, schema in _schemas().items():
        connection.register(name, schema.empty_table())
        found[name] = [(code(column), kind) for column, kind, *_ in connection.sql(f"DESCRIBE {name}").fetchall()]
    return found


def _schemas() -> dict[str, pa.Schema]:
    schemas = {
        "identities": conversion.IDENTITIES,
        "held_out": conversion.IDENTITIES,
        "quarantine": conversion.QUARANTINE,
        "vectors": mean_vectors._table(0, np.ones(1, int), np.ones((1, 512), np.float32), np.ones(1)).schema,
        "least_cohesive": mean_vectors.Summary().least_cohesive({}).schema,
        "code_quality": quality.SCHEMA,
        "scores": results.SCORES,
        "cmc": results.CMC,
        "errors": results.ERRORS,
    }
    if schemas.keys() != tables.PARQUET_TABLES.keys():
        raise ValueError("docs/generators/sql_tables.py and PARQUET_TABLES of gif_core/artifacts/sql_tables.py differ")
    of_the_store = {"stages": tables.STAGE_COLUMNS, "decisions": tables.DECISIONS, "artifacts": _artifacts()}
    return schemas | {"metrics": metrics.METRICS} | of_the_store


def _artifacts() -> pa.Schema:
    """The columns of one artifact."""
    manifest = Manifest.model_construct(
        stage="ingestion", key="", created_at=datetime.now(UTC), seconds=0.0, files=(), code_version="", settings={}
    )
    return tables.OF_THE_STORE["artifacts"](SimpleNamespace(manifests=lambda *_: [manifest])).schema  # type: ignore[arg-type]


def _code_tables() -> dict[str, list[tuple[str, str]]]:
    """The columns of a code table of nine identities."""
    identities = pa.table({"identity_id": range(9), "label": [str(each) for each in range(9)], "num_samples": [1] * 9})
    shape = codes.CodeShape(2, 3)
    tokens = np.array([divmod(each, 3) for each in range(9)], np.int32)
    with tempfile.TemporaryDirectory() as folder:
        code_table.write_code_table(Path(folder), tokens, shape, identities)
        with duckdb.connect(Path(folder) / CODES_DUCKDB_FILE, read_only=True) as connection:
            return {
                name: [(code(column), kind) for column, kind, *_ in connection.sql(f"DESCRIBE {name}").fetchall()]
                for name in tables.CODE_TABLES
            }
