"""The interface of readers: Reader and Listing; and faults, labels and their numbers."""

# Shapes: R records of a source.

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gif_core.images import BadImageError, SourceFile

Content = bytes | BadImageError
"""The unchanged bytes of the image file, or why there are none."""
LONGEST_LABEL: Final = 1000
"""Characters. Longer texts are not labels."""


class Fault(NamedTuple):
    """Something in a source that cannot be used, found when the source was listed."""

    record: str
    reason: str


@dataclass
class LabelNumbers:
    """Assigns numbers to the labels of a source, in the order of their first occurrence."""

    labels: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, label: str) -> int:
        """The number of a label; a new label gets the next one."""
        found = self.numbers.setdefault(label, len(self.labels))
        if found == len(self.labels):
            self.labels.append(label)
        return found


def is_text(text: str) -> bool:
    """Whether a text is valid Unicode: file names and JSON may contain lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_label(text: str) -> bool:
    """Whether a text can be a label."""
    return 0 < len(text) <= LONGEST_LABEL and is_text(text)


class Listing(Protocol):
    """The records and identities of a source, found without reading images where the format allows it."""

    @property
    def labels(self) -> Sequence[str]:
        """Labels of the identities in a stable order."""
        ...

    @property
    def person_R(self) -> NDArray[np.int32]:  # noqa: N802
        """Identity of each record, as an index into `labels`."""
        ...

    @property
    def file_R(self) -> NDArray[np.int32]:  # noqa: N802
        """File of each record, as an index into the reader's `files`."""
        ...

    @property
    def size_R(self) -> NDArray[np.int64]:  # noqa: N802
        """Approximate bytes of each record."""
        ...

    @property
    def faults(self) -> Sequence[Fault]:
        """Parts of the source that are not records with a label."""
        ...


class Reader(Protocol):
    """Reads the listing and the image files of a source."""

    @property
    def files(self) -> Sequence[SourceFile]:
        """The files of the source."""
        ...

    @property
    def listing(self) -> Listing:
        """The records and identities; computed on first access."""
        ...

    @property
    def threads(self) -> int | None:
        """Most threads that may read concurrently; None: no limit."""
        ...

    @property
    def in_any_order(self) -> bool:
        """Whether random access is about as fast as sequential reading."""
        ...

    def read(self, records: NDArray[np.int64]) -> Iterator[Content]:
        """The images of these records, in the order given."""
        ...

    def names(self, records: NDArray[np.int64]) -> list[str]:
        """Names of the records in their source, for messages and the quarantine."""
        ...

    def describe(self) -> dict[str, Any]:
        """A description of the source's content without reading images; part of the key."""
        ...


class ReaderAround:
    """What readers share that change only how another one's images are read."""

    def __init__(self, reader: Reader) -> None:
        """Take the other reader."""
        self.reader = reader

    @property
    def files(self) -> Sequence[SourceFile]:
        """The files of the source."""
        return self.reader.files

    @property
    def listing(self) -> Listing:
        """The listing of the source."""
        return self.reader.listing

    def names(self, records: NDArray[np.int64]) -> list[str]:
        """Names of the records in their source."""
        return self.reader.names(records)

    def describe(self) -> dict[str, Any]:
        """The description of the source."""
        return self.reader.describe()
