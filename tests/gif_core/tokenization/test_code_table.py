"""Claims about the code table: what it holds, that it is whole, and that it comes back."""

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gif_core.tokenization import Codes, CodeShape, read_codes, write_code_table

SHAPE = CodeShape(3, 4)
CODES: Codes = np.array([[0, 0, 0], [3, 1, 2], [0, 0, 1], [0, 2, 0], [3, 1, 0]], dtype=np.int32)


def identities(count: int = 5) -> pa.Table:
    return pa.table(
        {
            "identity_id": np.arange(count),
            "label": [f"person {row}" for row in range(count)],
            "num_samples": np.arange(count) + 10,
        }
    )


@pytest.fixture
def written(tmp_path: Path) -> Path:
    write_code_table(tmp_path / "table", CODES, SHAPE, identities())
    return tmp_path / "table"


def query(folder: Path, text: str) -> list[tuple[object, ...]]:
    with duckdb.connect(folder / "codes.duckdb", read_only=True) as connection:
        return connection.execute(text).fetchall()


def test_codes_have_one_row_per_identity_in_order(written: Path) -> None:
    rows = query(written, "SELECT * FROM codes")
    leaves = [0, 54, 1, 8, 52]
    assert rows == [
        (row, f"person {row}", row + 10, code.tolist(), *code.tolist(), leaves[row]) for row, code in enumerate(CODES)
    ]


def test_columns_have_the_documented_types(written: Path) -> None:
    columns = query(written, "SELECT table_name, column_name, data_type FROM information_schema.columns ORDER BY ALL")
    assert {(table, name): kind for table, name, kind in columns} == {
        ("codes", "identity_id"): "BIGINT",
        ("codes", "label"): "VARCHAR",
        ("codes", "num_samples"): "INTEGER",
        ("codes", "code"): "INTEGER[]",
        ("codes", "c1"): "INTEGER",
        ("codes", "c2"): "INTEGER",
        ("codes", "c3"): "INTEGER",
        ("codes", "leaf"): "BIGINT",
        ("nodes", "level"): "INTEGER",
        ("nodes", "prefix"): "INTEGER[]",
        ("nodes", "size"): "BIGINT",
        ("nodes", "capacity"): "BIGINT",
        ("nodes", "parent"): "INTEGER[]",
        ("meta", "key"): "VARCHAR",
        ("meta", "value"): "VARCHAR",
    }


def test_nodes_are_every_prefix_with_its_size_capacity_and_parent(written: Path) -> None:
    assert query(written, "SELECT * FROM nodes") == [
        (0, [], 5, 64, None),
        (1, [0], 3, 16, []),
        (1, [3], 2, 16, []),
        (2, [0, 0], 2, 4, [0]),
        (2, [0, 2], 1, 4, [0]),
        (2, [3, 1], 2, 4, [3]),
    ]


def test_meta_holds_the_shape(written: Path) -> None:
    assert dict(query(written, "SELECT key, value FROM meta")) == {
        "format_version": "1",
        "length": "3",
        "vocab_size": "4",
        "identities": "5",
    }


def test_codes_and_shape_come_back(written: Path) -> None:
    codes, shape = read_codes(written / "codes.duckdb")
    assert shape == SHAPE
    assert codes.dtype == np.int32
    assert np.array_equal(codes, CODES)


def test_a_table_of_many_identities_comes_back(tmp_path: Path) -> None:
    shape = CodeShape(4, 18)
    numbers = np.random.default_rng(0).choice(18**4, 50_000, replace=False)
    codes = np.stack(np.unravel_index(numbers, (18,) * 4), axis=1).astype(np.int32)
    write_code_table(tmp_path, codes, shape, identities(50_000))
    back, _ = read_codes(tmp_path / "codes.duckdb")
    assert np.array_equal(back, codes)
    assert query(tmp_path, "SELECT level, sum(size), max(size) <= max(capacity) FROM nodes GROUP BY 1 ORDER BY 1") == [
        (level, 50_000, True) for level in range(4)
    ]


def test_parquet_holds_the_same_codes(written: Path) -> None:
    table = pq.read_table(written / "codes.parquet")
    names = ["identity_id", "label", "num_samples", "code", "c1", "c2", "c3", "leaf"]
    assert table.column_names == names
    assert [tuple(row.values()) for row in table.to_pylist()] == query(written, "SELECT * FROM codes")


def test_only_the_two_files_remain(written: Path) -> None:
    assert sorted(path.name for path in written.iterdir()) == ["codes.duckdb", "codes.parquet"]


def test_writing_again_replaces_the_table(written: Path) -> None:
    write_code_table(written, CODES[:2], SHAPE, identities(2))
    codes, _ = read_codes(written / "codes.duckdb")
    assert np.array_equal(codes, CODES[:2])


def test_two_writes_give_the_same_parquet_bytes_and_the_same_rows(written: Path, tmp_path: Path) -> None:
    write_code_table(tmp_path / "again", CODES, SHAPE, identities())
    assert (tmp_path / "again/codes.parquet").read_bytes() == (written / "codes.parquet").read_bytes()
    for table in ("codes", "nodes", "meta"):
        assert query(written, f"SELECT * FROM {table}") == query(tmp_path / "again", f"SELECT * FROM {table}")


def test_one_identity_makes_a_table(tmp_path: Path) -> None:
    write_code_table(tmp_path, np.zeros((1, 1), dtype=np.int32), CodeShape(1, 1), identities(1))
    codes, shape = read_codes(tmp_path / "codes.duckdb")
    assert (codes.tolist(), shape) == ([[0]], CodeShape(1, 1))


def test_bad_codes_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is shared by 2 identities"):
        write_code_table(tmp_path / "bad", CODES[[0, 0]], SHAPE, identities(2))
    assert not (tmp_path / "bad").exists()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (identities(4), "from 0 to 4"),
        (identities().take([1, 0, 2, 3, 4]), "in order"),
        (identities().drop_columns(["label"]), "no column label"),
    ],
)
def test_identities_that_do_not_match_the_codes_are_refused(table: pa.Table, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        write_code_table(tmp_path, CODES, SHAPE, table)


def test_missing_other_and_cut_tables_are_named(written: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no code table"):
        read_codes(tmp_path / "codes.duckdb")
    with duckdb.connect(written / "codes.duckdb") as connection:
        connection.execute("DELETE FROM codes WHERE identity_id = 2")
    with pytest.raises(ValueError, match="4 codes"):
        read_codes(written / "codes.duckdb")
    with duckdb.connect(written / "codes.duckdb") as connection:
        connection.execute("UPDATE meta SET value = '9' WHERE key = 'format_version'")
    with pytest.raises(ValueError, match="format 9"):
        read_codes(written / "codes.duckdb")
