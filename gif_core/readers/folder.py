"""Reading a folder with one sub-folder of images per identity, local or on any fsspec file system."""

# Shapes: R records, 5 landmarks, 2 coordinates.

import errno
from array import array
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import cv2
import fsspec
import numpy as np
import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem
from numpy.typing import NDArray

from gif_core.images import (
    IMAGE_ENDINGS,
    LARGEST_IMAGE,
    LIMITS,
    BadImageError,
    ImageLimits,
    Landmarks,
    SourceFile,
    align,
    check_image,
    decode_bounded,
    read_landmarks,
)
from gif_core.readers.base import Content, Fault, is_text
from gif_core.readers.files import fingerprint
from gif_core.readers.local_folder import Entry, LocalFolder, is_image, is_visible
from gif_core.runtime import printable
from schemas.ingestion import FolderSource

LISTING_THREADS = 16
ALIGNED_QUALITY = 95
"""JPEG quality of aligned images."""

LOST = {errno.EIO, errno.ELOOP, errno.EISDIR, errno.ENAMETOOLONG}
"""Errors of one local file. Others (no memory, too many open files, a network) are not about the file."""


@dataclass(frozen=True)
class FolderListing:
    """Identities sorted by folder name, images by file name."""

    labels: list[str]
    person_R: NDArray[np.int32]
    name_R: pa.Array
    size_R: NDArray[np.int64]
    faults: Sequence[Fault] = ()

    @property
    def file_R(self) -> NDArray[np.int32]:  # noqa: N802
        """Each image is a file."""
        return np.arange(len(self.person_R), dtype=np.int32)


class FolderFiles(Sequence[SourceFile]):
    """The images as files of the source, created on access: there may be millions."""

    def __init__(self, listing: FolderListing, landmarks: SourceFile | None) -> None:
        """The files are the images, followed by the landmarks file if there is one."""
        self.listing, self.landmarks = listing, landmarks

    def __len__(self) -> int:
        """Number of files."""
        return len(self.listing.size_R) + (self.landmarks is not None)

    def __getitem__(self, row: Any) -> Any:
        """One file."""
        if self.landmarks is not None and row == len(self.listing.size_R):
            return self.landmarks
        if not 0 <= row < len(self.listing.size_R):
            raise IndexError(row)
        label = self.listing.labels[self.listing.person_R[row]]
        return SourceFile(f"{label}/{self.listing.name_R[row].as_py()}", int(self.listing.size_R[row]), "")


