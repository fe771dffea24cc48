"""SQL over the artifacts of a run: read-only, on the files themselves."""

import re
from collections.abc import Mapping, Set
from contextlib import closing
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from gif_core.artifacts.artifact import Artifact
from gif_core.artifacts.lineage import run_artifacts
from gif_core.artifacts.sql_tables import CODE_TABLES, OF_THE_STORE, PARQUET_TABLES, TABLES, known_tables, with_metrics
from gif_core.artifacts.store import ArtifactStore
from schemas.errors import GifError
from schemas.files import CODES_DUCKDB_FILE, METRICS_FILE
from schemas.stages import StageName

EXPLAIN: Final = re.compile(r"\s*EXPLAIN\s+(ANALYZE\s+)?(?=SELECT|FROM|WITH|VALUES|\(\s*SELECT)", re.IGNORECASE)
"""The beginning of an explanation of a reading statement."""
OVERVIEW: Final = (
    "SELECT table_name, string_agg(column_name || ' ' || data_type, ', ' ORDER BY column_index) AS columns "
    "FROM duckdb_columns() WHERE NOT internal AND database_name IN ('memory', 'temp') "
    "GROUP BY table_name ORDER BY table_name"
)


class QueryError(GifError, ValueError):
    """A query that DuckDB refuses or that would do more than read; the message is DuckDB's own where it has one."""


def query(store: ArtifactStore, text: str, run: str | None = None, most: int | None = None) -> pa.Table:
    """Answer a reading statement about a run, or give its first `most` rows.

    Only the tables that the query names are opened, so only their files are fetched and digested.
    """
    artifacts = run_artifacts(store, run)
    named = _named_tables(text)
    known = known_tables(artifacts)
    # A query that names no table, or an unknown one, may list the tables or be misspelt: DuckDB then sees all of them.
    wanted = named if named and named <= known else known
    with closing(_open_database(store, artifacts, wanted)) as connection:
        return _answer(connection, text, most)


def describe_tables(store: ArtifactStore, run: str | None = None) -> pa.Table:
    """The tables of a run with their columns. Schemas alone are read, so no file is digested."""
    artifacts = run_artifacts(store, run)
    with closing(_open_database(store, artifacts, known_tables(artifacts), digest=False)) as connection:
        return _answer(connection, OVERVIEW, None)


def _named_tables(text: str) -> set[str]:
    """Names of the tables in a reading statement, in lower case.

    DuckDB names them by binding the query to tables without columns. It cannot do so where a query depends on columns
    (`JOIN … USING`); then every word of the query counts, which may be more than its tables but never fewer.
    """
    with closing(_locked(duckdb.connect(":memory:"))) as connection:
        _check_reads(connection, text)
        try:
            names = connection.get_table_names(text)
        except duckdb.Error:
            names = set(re.findall(r"\w+", text.lower())) & TABLES
        return {name.lower() for name in names}


def _open_database(
    store: ArtifactStore, artifacts: Mapping[StageName, Artifact], names: Set[str], *, digest: bool = True
) -> duckdb.DuckDBPyConnection:
    """An in-memory database of these tables; it can reach nothing else on the machine."""
    connection = duckdb.connect(":memory:")
    if names & set(CODE_TABLES):
        path = str(artifacts["tokenization"].path(CODES_DUCKDB_FILE, digest=digest)).replace("'", "''")
        connection.execute(f"ATTACH '{path}' AS code_table (READ_ONLY)")
        for name in CODE_TABLES:
            connection.execute(f"CREATE VIEW {name} AS FROM code_table.{name}")
    for name in names & PARQUET_TABLES.keys():
        stage, file = PARQUET_TABLES[name]
        connection.register(name, ds.dataset(artifacts[stage].path(file, digest=digest)))
    if "metrics" in names:
        paths = [str(each.path(METRICS_FILE, digest=digest)) for each in with_metrics(artifacts)]
        connection.register("metrics", ds.dataset(paths))
    for name in names & OF_THE_STORE.keys():
        connection.register(name, OF_THE_STORE[name](store))
    return _locked(connection)


def _locked(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Take files, networks and settings out of reach of whatever is asked from now on.

    Without external access DuckDB may still write to its temporary directory, so there is none.
    """
    connection.execute("SET temp_directory = ''")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def _check_reads(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    try:
        statements = connection.extract_statements(text)
    except duckdb.Error as error:
        raise QueryError(str(error)) from None
    if len(statements) != 1:
        raise QueryError(f"give one SELECT at a time, not {len(statements)} statements")
    (statement,) = statements
    if statement.type == duckdb.StatementType.EXPLAIN:
        begin = EXPLAIN.match(text)
        if begin is None:
            raise QueryError("only a SELECT can be explained: EXPLAIN SELECT …")
        _check_reads(connection, text[begin.end() :])
    elif statement.type != duckdb.StatementType.SELECT:
        raise QueryError(f"only reading is allowed, not {statement.type.name}: write a SELECT")


def _answer(connection: duckdb.DuckDBPyConnection, text: str, most: int | None) -> pa.Table:
    try:
        answer = connection.sql(text)
        return (answer if most is None else answer.limit(most)).to_arrow_table()
    except duckdb.Error as error:
        raise QueryError(str(error)) from None
