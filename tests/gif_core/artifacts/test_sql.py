from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gif_core.artifacts import (
    ArtifactMissingError,
    ArtifactStore,
    MetricsWriter,
    begin_run,
    describe_tables,
    digests,
    save_run,
)
from gif_core.artifacts.sql import QueryError
from gif_core.tokenization import CodeShape, code_quality, write_code_table
from schemas.artifacts import StageRecord
from schemas.files import CODE_QUALITY_FILE
from schemas.loading import load_config
from schemas.stages import INPUTS, StageName

IDENTITIES = pa.table(
    {"identity_id": [0, 1, 2], "label": ["a", "b", "c"], "source": [0, 0, 0], "num_samples": [4, 5, 6]}
)


def fill(stage: StageName, folder: Path) -> None:
    if stage == "ingestion":
        for name in ("identities", "held_out", "quarantine"):
            pq.write_table(IDENTITIES, folder / f"{name}.parquet")
    elif stage == "embedding":
        vectors = pa.array(np.eye(3).tolist(), pa.list_(pa.float32(), 3))
        table = IDENTITIES.select(["identity_id", "num_samples"]).append_column("vector", vectors)
        for name in ("vectors", "least_cohesive"):
            pq.write_table(table, folder / f"{name}.parquet")
    elif stage == "tokenization":
        codes, shape = np.array([[0, 1], [1, 0], [1, 1]], np.int32), CodeShape(2, 2)
        write_code_table(folder, codes, shape, IDENTITIES)
        pq.write_table(code_quality(codes, shape, np.eye(3, dtype=np.float32)), folder / CODE_QUALITY_FILE)
    elif stage in {"training", "evaluation"}:
        with MetricsWriter(folder / "metrics.parquet", stage) as writer:
            writer.add(1, {"loss": 2.5})
    else:
        (folder / "file").write_text(stage)


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    """A store in which one run has got as far as evaluation."""
    store = ArtifactStore(str(tmp_path / "it's a store"))
    stages: tuple[StageName, ...] = (
        "ingestion",
        "embedding",
        "separation",
        "tokenization",
        "training",
        "evaluation",
    )
    keys = {stage: str(number) * 64 for number, stage in enumerate(stages)}
    for stage in stages:
        inputs = {name: store.open(store.ref(name, keys[name])).made_from for name in INPUTS[stage]}
        with store.draft(store.ref(stage, keys[stage]), {}, inputs) as draft:
            fill(stage, draft.folder)
            store.publish(draft)
    record = begin_run(store, load_config("demo"))
    done = StageRecord(key=keys["evaluation"], action="computed", seconds=1)
    save_run(store, record, stages={"evaluation": done})
    return store


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (
            "SELECT c1, count(*) AS n FROM codes GROUP BY c1 ORDER BY c1",
            [{"c1": 0, "n": 1}, {"c1": 1, "n": 2}],
        ),
        ("SELECT max(size) AS size FROM nodes WHERE level = 1", [{"size": 2}]),
        ("SELECT label FROM identities JOIN codes USING (identity_id, label) WHERE c2 = 0", [{"label": "b"}]),
        ("SELECT num_samples FROM vectors WHERE vector[2] = 1", [{"num_samples": 5}]),
        (
            "SELECT stage, value FROM metrics ORDER BY stage",
            [{"stage": s, "value": 2.5} for s in ("evaluation", "training")],
        ),
        ("SELECT count(*) AS n FROM artifacts", [{"n": 6}]),
        ("SELECT sum(gpu_hours) AS h, max(peak_gpu_memory) AS b FROM artifacts", [{"h": 0.0, "b": 0}]),
        ("SELECT level, nodes, largest FROM code_quality", [{"level": 1, "nodes": 2, "largest": 2}]),
        ("SELECT count(*) AS n FROM quarantine", [{"n": 3}]),
    ],
)
def test_every_table_answers_for_a_run_and_all_it_was_made_from(
    store: ArtifactStore, text: str, rows: list[dict[str, object]]
) -> None:
    assert store.sql(text).to_pylist() == rows