class FolderReader:
    """Reads one file per record; files that cannot be read are quarantined."""

    threads: int | None = None
    in_any_order = True

    def __init__(self, source: FolderSource, limits: ImageLimits = LIMITS) -> None:
        """Check that the folder exists; it is listed on first access. `limits` hold for images that are aligned."""
        self.limits = limits
        self.fs, self.root = fsspec.url_to_fs(source.path, use_listings_cache=False)
        if not self.fs.isdir(self.root):
            raise FileNotFoundError(f"ingestion.sources: there is no folder {source.path}")
        self.address, self.landmarks_address = source.path, source.landmarks

    @cached_property
    def listing(self) -> FolderListing:
        """Names and sizes of all images, in compact arrays."""
        labels: list[str] = []
        faults: list[Fault] = []
        persons, names, sizes = array("i"), [], array("q")
        for label, entries in self._list(faults):
            images = [(name, size) for name, size in entries if is_text(label + name)]
            if images:
                persons.extend([len(labels)] * len(images))
                labels.append(label)
                names.append(pa.array([name for name, _ in images], pa.large_string()))
                sizes.extend(size for _, size in images)
            if len(images) < len(entries):
                faults += [_unreadable(f"{label}/{name}") for name, _ in entries if not is_text(label + name)]
        if not labels:
            raise ValueError(
                f"ingestion.sources: {self.address} has no sub-folder with images ({' '.join(IMAGE_ENDINGS)})"
            )
        person_R, size_R = np.frombuffer(persons, np.int32), np.frombuffer(sizes, np.int64)
        return FolderListing(labels, person_R, pa.concat_arrays(names), size_R, faults)

    def _list(self, faults: list[Fault]) -> Iterator[tuple[str, list[Entry]]]:
        """The sub-folders with their images; what cannot be listed becomes a fault."""
        if not isinstance(self.fs, LocalFileSystem):
            yield from _list_identities(self.fs, self.root)
            return
        folder = LocalFolder(Path(self.root))
        yield from folder
        faults += folder.faults
        folder.warn_of_links()

    @cached_property
    def landmarks(self) -> Landmarks | None:
        """The landmarks of all images, if the source has them."""
        return read_landmarks(self.landmarks_address) if self.landmarks_address else None

    @property
    def files(self) -> FolderFiles:
        """The images, and the landmarks file."""
        return FolderFiles(self.listing, self.landmarks.file if self.landmarks else None)

    def describe(self) -> dict[str, Any]:
        """A fingerprint of all names and sizes: it changes when images are added, removed or change size."""
        return {"kind": "folder", "fingerprint": fingerprint(self.files)}

    def names(self, records: NDArray[np.int64]) -> list[str]:
        """Paths below the folder."""
        files = self.files
        return [files[record].name for record in records.tolist()]

    def read(self, records: NDArray[np.int64]) -> Iterator[Content]:
        """The images, aligned if the source has landmarks, otherwise unchanged."""
        sizes = self.listing.size_R[records].tolist()
        for name, size in zip(self.names(records), sizes, strict=True):
            try:
                if size > LARGEST_IMAGE:
                    raise BadImageError(f"too large: a file of {size} bytes")
                content = self._read_file(f"{self.root}/{name}")
                yield _align(content, name, self.landmarks, self.limits) if self.landmarks else content
            except OSError as error:
                if not self._is_lost(error):
                    raise
                yield BadImageError(f"cannot be read: {error.strerror or error}")
            except BadImageError as error:
                yield error

    def _is_lost(self, error: OSError) -> bool:
        """Whether an error is about the file itself, which is then quarantined."""
        is_local = isinstance(self.fs, LocalFileSystem)
        return isinstance(error, FileNotFoundError | PermissionError) or (is_local and error.errno in LOST)

    def _read_file(self, path: str) -> bytes:
        if isinstance(self.fs, LocalFileSystem):
            return Path(path).read_bytes()
        content: bytes = self.fs.cat_file(path)
        return content


def _unreadable(name: str) -> Fault:
    return Fault(printable(name), "its name is not UTF-8")


def _align(content: bytes, name: str, landmarks: Landmarks, limits: ImageLimits) -> bytes:
    points_52 = landmarks.points.get(name)
    if points_52 is None:
        raise BadImageError("no landmarks for this image")
    check_image(content, limits)
    image_HWC = decode_bounded(content, limits)
    try:
        face_HWC = align(image_HWC, points_52)
    except ValueError as error:
        raise BadImageError(f"its landmarks cannot be used: {error}") from None
    encoded = cv2.imencode(
        ".jpg", cv2.cvtColor(face_HWC, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, ALIGNED_QUALITY]
    )[1]
    return bytes(encoded.tobytes())


def _list_identities(fs: Any, root: str) -> Iterator[tuple[str, list[Entry]]]:
    """All sub-folders sorted by name with their images; they are listed by several threads."""
    folders = [entry["name"].rpartition("/")[2] for entry in fs.ls(root, detail=True) if entry["type"] == "directory"]
    labels = sorted(filter(is_visible, folders))
    with ThreadPoolExecutor(LISTING_THREADS) as pool:
        for start in range(0, len(labels), 16 * LISTING_THREADS):
            some = labels[start : start + 16 * LISTING_THREADS]
            yield from zip(some, pool.map(lambda label: _list_remote(fs, f"{root}/{label}"), some), strict=True)


def _list_remote(fs: Any, folder: str) -> list[Entry]:
    found = [
        (entry["name"].rpartition("/")[2], entry["size"])
        for entry in fs.ls(folder, detail=True)
        if entry["type"] == "file"
    ]
    return sorted((name, int(size)) for name, size in found if is_image(name))
