"""Faces that the project draws itself, as a source like any other."""

from functools import cached_property
from typing import Any

from gif_core.readers.base import SourceIdentity
from gif_core.synthetic import draw_jpeg, sample_count
from schemas.ingestion import SyntheticSource


class SyntheticReader:
    """Every sample is drawn when it is read; nothing is stored."""

    waits = False

    def __init__(self, source: SyntheticSource) -> None:
        """Nothing is drawn or counted before it is asked for."""
        self.source = source

    @cached_property
    def identities(self) -> list[SourceIdentity]:
        """Everybody, with the number of their samples."""
        return [SourceIdentity(f"person-{i:06d}", self._count(i)) for i in range(self.source.identities)]

    def read(self, identity: int, sample: int) -> bytes:
        """A JPEG file."""
        return draw_jpeg(self.source.seed, identity, sample)

    def name(self, identity: int, sample: int) -> str:
        """Person and number."""
        return f"{self.identities[identity].label}/{sample}"

    def describe(self) -> dict[str, Any]:
        """The settings are all there is to know."""
        return self.source.model_dump(mode="json")

    def _count(self, identity: int) -> int:
        source = self.source
        return sample_count(source.seed, identity, smallest=source.smallest, largest=source.largest)
