"""Files of evaluation sets, in a folder or at any fsspec URL, and text files in columns whose errors say where."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
from numpy.typing import NDArray

from schemas.errors import GifError

Kind = Literal["text", "integer", "number", "truth"]
TYPES: Final = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64(), "truth": pa.int8()}
WORDS: Final = {"text": "a name", "integer": "a whole number", "number": "a finite number", "truth": "0 or 1"}
BLOCK: Final = 16 * 2**20
"""Bytes that are read in one go."""
SHOWN: Final = 40
"""Characters of what was found that a message repeats."""


class EvaluationFileError(GifError, ValueError):
    """A file of an evaluation set that is not as it must be; the message says where."""


class EvaluationFiles:
    """The files of one set, by their names below its folder."""

    def __init__(self, address: str) -> None:
        """Remember where the set is; nothing is read yet."""
        self.address = address
        self.fs, root = fsspec.url_to_fs(address, use_listings_cache=False)
        self.root: str = root.rstrip("/")

    def where(self, name: str) -> str:
        """The address of a file, for messages."""
        return f"{self.address.rstrip('/')}/{name}" if name else self.address

    @property
    def whole_address(self) -> str:
        """Where the set is for processes that have another working folder."""
        return str(self.fs.unstrip_protocol(self.root))

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        return bool(self.fs.isfile(self._path(name)))

    def read(self, name: str = "", most: int | None = None) -> bytes:
        """All bytes of a file, or of the address itself; FileNotFoundError says which one is missing."""
        try:
            if most is not None and (self.fs.size(self._path(name)) or 0) > most:
                raise EvaluationFileError(f"{self.where(name)} has more than {most:,} bytes: it is not read")
            content: bytes = self.fs.cat_file(self._path(name))
        except (FileNotFoundError, IsADirectoryError):
            raise FileNotFoundError(f"evaluation.sets: there is no file {self.where(name)}") from None
        return content

    def digest(self, names: Iterable[str], most: int | None = None) -> str:
        """One digest of the contents of these files, of which none has more than `most` bytes."""
        total = hashlib.sha256()
        for name in names:
            total.update(f"{name}\0{hashlib.sha256(self.read(name, most)).hexdigest()}\n".encode())
        return total.hexdigest()

    def listing(self, folder: str = "") -> dict[str, int]:
        """The names of all files below a folder, relative to the set's, and their sizes."""
        if not self.fs.isdir(self._path(folder)):
            raise FileNotFoundError(f"evaluation.sets: there is no folder {self.where(folder)}")
        found = self.fs.find(self._path(folder), detail=True)
        return {path.removeprefix(f"{self.root}/"): int(found[path]["size"]) for path in sorted(found)}

    def digest_sizes(self, folder: str = "", listing: Mapping[str, int] | None = None) -> str:
        """One digest of the names and sizes of all files below a folder, which may be listed already."""
        total = hashlib.sha256()
        for name, size in (self.listing(folder) if listing is None else listing).items():
            total.update(f"{name}\0{size}\n".encode("utf-8", "surrogateescape"))
        return total.hexdigest()

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root


@dataclass(frozen=True)
class Columns:
    """A text file in columns, read; rows are its lines that are not empty."""

    where: str
    content: bytes
    header: int
    names: tuple[str, ...]
    table: Any

    def __len__(self) -> int:
        """Number of rows."""
        return int(self.table.num_rows)

    def array(self, name: str) -> NDArray[Any]:
        """One column of numbers."""
        numbers: NDArray[Any] = self.table[name].to_numpy()
        return numbers

    def texts(self, name: str) -> list[str]:
        """One column of names."""
        texts: list[str] = self.table[name].to_pylist()
        return texts

    def fault(self, row: int, name: str, words: str) -> EvaluationFileError:
        """An error about one place of the file."""
        lines = (number for number, line in _lines(self.content) if number > self.header and line.strip())
        line = next(number for place, number in enumerate(lines) if place == row)
        return EvaluationFileError(f"{self.where}, line {line}, column {self.names.index(name) + 1} ({name}): {words}")


