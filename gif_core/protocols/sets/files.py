"""The files of an evaluation set, in a folder or at any fsspec URL."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import fsspec
from fsspec.implementations.local import LocalFileSystem

from gif_core.artifacts import file_sha256
from schemas.errors import GifError


class EvaluationFileError(GifError, ValueError):
    """An invalid file of an evaluation set; the message says where."""


class EvaluationFiles:
    """The files of one set, by their names below its folder."""

    def __init__(self, address: str) -> None:
        """Resolve the address; nothing is read yet."""
        self.address = address
        self.fs, root = fsspec.url_to_fs(address, use_listings_cache=False)
        self.root: str = root.rstrip("/")

    def where(self, name: str) -> str:
        """Return the address of a file, for messages."""
        return f"{self.address.rstrip('/')}/{name}" if name else self.address

    @property
    def whole_address(self) -> str:
        """The absolute address, for processes with another working directory."""
        return str(self.fs.unstrip_protocol(self.root))

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        return bool(self.fs.isfile(self._path(name)))

    def read(self, name: str = "", most: int | None = None) -> bytes:
        """Read a file below the address, or the address itself, of at most `most` bytes."""
        try:
            self._refuse_larger(name, most)
            content: bytes = self.fs.cat_file(self._path(name))
        except (FileNotFoundError, IsADirectoryError):
            raise FileNotFoundError(f"evaluation.sets: there is no file {self.where(name)}") from None
        return content

    def digest(self, names: Iterable[str], most: int | None = None) -> str:
        """Return one digest of the contents of these files, of at most `most` bytes each."""
        total = hashlib.sha256()
        for name in names:
            total.update(f"{name}\0{self._sha256(name, most)}\n".encode())
        return total.hexdigest()

    def _sha256(self, name: str, most: int | None) -> str:
        """Return the digest of one file; a local file is read once while it does not change."""
        local = Path(self._path(name))
        if not isinstance(self.fs, LocalFileSystem) or not local.is_file():
            return hashlib.sha256(self.read(name, most)).hexdigest()
        self._refuse_larger(name, most)
        return file_sha256(local)

    def _refuse_larger(self, name: str, most: int | None) -> None:
        if most is not None and (self.fs.size(self._path(name)) or 0) > most:
            raise EvaluationFileError(f"{self.where(name)} is larger than the limit of {most:,} bytes")

    def listing(self, folder: str = "") -> dict[str, int]:
        """Return the names, relative to the set, and sizes of all files below a folder."""
        if not self.fs.isdir(self._path(folder)):
            raise FileNotFoundError(f"evaluation.sets: there is no folder {self.where(folder)}")
        found = self.fs.find(self._path(folder), detail=True)
        return {path.removeprefix(f"{self.root}/"): int(found[path]["size"]) for path in sorted(found)}

    def digest_sizes(self, folder: str = "", listing: Mapping[str, int] | None = None) -> str:
        """Return one digest of the names and sizes of all files below a folder, or of a given listing."""
        total = hashlib.sha256()
        for name, size in (self.listing(folder) if listing is None else listing).items():
            total.update(f"{name}\0{size}\n".encode("utf-8", "surrogateescape"))
        return total.hexdigest()

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root
