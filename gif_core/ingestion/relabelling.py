"""Lists of wrong labels: which images get another label or are left out, as `gif faces audit` writes them.

A list is a CSV file. Its first line names the format and its version, the second the columns; see COLUMNS.
"""

import csv
import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import fsspec
from fsspec.implementations.local import LocalFileSystem

from gif_core.artifacts import file_sha256
from gif_core.readers import is_label
from schemas.errors import GifError

FIRST_LINE: Final = "# gif relabel 1"
"""Format and version; another version is refused."""
COLUMNS: Final = ("source", "record", "label", "new_label", "reason", "score")
"""Number of the source in `ingestion.sources` from 0, name of the image there, its label, the label it gets (empty: the
image is left out), and why: a word and a number, which ingestion only repeats."""
LARGEST: Final = 2**30
"""Bytes of a list; ten million rows are smaller."""
AUDIT_AGAIN: Final = "write it again with 'gif faces audit'"


class RelabellingError(GifError, ValueError):
    """A list of wrong labels that is damaged, of another version, or made for other sources."""


class Change(NamedTuple):
    """A row of a list: one image and the label it gets."""

    source: int
    record: str
    label: str
    new_label: str
    """Empty: the image is left out."""
    reason: str = ""
    score: str = ""


@dataclass(frozen=True)
class Relabelling:
    """The rows of a list, and where they come from."""

    address: str
    changes: Sequence[Change]

    @property
    def moved(self) -> int:
        """Images that get another label."""
        return sum(bool(change.new_label) for change in self.changes)

    @property
    def dropped(self) -> int:
        """Images that are left out."""
        return len(self.changes) - self.moved


def describe_relabelling(addresses: Iterable[str]) -> list[str]:
    """What a key says of lists: their digests in the order in which they are applied."""
    return [f"sha256:{_digest(address)}" for address in addresses]


def read_relabelling(address: str) -> Relabelling:
    """Read and check a list; RelabellingError with the line if something is wrong with it."""
    try:
        text = _read(address).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RelabellingError(f"ingestion.relabel: {address} is not UTF-8 ({error.reason}): {AUDIT_AGAIN}") from None
    return Relabelling(address, list(_parse(address, text)))


def write_relabelling(path: Path, changes: Iterable[Change]) -> None:
    """Write a list; it appears under its name when it is complete."""
    partial = path.with_name(f".{path.name}")
    with partial.open("w", encoding="utf-8", newline="") as file:
        file.write(f"{FIRST_LINE}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(changes)
    partial.replace(path)


def _digest(address: str) -> str:
    """SHA-256 of the content; a local file is read once however often it is asked for."""
    fs, path = _find(address)
    return file_sha256(Path(path)) if isinstance(fs, LocalFileSystem) else hashlib.sha256(_read(address)).hexdigest()


def _find(address: str) -> tuple[Any, str]:
    fs, path = fsspec.url_to_fs(address)
    if not fs.isfile(path):
        raise RelabellingError(f"ingestion.relabel: there is no file {address}; 'gif faces audit' writes one")
    return fs, path


def _read(address: str) -> bytes:
    fs, path = _find(address)
    if fs.size(path) > LARGEST:
        raise RelabellingError(f"ingestion.relabel: {address} has more than {LARGEST:,} bytes")
    content: bytes = fs.cat_file(path)
    return content


def _parse(address: str, text: str) -> Iterator[Change]:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        _check_head(address, next(rows, []), next(rows, []))
        for row in rows:
            if row:
                yield _change(f"ingestion.relabel: {address}, line {rows.line_num}", row)
    except csv.Error as error:
        where = f"ingestion.relabel: {address}, line {rows.line_num}"
        raise RelabellingError(f"{where}: not CSV ({error}): {AUDIT_AGAIN}") from None


def _check_head(address: str, first: list[str], columns: list[str]) -> None:
    """Refuse other formats and versions; spreadsheets fill up lines with empty cells."""
    if not first or first[0].strip() != FIRST_LINE:
        raise RelabellingError(
            f"ingestion.relabel: {address} must begin with the line '{FIRST_LINE}', not {''.join(first)[:40]!r}: "
            f"{AUDIT_AGAIN}"
        )
    if tuple(columns) != COLUMNS:
        found = ",".join(columns)[:80]
        raise RelabellingError(
            f"ingestion.relabel: {address}, line 2: the columns must be {','.join(COLUMNS)}, not {found}"
        )


def _change(where: str, row: list[str]) -> Change:
    if len(row) != len(COLUMNS):
        raise RelabellingError(f"{where}: {len(row)} cells instead of {len(COLUMNS)}")
    source, record, label, new_label, reason, score = row
    if not (source.isascii() and source.isdecimal() and len(source) < 10):
        raise RelabellingError(f"{where}: source {source[:40]!r} is not the number of a source")
    if not record or not is_label(label):
        raise RelabellingError(f"{where}: record and label must not be empty")
    if new_label and not is_label(new_label):
        raise RelabellingError(f"{where}: {new_label[:40]!r}… is too long for a label")
    return Change(int(source), record, label, new_label, reason, score)
