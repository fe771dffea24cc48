"""Entries of a store's listings: files and unfinished uploads."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FoundFile:
    """A file: its path below the root, its size, and when it was written by the store's clock."""

    path: str
    size: int
    modified: float


@dataclass(frozen=True)
class FoundUpload:
    """An unfinished multipart upload: target path, upload id, and start time."""

    path: str
    name: str
    begun: float
