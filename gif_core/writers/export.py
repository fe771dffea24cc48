"""Exporting faces of the store in a chosen format, to a folder that appears when it is complete."""

# Shapes: N faces, R exported rows.

import secrets
import shutil
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gif_core.images import Faces
from gif_core.writers.base import ExportInfo, Face, Writer
from schemas.errors import GifError


class OutputExistsError(GifError, FileExistsError):
    """The output folder exists and is not empty; nothing is overwritten."""


def export_faces(
    faces: Faces, labels: Sequence[str], rows_R: NDArray[np.int64], writer: Writer, out: Path
) -> Generator[int, None, None]:
    """Write the faces of these rows to the folder `out`; yields the number written after each one.

    An export that is stopped or fails leaves no files behind.
    """
    stream = (Face(int(faces.labels_N[row]), faces.content(row)) for row in map(int, rows_R))
    with new_folder(out) as folder:
        yield from writer(stream, ExportInfo(labels, len(rows_R)), folder)


def group_rows(labels_N: NDArray[np.int64]) -> NDArray[np.int64]:
    """All rows sorted by identity, keeping the order within each identity."""
    return np.argsort(labels_N, kind="stable")


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A hidden folder beside `out` that is renamed to `out` on success and removed on failure."""
    out = out.resolve()
    if out.exists() and not (out.is_dir() and next(out.iterdir(), None) is None):
        raise OutputExistsError(f"{out} exists and is not an empty folder: choose another, or remove it")
    partial = out.with_name(f".{out.name}.{secrets.token_hex(4)}.partial")
    partial.mkdir(parents=True)
    try:
        yield partial
        if out.exists():
            out.rmdir()
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