@pytest.fixture
def digested(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that are digested from now on."""
    names: list[str] = []

    def note(path: Path) -> str:
        names.append(path.name)
        return sha256_of(path)

    sha256_of = digests.sha256_of
    monkeypatch.setattr(digests, "sha256_of", note)
    monkeypatch.setattr(digests, "_checked", set())
    return names


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("SELECT * FROM identities", ["identities.parquet"]),
        ('SELECT * FROM "Vectors" AS v', ["vectors.parquet"]),
        ("WITH nodes AS (SELECT level, nodes FROM code_quality) FROM nodes", ["quality.parquet"]),
        ("EXPLAIN SELECT count(*) FROM held_out", ["held_out.parquet"]),
        ("SELECT count(*) FROM identities JOIN vectors USING (identity_id)", ["identities.parquet", "vectors.parquet"]),
        ("SELECT max(level) FROM nodes", ["codes.duckdb"]),
        ("SELECT stage FROM artifacts", []),
    ],
)
def test_a_query_opens_the_tables_it_names_and_no_others(
    store: ArtifactStore, digested: list[str], text: str, files: list[str]
) -> None:
    store.sql(text)
    assert sorted(digested) == files


def test_the_list_of_tables_digests_no_file(store: ArtifactStore, digested: list[str]) -> None:
    tables = dict(zip(*describe_tables(store).to_pydict().values(), strict=True))
    assert digested == []
    assert {"codes", "nodes", "identities", "vectors", "metrics", "artifacts", "stages"} <= tables.keys()
    assert "label VARCHAR" in tables["identities"]


def test_a_query_that_names_no_table_sees_all_of_them(store: ArtifactStore) -> None:
    assert {"codes", "identities"} <= set(store.sql("SHOW TABLES")["name"].to_pylist())
    with pytest.raises(QueryError, match=r"(?s)Table with name identites does not exist.*identities"):
        store.sql("SELECT * FROM identites")


@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM codes",
        "INSERT INTO code_table.codes SELECT * FROM codes",
        "DROP VIEW codes",
        "CREATE TABLE mine AS SELECT 1",
        "COPY codes TO 'stolen.csv'",
        "ATTACH 'other.duckdb'",
        "SET enable_external_access = true",
        "SELECT 1; DELETE FROM codes",
        "SELECT 1; SELECT 2",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO './.tmp/x'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO 'x'",
        "EXPLAIN DELETE FROM codes",
        "/* SELECT */ EXPLAIN ANALYZE COPY (SELECT 1) TO './.tmp/x'",
        "EXPLAIN ANALYZE INSERT INTO code_table.codes SELECT * FROM codes",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('pyproject.toml')",
        "INSTALL httpfs",
    ],
)
def test_nothing_can_be_written_and_no_other_file_read(
    store: ArtifactStore, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(QueryError):
        store.sql(text)
    assert store.sql("SELECT count(*) AS n FROM codes").to_pylist() == [{"n": 3}]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_codes_of_a_store_without_a_table_of_quality_answer_all_the_same(store: ArtifactStore) -> None:
    with store.draft(store.ref("tokenization", "9" * 64), {}, {}) as draft:
        write_code_table(draft.folder, np.array([[0], [1], [2]], np.int32), CodeShape(1, 3), IDENTITIES)
        ref = store.publish(draft)
    save_run(
        store,
        begin_run(store, load_config("demo")),
        stages={"tokenization": StageRecord(key=ref.key, action="computed", seconds=1)},
    )
    assert store.sql("SELECT count(*) AS n FROM codes").to_pylist() == [{"n": 3}]
    with pytest.raises(QueryError, match="code_quality does not exist"):
        store.sql("FROM code_quality")


def test_two_statements_are_refused_and_a_select_can_be_explained(store: ArtifactStore) -> None:
    with pytest.raises(QueryError, match="give one SELECT at a time, not 2 statements"):
        store.sql("SELECT 1; SELECT 2")
    with pytest.raises(QueryError, match="only a SELECT can be explained"):
        store.sql("EXPLAIN ANALYZE COPY (SELECT 1) TO './.tmp/x'")
    assert store.sql("EXPLAIN ANALYZE WITH c AS (SELECT 1) SELECT * FROM c").num_rows == 1


def test_a_wrong_query_gets_duckdbs_own_words(store: ArtifactStore) -> None:
    with pytest.raises(QueryError, match=r"(?s)Referenced column \"c9\" not found.*c1"):
        store.sql("SELECT c9 FROM codes")


def test_a_query_that_fails_while_it_runs_gets_duckdbs_own_words(store: ArtifactStore) -> None:
    with pytest.raises(QueryError, match="Could not convert string"):
        store.sql("SELECT CAST(label AS INT) FROM codes")


def test_a_run_that_failed_early_does_not_hide_the_codes_of_the_one_before_and_which_is_taken_is_said(
    store: ArtifactStore, caplog: pytest.LogCaptureFixture
) -> None:
    record = begin_run(store, load_config("demo"))
    save_run(store, record, stages={"ingestion": StageRecord(key="0" * 64, action="reused", seconds=1)})
    assert store.sql("SELECT count(*) AS n FROM codes").to_pylist() == [{"n": 3}]
    assert f"is taken, the newest with codes: the newer {record.run_id} has none" in caplog.text


def test_asking_before_any_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(ArtifactMissingError, match="there is no run yet"):
        ArtifactStore(str(tmp_path)).sql("SELECT 1")


def test_asking_for_an_unknown_run_says_so(store: ArtifactStore) -> None:
    with pytest.raises(ArtifactMissingError, match="there is no run '1999'"):
        store.sql("SELECT 1", run="1999")
