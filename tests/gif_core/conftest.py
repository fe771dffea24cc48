"""Shards of given images, for all that reads faces."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from gif_core.shards import SCHEMA

WriteShard = Callable[[Path, Sequence[tuple[int, str, bytes]], int], Path]


@pytest.fixture(scope="session")
def write_shard() -> WriteShard:
    """Writes identity, name and encoded image of some faces, `batch_size` of them in a record batch."""

    def write(path: Path, faces: Sequence[tuple[int, str, bytes]], batch_size: int) -> Path:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
            for start in range(0, len(faces), batch_size):
                columns = zip(*faces[start : start + batch_size], strict=True)
                arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
                writer.write_batch(pa.record_batch(arrays, schema=SCHEMA))
        return path

    return write
