"""What every reader of a face dataset offers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class SourceIdentity:
    """One person as the source names them."""

    label: str
    num_samples: int


class Reader(Protocol):
    """Identities in a stable order, and the encoded image of any sample. Safe to call from many threads."""

    @property
    def identities(self) -> Sequence[SourceIdentity]:
        """Everybody in the source."""
        ...

    @property
    def waits(self) -> bool:
        """Whether reading waits for a disk or a network, so that several threads are faster than one."""
        ...

    def read(self, identity: int, sample: int) -> bytes:
        """The image file's bytes, untouched."""
        ...

    def name(self, identity: int, sample: int) -> str:
        """Where the sample is in its source, for messages and quarantine."""
        ...

    def describe(self) -> dict[str, Any]:
        """What the source holds, as far as it can be told without reading images: part of the key."""
        ...
