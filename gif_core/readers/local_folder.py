"""Listing a local folder of one sub-folder per identity: links, and entries that cannot be listed."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from gif_core.images import IMAGE_ENDINGS
from gif_core.readers.base import Fault
from gif_core.runtime import counted, printable

logger = logging.getLogger(__name__)

Entry = tuple[str, int]
"""A file's name and size."""


class LocalFolder:
    """Iterates over the sub-folders sorted by name, each with its images; an entry that fails becomes a fault."""

    def __init__(self, root: Path) -> None:
        """Nothing is listed yet."""
        self.root = root
        self.home = Path(os.path.realpath(root))
        self.faults: list[Fault] = []
        self.outward: list[str] = []
        """Links that lead out of the folder."""

    def __iter__(self) -> Iterator[tuple[str, list[Entry]]]:
        """Labels with names and sizes of images."""
        entries = (entry for entry in self._scan(self.root, "") if is_visible(entry.name))
        for label in sorted(entry.name for entry in entries if self._is(entry, "", folder=True)):
            yield label, sorted(self._images(label))

    def warn_of_links(self) -> None:
        """Log the links that lead out of the folder: whoever made the folder chose files elsewhere to be read."""
        if self.outward:
            logger.warning(
                "ingestion.sources: %s out of %s, which reading follows, for example %s",
                counted(len(self.outward), "link leads", "links lead"),
                self.root,
                self.outward[0],
            )

    def _images(self, label: str) -> Iterator[Entry]:
        for entry in self._scan(self.root / label, label):
            if is_image(entry.name) and self._is(entry, label, folder=False):
                try:
                    yield entry.name, entry.stat().st_size
                except OSError as error:
                    self._fail(f"{label}/{entry.name}", error)

    def _scan(self, folder: Path, name: str) -> list["os.DirEntry[str]"]:
        """The entries of a folder; of a sub-folder that cannot be listed, none."""
        try:
            with os.scandir(folder) as found:
                return list(found)
        except OSError as error:
            if not name:
                raise
            self._fail(name, error)
            return []

    def _is(self, entry: "os.DirEntry[str]", label: str, *, folder: bool) -> bool:
        """Whether an entry, or what it links to, is a folder or a regular file."""
        name = f"{label}/{entry.name}" if label else entry.name
        try:
            found = entry.is_dir() if folder else entry.is_file()
            if found and entry.is_symlink():
                self._note_link(name, entry.path)
        except OSError as error:
            if is_image(entry.name) or folder:
                self._fail(name, error)
            return False
        return found

    def _note_link(self, name: str, path: str) -> None:
        target = Path(os.path.realpath(path))
        if not target.is_relative_to(self.home):
            self.outward.append(f"{printable(name)} -> {printable(str(target))}")

    def _fail(self, name: str, error: OSError) -> None:
        self.faults.append(Fault(printable(name), f"cannot be read: {error.strerror or error}"))


def is_visible(name: str) -> bool:
    """Names that start with a dot belong to the system."""
    return not name.startswith(".")


def is_image(name: str) -> bool:
    """Whether a name is that of an image file."""
    return is_visible(name) and name.lower().endswith(IMAGE_ENDINGS)
