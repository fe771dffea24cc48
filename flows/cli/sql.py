"""`gif sql`: SQL over the codes of a run and all other tables of its artifacts."""

import csv
import json
import sys
from enum import StrEnum
from typing import Annotated

import pyarrow as pa
import typer
from rich.markup import escape
from rich.table import Table

from flows.cli.options import Run, Store
from flows.cli.output import Console
from gif_core.artifacts import ArtifactStore, describe_tables, query
from gif_core.runtime import printable

MAX_ROWS = 200
LONGEST_LIST = 16
"""Lists of more values are shortened in a table; codes are shorter."""
SHOWN = 4


class Format(StrEnum):
    """How the answer is printed."""

    table = "table"
    csv = "csv"
    json = "json"


def sql(
    store: Store,
    text: Annotated[
        str | None, typer.Argument(metavar="[QUERY]", help="One SELECT statement; if omitted, the tables are listed.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", "-f", help="How to print the answer.")] = Format.table,
    run: Run = None,
) -> None:
    """Query the tables of a run with SQL (DuckDB), read-only.

    Tables of a run: codes, nodes, meta, code_quality, identities, held_out,
    quarantine, vectors, least_cohesive, metrics, scores, cmc, errors.

    Tables of the whole store: artifacts, stages, decisions.

    Examples:
      gif sql "SELECT c1, count(*) FROM codes GROUP BY c1 ORDER BY c1"

      gif sql --format csv "SELECT label, code FROM codes WHERE c1 = 3 AND c2 = 1"

      gif sql "SELECT step, value FROM metrics WHERE name = 'loss' ORDER BY step DESC LIMIT 5"

      gif sql "SELECT stage, action, seconds, peak_memory / 1e9 AS gb FROM stages ORDER BY started_at DESC LIMIT 7"
    """
    opened, most = ArtifactStore(store), MAX_ROWS + 1 if form is Format.table else None
    answer = query(opened, text, run, most) if text else describe_tables(opened, run)
    printers = {Format.table: _print_table, Format.csv: _print_csv, Format.json: _print_json}
    printers[form](answer)


def _print_table(answer: pa.Table) -> None:
    table = Table(*map(escape, answer.column_names))
    for row in answer.slice(0, MAX_ROWS).to_pylist():
        table.add_row(*(escape(_shorten(value)) for value in row.values()))
    console = Console()
    console.print(table)
    if answer.num_rows > MAX_ROWS:
        console.print(f"the first {MAX_ROWS} rows; --format csv or json prints them all")


def _shorten(value: object) -> str:
    """A value as text; of a long list, such as a vector, the beginning and its length."""
    if isinstance(value, list) and len(value) > LONGEST_LIST:
        first = ", ".join(f"{each:.4g}" if isinstance(each, float) else str(each) for each in value[:SHOWN])
        return f"[{first}, … {len(value)} values]"
    return str(value)


def _print_csv(answer: pa.Table) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(answer.column_names)
    on_terminal = sys.stdout.isatty()
    for batch in answer.to_batches():
        rows = (row.values() for row in batch.to_pylist())
        writer.writerows(map(_visible, row) if on_terminal else row for row in rows)


def _visible(value: object) -> object:
    return printable(value) if isinstance(value, str) else value


def _print_json(answer: pa.Table) -> None:
    print(json.dumps(answer.to_pylist(), indent=1, default=str))
