"""Reading generated faces, through the same interface as other sources."""

# Shapes: R records, P identities.

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gif_core.images import SourceFile
from gif_core.readers.base import Content, Fault
from gif_core.synthetic import draw_jpeg, label_of, sample_count
from schemas.ingestion import SyntheticSource


@dataclass(frozen=True)
class SyntheticListing:
    """All identities in order."""

    labels: list[str]
    counts_P: NDArray[np.int32]
    faults: Sequence[Fault] = ()

    @cached_property
    def person_R(self) -> NDArray[np.int32]:  # noqa: N802
        """Identity of each record."""
        return np.repeat(np.arange(len(self.counts_P), dtype=np.int32), self.counts_P)

    @property
    def size_R(self) -> NDArray[np.int64]:  # noqa: N802
        """Approximate bytes of a drawn JPEG."""
        return np.full(len(self.person_R), 4096)

    @property
    def file_R(self) -> NDArray[np.int32]:  # noqa: N802
        """Each identity counts as a file."""
        return self.person_R

    @cached_property
    def start_P(self) -> NDArray[np.int64]:  # noqa: N802
        """First record of each identity."""
        return np.cumsum(self.counts_P, dtype=np.int64) - self.counts_P


class SyntheticReader:
    """Draws every image when it is read."""

    threads: int | None = 1
    """Drawing holds the GIL: more threads would be slower."""
    in_any_order = True

    def __init__(self, source: SyntheticSource) -> None:
        """Nothing is drawn yet."""
        self.source = source

    @cached_property
    def listing(self) -> SyntheticListing:
        """All identities with their number of images."""
        identities = range(self.source.identities)
        counts = np.fromiter((self._count(person) for person in identities), np.int32, len(identities))
        return SyntheticListing([label_of(person) for person in identities], counts)

    @cached_property
    def files(self) -> list[SourceFile]:
        """Each identity counts as a file."""
        mark = f"{self.source.seed}/{self.source.smallest}/{self.source.largest}"
        counts = self.listing.counts_P.tolist()
        return [SourceFile(label, count, mark) for label, count in zip(self.listing.labels, counts, strict=True)]

    def read(self, records: NDArray[np.int64]) -> Iterator[Content]:
        """Draw these records as JPEG files."""
        for record in records.tolist():
            yield draw_jpeg(self.source.seed, *self._place(record))

    def names(self, records: NDArray[np.int64]) -> list[str]:
        """Label and number of the image."""
        places = map(self._place, records.tolist())
        return [f"{self.listing.labels[person]}/{sample}" for person, sample in places]

    def describe(self) -> dict[str, Any]:
        """The settings, which determine all images."""
        return self.source.model_dump(mode="json")

    def _place(self, record: int) -> tuple[int, int]:
        person = int(self.listing.person_R[record])
        return person, record - int(self.listing.start_P[person])

    def _count(self, identity: int) -> int:
        source = self.source
        return sample_count(source.seed, identity, smallest=source.smallest, largest=source.largest)
