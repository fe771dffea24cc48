"""Text files in columns, as IJB's `meta/` has them; errors name the line and the column."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
from numpy.typing import NDArray

from gif_core.protocols.sets.files import EvaluationFileError

Kind = Literal["text", "integer", "number", "truth"]
TYPES: Final = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64(), "truth": pa.int8()}
WORDS: Final = {"text": "a name", "integer": "a whole number", "number": "a finite number", "truth": "0 or 1"}
BLOCK: Final = 16 * 2**20
"""Bytes per block."""
SHOWN: Final = 40
"""Characters of an invalid value that a message repeats."""


@dataclass(frozen=True)
class Columns:
    """A parsed text file; its rows are the lines that are not empty."""

    where: str
    content: bytes
    header: int
    names: tuple[str, ...]
    table: Any

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.table.num_rows)

    def array(self, name: str) -> NDArray[Any]:
        """Return a column of numbers."""
        numbers: NDArray[Any] = self.table[name].to_numpy()
        return numbers

    def texts(self, name: str) -> list[str]:
        """Return a column of names."""
        texts: list[str] = self.table[name].to_pylist()
        return texts

    def fault(self, row: int, name: str, words: str) -> EvaluationFileError:
        """Return an error that names a line and a column of the file."""
        lines = (number for number, line in _lines(self.content) if number > self.header and line.strip())
        line = next(number for place, number in enumerate(lines) if place == row)
        return EvaluationFileError(f"{self.where}, line {line}, column {self.names.index(name) + 1} ({name}): {words}")


def read_columns(where: str, content: bytes, kinds: Mapping[str, Kind], *, separator: str, header: int = 0) -> Columns:
    """Read the first columns of a file by their kinds; comma-separated files may have further columns.

    pyarrow reads the file block by block. A block that it refuses is read again line by line, which accepts repeated
    blanks and otherwise finds the invalid line and column.
    """
    tables = []
    for first, block in _blocks(content, header):
        table = _read_block(block, kinds, separator)
        tables.append(_read_by_line(where, first, block, kinds, separator) if table is None else table)
    empty = pa.schema([(name, TYPES[kind]) for name, kind in kinds.items()]).empty_table()
    return Columns(where, content, header, tuple(kinds), pa.concat_tables([empty, *tables]))


def _blocks(content: bytes, header: int) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of whole lines after the header, each with the number of its first line."""
    start = 0
    for _ in range(header):
        start = content.find(b"\n", start) + 1 or len(content)
    line = header + 1
    while start < len(content):
        end = content.find(b"\n", start + BLOCK) + 1 or len(content)
        block = content[start:end]
        yield line, block
        line, start = line + block.count(b"\n"), end


def _read_block(content: bytes, kinds: Mapping[str, Kind], separator: str) -> Any | None:
    """Parse a block with pyarrow; None if anything in it is invalid."""
    others = [f"other {number}" for number in range(content.partition(b"\n")[0].count(b",") + 1 - len(kinds))]
    try:
        table = csv.read_csv(
            pa.BufferReader(content),
            csv.ReadOptions(column_names=[*kinds, *(others if separator == "," else [])]),
            csv.ParseOptions(delimiter=separator, quote_char=False),
            csv.ConvertOptions(
                column_types={name: TYPES[kind] for name, kind in kinds.items()},
                include_columns=list(kinds),
                null_values=[],
            ),
        )
    except pa.ArrowInvalid:
        return None
    return table if all(_is_plain(table[name], kind) for name, kind in kinds.items()) else None


def _is_plain(column: Any, kind: Kind) -> bool:
    """Whether all values satisfy what the kind requires beyond its type."""
    if kind == "truth":
        return bool(pc.all(pc.is_in(column, pa.array([0, 1], pa.int8()))).as_py())
    if kind == "number":
        return bool(pc.all(pc.is_finite(column)).as_py())
    return kind == "integer" or not pc.any(pc.match_substring_regex(column, r"^\s*$|\s")).as_py()


def _read_by_line(where: str, first: int, content: bytes, kinds: Mapping[str, Kind], separator: str) -> Any:
    """Parse a block line by line; raise `EvaluationFileError` for the first invalid value."""
    values: dict[str, list[Any]] = {name: [] for name in kinds}
    for number, line in _lines(content, first):
        if not line.strip():
            continue
        cells = _cells(f"{where}, line {number}", line, list(kinds), separator)
        for place, (name, kind) in enumerate(kinds.items(), start=1):
            value = _value(cells[place - 1], kind)
            if value is None:
                found = f"expected {WORDS[kind]}, got {cells[place - 1][:SHOWN]!r}"
                raise EvaluationFileError(f"{where}, line {number}, column {place} ({name}): {found}")
            values[name].append(value)
    return pa.table({name: pa.array(values[name], TYPES[kind]) for name, kind in kinds.items()})


def _lines(content: bytes, first: int = 1) -> Iterator[tuple[int, bytes]]:
    """Yield line numbers and lines."""
    start, number = 0, first
    while start < len(content):
        end = content.find(b"\n", start)
        end = len(content) if end < 0 else end
        yield number, content[start:end]
        start, number = end + 1, number + 1


def _cells(where: str, line: bytes, names: Sequence[str], separator: str) -> list[str]:
    """Split a line into cells; any run of blanks separates columns if the separator is a blank."""
    text = line.decode("utf-8-sig", "replace").strip()
    cells = text.split() if separator == " " else [cell.strip() for cell in text.split(separator)]
    if len(cells) < len(names):
        missing = f"column {len(cells) + 1} ({names[len(cells)]}) is missing"
        raise EvaluationFileError(f"{where}: {missing}; found {text[:SHOWN]!r}")
    if separator == " " and len(cells) > len(names):
        raise EvaluationFileError(f"{where}: expected {len(names)} columns ({', '.join(names)}), got {len(cells)}")
    return cells


def _value(cell: str, kind: Kind) -> str | int | float | None:
    """Convert a cell; None if it is not of this kind."""
    if kind == "text":
        return cell or None
    if not cell.isascii() or "_" in cell:
        return None
    try:
        number = float(cell) if kind == "number" else int(cell)
    except ValueError:
        return None
    if kind == "truth" and number not in (0, 1):
        return None
    return number if abs(number) < 2**63 else None
