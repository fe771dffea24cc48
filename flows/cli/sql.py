"""`gif sql`: questions to the identity→code table and everything around it."""

import csv
import json
import sys
from enum import StrEnum
from typing import Annotated

import pyarrow as pa
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flows.cli.options import Run, Store
from gif_core.artifacts import ArtifactStore, open_database, query

MAX_ROWS = 200
OVERVIEW = (
    "SELECT table_name, string_agg(column_name || ' ' || data_type, ', ' ORDER BY column_index) AS columns "
    "FROM duckdb_columns() WHERE NOT internal AND database_name IN ('memory', 'temp') "
    "GROUP BY table_name ORDER BY table_name"
)


class Format(StrEnum):
    """How the answer is printed."""

    table = "table"
    csv = "csv"
    json = "json"


def sql(
    store: Store,
    text: Annotated[str | None, typer.Argument(metavar="[QUERY]", help="One SELECT; without it, the tables.")] = None,
    form: Annotated[Format, typer.Option("--format", "-f", help="How to print the answer.")] = Format.table,
    run: Run = None,
) -> None:
    """Ask SQL questions of a run; nothing can be changed.

    Tables: codes, nodes, meta, code_quality, identities, held_out, quarantine, vectors, metrics, scores, artifacts,
    stages, decisions.

    Examples:
      gif sql "SELECT c1, count(*) FROM codes GROUP BY c1 ORDER BY c1"

      gif sql --format csv "SELECT label, code FROM codes WHERE c1 = 3 AND c2 = 1"

      gif sql "SELECT step, value FROM metrics WHERE name = 'loss' ORDER BY step DESC LIMIT 5"

      gif sql "SELECT stage, action, seconds, peak_memory / 1e9 AS gb FROM stages ORDER BY started_at DESC LIMIT 7"
    """
    database = open_database(ArtifactStore(store), run)
    if form is Format.table:
        _print_table(query(database, text or OVERVIEW, MAX_ROWS + 1))
    else:
        answer = query(database, text or OVERVIEW)
        _print_csv(answer) if form is Format.csv else _print_json(answer)


def _print_table(answer: pa.Table) -> None:
    table = Table(*map(escape, answer.column_names))
    for row in answer.slice(0, MAX_ROWS).to_pylist():
        table.add_row(*(escape(str(value)) for value in row.values()))
    console = Console()
    console.print(table)
    if answer.num_rows > MAX_ROWS:
        console.print(f"the first {MAX_ROWS} rows; --format csv or json prints them all")


def _print_csv(answer: pa.Table) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(answer.column_names)
    for batch in answer.to_batches():
        writer.writerows(row.values() for row in batch.to_pylist())


def _print_json(answer: pa.Table) -> None:
    print(json.dumps(answer.to_pylist(), indent=1, default=str))
