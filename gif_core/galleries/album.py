"""Photographs with labels: a sub-folder per identity, or a file with a line `image,label` for each."""

import csv
import logging
from collections.abc import Iterator
from pathlib import Path

from gif_core.images import IMAGE_ENDINGS
from schemas.errors import GifError

logger = logging.getLogger(__name__)


class AlbumError(GifError, ValueError):
    """A folder or a file of labels that names no photographs."""


def read_album(folder: Path, labels: Path | None = None) -> list[tuple[str, Path]]:
    """Labels and photographs, sorted by both; paths in a file of labels are those below the folder."""
    if not folder.is_dir():
        raise AlbumError(f"there is no folder {folder}")
    found = sorted(_read_labels(folder, labels) if labels else _list_folders(folder))
    if not found:
        wanted = f"a line image,label in {labels}" if labels else "a sub-folder of images per identity"
        raise AlbumError(f"{folder} has no photographs ({' '.join(IMAGE_ENDINGS)}): it needs {wanted}")
    return found


def _list_folders(folder: Path) -> Iterator[tuple[str, Path]]:
    for each in folder.iterdir():
        if each.is_dir() and not each.name.startswith("."):
            photographs = [path for path in each.iterdir() if _is_image(path)]
            if not photographs:
                logger.warning("%s has no photographs (%s): nobody is enrolled from it", each, " ".join(IMAGE_ENDINGS))
            yield from ((each.name, path) for path in photographs)


def _read_labels(folder: Path, labels: Path) -> Iterator[tuple[str, Path]]:
    with labels.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file)
        try:
            for row in rows:
                if row:
                    yield _read_row(folder, row, f"{labels}, line {rows.line_num}")
        except (csv.Error, UnicodeDecodeError) as error:
            raise AlbumError(f"{labels}, after line {rows.line_num}: not CSV in UTF-8 ({error})") from None


def _read_row(folder: Path, row: list[str], where: str) -> tuple[str, Path]:
    if len(row) != 2:
        raise AlbumError(f"{where}: expected image,label, found {','.join(row)[:80]!r}")
    if not _is_file(folder / row[0]):
        raise AlbumError(f"{where}: there is no image {str(folder / row[0])[:200]}")
    return row[1].strip(), folder / row[0]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or has a zero byte
        return False


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_ENDINGS and not path.name.startswith(".") and path.is_file()
