"""SQL over the artifacts of a run: read-only, on the files themselves."""

import json
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from gif_core.artifacts.artifact import Artifact
from gif_core.artifacts.decisions import read_histories
from gif_core.artifacts.errors import ArtifactMissingError
from gif_core.artifacts.runs import find_run, list_runs
from gif_core.artifacts.store import ArtifactStore
from schemas.errors import GifError
from schemas.stages import StageName

Tables = dict[str, tuple[StageName, str]]
CODE_TABLES: Final = ("codes", "nodes", "meta")
PARQUET_TABLES: Final[Tables] = {
    "identities": ("ingestion", "identities.parquet"),
    "held_out": ("ingestion", "held_out.parquet"),
    "quarantine": ("ingestion", "quarantine.parquet"),
    "vectors": ("embedding", "vectors.parquet"),
    "least_cohesive": ("embedding", "least_cohesive.parquet"),
    "scores": ("evaluation", "scores.parquet"),
    "cmc": ("evaluation", "cmc.parquet"),
    "errors": ("evaluation", "errors.parquet"),
    "code_quality": ("tokenization", "quality.parquet"),
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
READING: Final = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}


class QueryError(GifError, ValueError):
    """What DuckDB says about a query."""


def open_database(store: ArtifactStore, run: str | None = None) -> duckdb.DuckDBPyConnection:
    """An in-memory database of views over a run's artifacts; it can reach nothing else on the machine."""
    artifacts = run_artifacts(store, run)
    connection = duckdb.connect(":memory:")
    if "tokenization" in artifacts:
        path = str(artifacts["tokenization"].path("codes.duckdb")).replace("'", "''")
        connection.execute(f"ATTACH '{path}' AS code_table (READ_ONLY)")
        for name in CODE_TABLES:
            connection.execute(f"CREATE VIEW {name} AS FROM code_table.{name}")
    for name, (stage, file) in PARQUET_TABLES.items():
        if stage in artifacts and file in artifacts[stage].names():
            connection.register(name, ds.dataset(artifacts[stage].path(file)))
    measured = [artifacts[name] for name in artifacts if name in {"training", "evaluation"}]
    if measured:
        connection.register("metrics", ds.dataset([str(each.path("metrics.parquet")) for each in measured]))
    connection.register("artifacts", _artifact_table(store))
    connection.register("stages", _stage_table(store))
    connection.register("decisions", _decision_table(store))
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def query(connection: duckdb.DuckDBPyConnection, text: str, most: int | None = None) -> pa.Table:
    """The answer to a reading statement, or its first rows; QueryError, with DuckDB's words, if there is none."""
    try:
        for statement in connection.extract_statements(text):
            if statement.type not in READING:
                raise QueryError(f"gif sql only reads: {statement.type.name} is not allowed")
        answer = connection.sql(text)
        if answer is None:
            raise QueryError("there is no statement in the query")
        return (answer if most is None else answer.limit(most)).to_arrow_table()
    except duckdb.Error as error:
        raise QueryError(str(error)) from None


def run_artifacts(store: ArtifactStore, run: str | None = None) -> dict[StageName, Artifact]:
    """The artifacts a run made or reused, and those they were made from."""
    record = find_run(store, run)
    wanted = [(stage, done.key) for stage, done in record.stages.items()]
    found: dict[StageName, Artifact] = {}
    while wanted:
        stage, key = wanted.pop()
        if stage in found:
            continue
        try:
            found[stage] = store.open(store.ref(stage, key))
        except ArtifactMissingError:
            continue
        wanted += [(name, source.key) for name, source in found[stage].manifest.inputs.items()]
    return found


def _artifact_table(store: ArtifactStore) -> pa.Table:
    rows = [
        {
            "stage": manifest.stage,
            "key": manifest.key,
            "created_at": manifest.created_at,
            "seconds": manifest.seconds,
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
