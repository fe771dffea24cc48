"""The identity-to-code table as files: a DuckDB database for queries, and its codes as Parquet."""

# Shapes: N identities, L code length, P prefixes of a level.

from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gif_core.tokenization.codes import Codes, CodeShape, check_codes, pack_codes, unpack_codes
from schemas.errors import GifError
from schemas.files import CODES_DUCKDB_FILE, CODES_FILE

FORMAT_VERSION = 1
REMEDY = "make the codes again with 'gif run --from embedding' on these faces"


def write_code_table(folder: Path, codes_NL: Codes, shape: CodeShape, identities: pa.Table) -> None:
    """Write the tables `codes`, `nodes` and `meta` after checking that every code is valid and unique.

    `identities` has identity_id (0 to N-1, in order), label and num_samples; row i has code i. The column `leaf` is
    the packed code: its number in lexicographic order, from 0 to v^l - 1.
    """
    check_codes(codes_NL, shape)
    _check_identities(identities, len(codes_NL))
    packed_N = pack_codes(codes_NL, shape)
    codes = _codes_table(codes_NL, packed_N, identities)
    meta = {
        "format_version": FORMAT_VERSION,
        "length": shape.length,
        "vocab_size": shape.vocab_size,
        "identities": len(codes_NL),
    }
    tables = {
        "codes": codes,
        "nodes": _nodes_table(packed_N, shape),
        "meta": pa.table({"key": list(meta), "value": [str(value) for value in meta.values()]}),
    }
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(codes, folder / CODES_FILE)
    _write_duckdb(folder / CODES_DUCKDB_FILE, tables)


def read_codes(path: Path) -> tuple[Codes, CodeShape]:
    """Read the codes, in identity order, and their shape from a `codes.duckdb` opened read-only."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no code table at {path}")
    with duckdb.connect(path, read_only=True) as connection:
        meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
        codes: pa.Table = connection.sql("SELECT code FROM codes ORDER BY identity_id").to_arrow_table()
    if meta.get("format_version") != str(FORMAT_VERSION):
        raise ValueError(f"{path} has format {meta.get('format_version')}; this version reads {FORMAT_VERSION}")
    shape = CodeShape(int(meta["length"]), int(meta["vocab_size"]))
    tokens = codes["code"].combine_chunks().flatten().to_numpy(zero_copy_only=False).astype(np.int32)
    if len(codes) != int(meta["identities"]) or len(tokens) != len(codes) * shape.length:
        raise ValueError(f"{path} has {len(codes)} codes and {len(tokens)} tokens, which contradicts its meta: {meta}")
    return tokens.reshape(len(codes), shape.length), shape


def read_shape(path: Path) -> CodeShape:
    """Read the length and vocab size of the codes in a `codes.duckdb`."""
    with duckdb.connect(path, read_only=True) as connection:
        meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    return CodeShape(int(meta["length"]), int(meta["vocab_size"]))


def check_identities(codes: Path, identities: Path, *, more: bool = False) -> None:
    """Check that row i of `codes.parquet` is identity i of `identities.parquet`.

    With `more`, further identities without a code may follow.
    """
    has, wanted = (pq.read_table(path, columns=["identity_id", "label"]) for path in (codes, identities))
    wanted = wanted.slice(0, len(has)) if more else wanted
    if len(has) != len(wanted):
        raise GifError(f"there are codes for {len(has):,} identities but faces of {len(wanted):,}: {REMEDY}")
    differ = pc.or_(*(pc.not_equal(has[name], wanted[name].cast(has[name].type)) for name in has.column_names))
    if (row := pc.index(differ, True).as_py()) >= 0:
        known, given = (f"{table['identity_id'][row]} ({table['label'][row]})" for table in (has, wanted))
        raise GifError(
            f"the codes belong to other identities: they have identity {known} where the faces have {given}: {REMEDY}"
        )


def _write_duckdb(path: Path, tables: dict[str, pa.Table]) -> None:
    """Create a database with these tables; one thread keeps the rows in order."""
    path.unlink(missing_ok=True)
    with duckdb.connect(path, config={"threads": 1}) as connection:
        for name, table in tables.items():
            connection.register("incoming", table)
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM incoming")
            connection.unregister("incoming")
        connection.execute("CHECKPOINT")


def _codes_table(codes_NL: Codes, packed_N: npt.NDArray[np.int64], identities: pa.Table) -> pa.Table:
    """Return one row per identity: id, label, code as a list, tokens as columns c1 to cl, and the packed code.

    Rows are sorted by id and there is no primary key, which keeps both look-ups fast and the file small.
    """
    tokens = {f"c{place + 1}": pa.array(token_N, pa.int32()) for place, token_N in enumerate(codes_NL.T)}
    columns = {
        "identity_id": identities["identity_id"].cast(pa.int64()),
        "label": identities["label"].cast(pa.string()),
        "num_samples": identities["num_samples"].cast(pa.int32()),
        "code": _as_lists(codes_NL),
    }
    return pa.table(columns | tokens | {"leaf": pa.array(packed_N, pa.int64())})


def _nodes_table(packed_N: npt.NDArray[np.int64], shape: CodeShape) -> pa.Table:
    """Return one row per node of the code tree, from level 0 (the root, without parent) to l-1."""
    packed_N = np.sort(packed_N)
    levels = []
    for level in range(shape.length):
        prefix_P, size_P = _count_runs(packed_N // shape.capacity(level))
        prefix_PL = unpack_codes(prefix_P, CodeShape(level, shape.vocab_size))
        count = len(prefix_P)
        parents = _as_lists(prefix_PL[:, :-1]) if level else pa.nulls(count, pa.list_(pa.int32()))
        levels.append(
            pa.table(
                {
                    "level": pa.array(np.full(count, level), pa.int32()),
                    "prefix": _as_lists(prefix_PL),
                    "size": pa.array(size_P, pa.int64()),
                    "capacity": pa.array(np.full(count, shape.capacity(level)), pa.int64()),
                    "parent": parents,
                }
            )
        )
    return pa.concat_tables(levels)


def _count_runs(sorted_N: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the distinct values of a sorted array and how often each occurs."""
    first_P = np.flatnonzero(np.diff(sorted_N, prepend=-1))
    return sorted_N[first_P], np.diff(first_P, append=len(sorted_N))


def _as_lists(tokens_NL: npt.NDArray[np.integer]) -> pa.ListArray:
    """Return each row as a list of 32-bit integers."""
    num_rows, length = tokens_NL.shape
    offsets = pa.array(np.arange(num_rows + 1) * length, pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(tokens_NL.reshape(-1), pa.int32()))


def _check_identities(identities: pa.Table, num_codes: int) -> None:
    missing = {"identity_id", "label", "num_samples"} - set(identities.column_names)
    if missing:
        raise ValueError(f"the table of identities has no column {', '.join(sorted(missing))}")
    ids_N = identities["identity_id"].to_numpy()
    if not np.array_equal(ids_N, np.arange(num_codes)):
        raise ValueError(f"identity_id must count from 0 to {num_codes - 1} in order, one for each code")
