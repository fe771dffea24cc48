"""`gif codes`: look up identities and codes, and give codes to new identities."""

from pathlib import Path
from typing import Annotated, Any

import duckdb
import typer
from rich.markup import escape
from rich.table import Table

from flows.cli.options import Run, Store
from flows.cli.output import Console
from flows.cli.selection import SelectionError
from gif_core.artifacts import ArtifactMissingError, ArtifactStore, run_artifacts
from schemas.files import CODES_DUCKDB_FILE, CODES_FILE, VECTORS_FILE

Row = tuple[int, str, int, list[int]]

app = typer.Typer(help="Look up identities and codes, and give codes to new identities.", no_args_is_help=True)

Rows = Annotated[int, typer.Option(min=1, help="Identities to print at most.")]
CodeTable = Annotated[
    Path | None,
    typer.Option("--table", metavar="FOLDER", help="Read a folder written by `gif codes extend` instead of a run."),
]


@app.command("show")
def show(
    store: Store,
    identities: Annotated[str | None, typer.Option(metavar="ID,ID,…", help="Identities by identity id.")] = None,
    labels: Annotated[str | None, typer.Option(metavar="LABEL,LABEL,…", help="Identities by label.")] = None,
    rows: Rows = 20,
    table: CodeTable = None,
    run: Run = None,
) -> None:
    """Print the codes of identities: identity → code.

    Examples:
      gif codes show                                   # how long codes are, how many are free, the first identities

      gif codes show --identities 3,14,15

      gif codes show --labels person-000007 --table extended
    """
    if identities and labels:
        raise SelectionError("give --identities or --labels, not both")
    with duckdb.connect(_find_table(store, table, run), read_only=True) as connection:
        if identities:
            asked = _numbers(identities, ",")
            found = _select(connection, "list_contains(?, identity_id)", [asked])
            _refuse_missing("identity id", asked, [row[0] for row in found])
        elif labels:
            found = _select(connection, "list_contains(?, label)", [labels.split(",")])
            _refuse_missing("label", labels.split(","), [row[1] for row in found])
        else:
            print(_describe(connection))
            found = _select(connection, f"identity_id < {rows}", [])
    _print(found)


@app.command("find")
def find(
    store: Store,
    code: Annotated[str, typer.Argument(metavar="TOKEN.TOKEN…", help="A code, or its first tokens.")],
    rows: Rows = 20,
    table: CodeTable = None,
    run: Run = None,
) -> None:
    """Print the identity with this code, or all identities whose code begins with it: code → identity.

    Examples:
      gif codes find 3.17.2.0.5

      gif codes find 3.17              # identities with similar codes; gif faces show --code 3.17 shows their faces
    """
    tokens = _numbers(code, ".")
    with duckdb.connect(_find_table(store, table, run), read_only=True) as connection:
        length = _meta(connection)["length"]
        if len(tokens) > length:
            raise SelectionError(f"a code of this table has {length} tokens, not {len(tokens)}")
        wanted = " AND ".join(f"c{place} = ?" for place in range(1, len(tokens) + 1))
        found = _select(connection, wanted, tokens)
    if not found:
        raise SelectionError(f"no code {'is' if len(tokens) == length else 'begins with'} {code}")
    _print(found[:rows])
    if len(found) > rows:
        print(f"{rows} of {len(found):,} identities; --rows shows more")


@app.command("extend")
def extend(
    store: Store,
    vectors: Annotated[
        Path, typer.Option(exists=True, dir_okay=False, help="Vectors of the new identities, .parquet or .npy.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write; it must be empty or missing.")],
    run: Run = None,
) -> None:
    """Give free codes near their neighbours to new identities; existing codes never change.

    The vectors must come from the encoder of the run: `gif encode --out` writes such a file, and so does the embedding
    of another run (vectors.parquet). One row is one identity. A column `label` names them, else `image` does.

    The folder gets a code table of all identities, codes.duckdb and codes.parquet; new identities have the ids after
    the last. When the code tree is full, the command says which length and vocab size would hold all identities.

    Examples:
      gif encode new/*.jpg --out new.parquet

      gif codes extend --vectors new.parquet --out extended

      gif codes show --labels new/anna.jpg --table extended
    """
    import numpy as np

    from gif_core.tokenization import append_identities, read_codes, read_new_identities, read_vectors, write_code_table
    from gif_core.tokenization import extend as give_codes
    from gif_core.writers import new_folder

    artifacts = run_artifacts(ArtifactStore(store), run)
    missing = [stage for stage in ("embedding", "tokenization") if stage not in artifacts]
    if missing:
        raise ArtifactMissingError(f"this run has no {' and no '.join(missing)}: finish it with `gif run`")
    codes_NL, shape = read_codes(artifacts["tokenization"].path(CODES_DUCKDB_FILE))
    vectors_ND = read_vectors(artifacts["embedding"].path(VECTORS_FILE))
    new = read_new_identities(vectors)
    new_codes_ML = give_codes(codes_NL, shape, vectors_ND, new.vectors_MD)
    all_rows = append_identities(artifacts["tokenization"].path(CODES_FILE), new)
    with new_folder(out) as folder:
        write_code_table(folder, np.concatenate([codes_NL, new_codes_ML]), shape, all_rows)
    free = shape.capacity(0) - len(all_rows)
    print(f"{out}: {len(new_codes_ML):,} new identities, {len(codes_NL):,} unchanged; {free:,} codes are free")


def _find_table(store: str, table: Path | None, run: str | None) -> Path:
    """The DuckDB file of a folder, or else of a run."""
    if table is not None:
        path = table / CODES_DUCKDB_FILE
        if not path.is_file():
            raise SelectionError(f"there is no {CODES_DUCKDB_FILE} in {table}")
        return path
    artifacts = run_artifacts(ArtifactStore(store), run)
    if "tokenization" not in artifacts:
        raise ArtifactMissingError("this run has no codes")
    return artifacts["tokenization"].path(CODES_DUCKDB_FILE)


def _select(connection: duckdb.DuckDBPyConnection, condition: str, values: list[Any]) -> list[Row]:
    """Identity id, label, number of images and code of the identities that meet a condition."""
    columns = "SELECT identity_id, label, num_samples, code FROM codes"
    return connection.execute(f"{columns} WHERE {condition} ORDER BY identity_id", values).fetchall()


def _refuse_missing(what: str, asked: list[Any], found: list[Any]) -> None:
    missing = [str(name) for name in asked if name not in found]
    if missing:
        raise SelectionError(f"no identity in this table has the {what} {', '.join(missing)}")


def _meta(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    return {name: int(value) for name, value in connection.execute("SELECT key, value FROM meta").fetchall()}


def _describe(connection: duckdb.DuckDBPyConnection) -> str:
    meta = _meta(connection)
    taken, all_codes = meta["identities"], meta["vocab_size"] ** meta["length"]
    shape = f"{meta['length']} tokens of {meta['vocab_size']} values"
    return f"{taken:,} identities; a code has {shape}; {all_codes - taken:,} of {all_codes:,} codes are free"


def _print(found: list[Row]) -> None:
    table = Table("identity", "label", "images", "code")
    for identity_id, label, num_samples, code in found:
        table.add_row(str(identity_id), escape(label), str(num_samples), ".".join(map(str, code)))
    Console().print(table)


def _numbers(text: str, separator: str) -> list[int]:
    try:
        return [int(part) for part in text.split(separator)]
    except ValueError:
        raise SelectionError(f"{text}: give numbers, such as 3{separator}14") from None