def read_columns(where: str, content: bytes, kinds: Mapping[str, Kind], *, separator: str, header: int = 0) -> Columns:
    """Read the first columns of a file by their kinds; of a comma-separated file any number of others may follow.

    pyarrow reads it block by block. Where that fails the block is read again line by line, which forgives repeated
    blanks and otherwise finds the line and the column at fault.
    """
    tables = []
    for first, block in _blocks(content, header):
        table = _read_at_once(block, kinds, separator)
        tables.append(_read_carefully(where, first, block, kinds, separator) if table is None else table)
    empty = pa.schema([(name, TYPES[kind]) for name, kind in kinds.items()]).empty_table()
    return Columns(where, content, header, tuple(kinds), pa.concat_tables([empty, *tables]))


def _blocks(content: bytes, header: int) -> Iterator[tuple[int, bytes]]:
    """Whole lines behind the header, some megabytes at a time, and the number of the first line of each."""
    start = 0
    for _ in range(header):
        start = content.find(b"\n", start) + 1 or len(content)
    line = header + 1
    while start < len(content):
        end = content.find(b"\n", start + BLOCK) + 1 or len(content)
        block = content[start:end]
        yield line, block
        line, start = line + block.count(b"\n"), end


def _read_at_once(content: bytes, kinds: Mapping[str, Kind], separator: str) -> Any | None:
    """The table; None when anything in it is not as it must be."""
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
    """Whether all values are what the kind allows beyond the type."""
    if kind == "truth":
        return bool(pc.all(pc.is_in(column, pa.array([0, 1], pa.int8()))).as_py())
    if kind == "number":
        return bool(pc.all(pc.is_finite(column)).as_py())
    return kind == "integer" or not pc.any(pc.match_substring_regex(column, r"^\s*$|\s")).as_py()


def _read_carefully(where: str, first: int, content: bytes, kinds: Mapping[str, Kind], separator: str) -> Any:
    values: dict[str, list[Any]] = {name: [] for name in kinds}
    for number, line in _lines(content, first):
        if not line.strip():
            continue
        cells = _cells(f"{where}, line {number}", line, list(kinds), separator)
        for place, (name, kind) in enumerate(kinds.items(), start=1):
            value = _value(cells[place - 1], kind)
            if value is None:
                found = f"{WORDS[kind]} is expected, not {cells[place - 1][:SHOWN]!r}"
                raise EvaluationFileError(f"{where}, line {number}, column {place} ({name}): {found}")
            values[name].append(value)
    return pa.table({name: pa.array(values[name], TYPES[kind]) for name, kind in kinds.items()})


def _lines(content: bytes, first: int = 1) -> Iterator[tuple[int, bytes]]:
    """Lines and their numbers, one at a time."""
    start, number = 0, first
    while start < len(content):
        end = content.find(b"\n", start)
        end = len(content) if end < 0 else end
        yield number, content[start:end]
        start, number = end + 1, number + 1


def _cells(where: str, line: bytes, names: Sequence[str], separator: str) -> list[str]:
    """What a line holds; any blanks separate columns that blanks separate."""
    text = line.decode("utf-8-sig", "replace").strip()
    cells = text.split() if separator == " " else [cell.strip() for cell in text.split(separator)]
    if len(cells) < len(names):
        missing = f"column {len(cells) + 1} ({names[len(cells)]}) is missing"
        raise EvaluationFileError(f"{where}: {missing}; found {text[:SHOWN]!r}")
    if separator == " " and len(cells) > len(names):
        extra = f"column {len(names) + 1} is one too many"
        raise EvaluationFileError(f"{where}: {extra}, {len(names)} are expected: {', '.join(names)}")
    return cells


def _value(cell: str, kind: Kind) -> str | int | float | None:
    """What a cell says; None when it is nothing of its kind."""
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
