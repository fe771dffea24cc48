"""What listings of a store tell."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FoundFile:
    """A file seen in a listing: its path below the root, its size, and when it was written by the store's clock."""

    path: str
    size: int
    modified: float


@dataclass(frozen=True)
class FoundUpload:
    """A file on its way in parts: where it is to be, the server's name for the upload, and when it was begun."""

    path: str
    name: str
    begun: float
