"""A folder with one sub-folder of images per identity, local or on any fsspec file system."""

import hashlib
from typing import Any

import fsspec

from gif_core.readers.base import SourceIdentity
from schemas.ingestion import FolderSource

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp")


class FolderReader:
    """Identities in the order of their folder names, samples in the order of their file names."""

    waits = True

    def __init__(self, source: FolderSource) -> None:
        """List the folder once; images are read when asked for."""
        self.fs, self.root = fsspec.url_to_fs(source.path)
        if not self.fs.isdir(self.root):
            raise FileNotFoundError(f"ingestion.sources: there is no folder {source.path}")
        self.files, self.fingerprint = self._list()
        if not self.files:
            wanted = " ".join(IMAGE_ENDINGS)
            raise ValueError(f"ingestion.sources: {source.path} has no sub-folder with images ({wanted})")
        self.identities = [SourceIdentity(label, len(names)) for label, names in self.files.items()]

    def read(self, identity: int, sample: int) -> bytes:
        """The image file's bytes, untouched."""
        content: bytes = self.fs.cat_file(f"{self.root}/{self.name(identity, sample)}")
        return content

    def name(self, identity: int, sample: int) -> str:
        """Path below the folder."""
        label = self.identities[identity].label
        return f"{label}/{self.files[label][sample]}"

    def describe(self) -> dict[str, Any]:
        """A digest of all names and sizes: it changes when images come, go or change size."""
        return {"kind": "folder", "fingerprint": self.fingerprint}

    def _list(self) -> tuple[dict[str, list[str]], str]:
        files: dict[str, list[str]] = {}
        digest = hashlib.sha256()
        found = self.fs.find(self.root, maxdepth=2, detail=True)
        for path in sorted(found):
            label, _, name = path.removeprefix(f"{self.root}/").partition("/")
            if name.lower().endswith(IMAGE_ENDINGS):
                files.setdefault(label, []).append(name)
                digest.update(f"{label}/{name}\0{found[path]['size']}\n".encode())
        return files, digest.hexdigest()
