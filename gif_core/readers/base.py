"""What every reader of a face dataset offers."""

# Shapes: R records of a source, P identities of a source.

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gif_core.images import BadImageError, SourceFile

Content = bytes | BadImageError
"""The image file's bytes, untouched, or why there are none."""
LONGEST_LABEL: Final = 1000
"""Characters; what is longer names nobody."""


class Fault(NamedTuple):
    """Something in a source that cannot be used, found when the source was listed."""

    record: str
    reason: str


@dataclass
class Identities:
    """Numbers for the labels of a source, in the order in which they are first met."""

    labels: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, label: str) -> int:
        """The person's number, a new one for a new label."""
        found = self.numbers.setdefault(label, len(self.labels))
        if found == len(self.labels):
            self.labels.append(label)
        return found


def is_text(text: str) -> bool:
    """Whether tables can hold it: names of files and JSON may have parts of characters in them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_label(text: str) -> bool:
    """Whether it can name a person."""
    return 0 < len(text) <= LONGEST_LABEL and is_text(text)


def printable(text: str) -> str:
    """The same text, with parts of characters as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


class Listing(Protocol):
    """What a source holds: found when first asked for, without reading images where the format allows it."""

    @property
    def labels(self) -> Sequence[str]:
        """The identities' names in a stable order."""
        ...

    @property
    def person_R(self) -> NDArray[np.int32]:  # noqa: N802
        """The person on each record's image."""
        ...

    @property
    def file_R(self) -> NDArray[np.int32]:  # noqa: N802
        """The file in which each record lies, as a row of the reader's `files`."""
        ...

    @property
    def size_R(self) -> NDArray[np.int64]:  # noqa: N802
        """The bytes of each record, at least about."""
        ...

    @property
    def faults(self) -> Sequence[Fault]:
        """What is no record with a label."""
        ...


class Reader(Protocol):
    """Identities, and the encoded images of any records."""

    @property
    def files(self) -> Sequence[SourceFile]:
        """The files of the source."""
        ...

    @property
    def listing(self) -> Listing:
        """What the files hold."""
        ...

    @property
    def threads(self) -> int | None:
        """How many threads may read at once; None: as many as there are."""
        ...

    @property
    def in_any_order(self) -> bool:
        """Whether records far from each other are read about as fast as neighbours."""
        ...

    def read(self, records: NDArray[np.int64]) -> Iterator[Content]:
        """The images of these records, in the order asked for."""
        ...

    def names(self, records: NDArray[np.int64]) -> list[str]:
        """Where the records are in their source, for messages and quarantine."""
        ...

    def describe(self) -> dict[str, Any]:
        """What the source holds, as far as it can be told without reading images: part of the key."""
        ...
