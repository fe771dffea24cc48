"""Reading a whole source in one call, and sources in memory and on S3."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import fsspec
import numpy as np
import pytest

from gif_core.images import BadImageError
from gif_core.readers import Reader, open_reader
from gif_core.readers.base import Fault
from schemas.ingestion import Source


class Row(NamedTuple):
    """A record: where it is, whose it is, and the image or why there is none."""

    name: str
    label: str
    image: bytes | str


class Found(NamedTuple):
    """All that a source holds."""

    rows: list[Row]
    faults: list[Fault]

    @property
    def faces(self) -> list[tuple[str, bytes | str]]:
        return [(label, image) for _, label, image in self.rows]

    @property
    def reasons(self) -> list[str]:
        return [fault.reason for fault in self.faults]


def read_everything(reader: Reader) -> Found:
    listing = reader.listing
    records = np.arange(len(listing.person_R))
    assert len(listing.file_R) == len(listing.size_R) == len(records)
    labels = [listing.labels[person] for person in listing.person_R.tolist()]
    contents = [str(content) if isinstance(content, BadImageError) else content for content in reader.read(records)]
    rows = [Row(*row) for row in zip(reader.names(records), labels, contents, strict=True)]
    return Found(rows, list(listing.faults))


@pytest.fixture(scope="session")
def read_reader() -> Callable[[Reader], Found]:
    return read_everything


@pytest.fixture(scope="session")
def read_source() -> Callable[[Source], Found]:
    return lambda source: read_everything(open_reader(source))


@pytest.fixture(scope="session")
def keep_in_memory() -> Callable[[dict[str, bytes]], str]:
    """Files of a file system in memory, in place of those it had; gives their folder."""

    def keep(files: dict[str, bytes]) -> str:
        fs = fsspec.filesystem("memory")
        fs.store.clear()
        for name, content in files.items():
            fs.pipe(f"/data/{name}", content)
        return "memory://data"

    return keep


@pytest.fixture(autouse=True)
def _forget_what_was_in_memory() -> Iterator[None]:
    yield
    fsspec.filesystem("memory").store.clear()


@pytest.fixture
def upload(s3_url: str) -> Callable[[Path], str]:
    """Copies a folder to the S3 server; gives its address there."""
    import s3fs

    def copy(folder: Path) -> str:
        address = f"{s3_url}/{folder.name}"
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                s3fs.S3FileSystem().pipe(f"{address}/{path.relative_to(folder)}", path.read_bytes())
        return address

    return copy
