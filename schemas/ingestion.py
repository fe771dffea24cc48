"""Settings of ingestion: where the faces come from and which identities are kept aside."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from schemas.addresses import Address
from schemas.base import Frozen


class SyntheticSource(Frozen):
    """Faces that the project draws itself."""

    kind: Literal["synthetic"] = "synthetic"
    identities: PositiveInt = 500
    smallest: PositiveInt = 6
    """Samples of the rarest identity."""
    largest: PositiveInt = 40
    """Samples of the most frequent identity; the numbers between are long-tailed."""
    seed: int = Field(default=0, ge=0)
    """The people drawn; independent of the run's seed."""

    @model_validator(mode="after")
    def _check_range(self) -> "SyntheticSource":
        if self.largest < self.smallest:
            raise ValueError(f"largest={self.largest} must be at least smallest={self.smallest}")
        return self


class FolderSource(Frozen):
    """A folder with one sub-folder of images per identity, local or any fsspec URL."""

    kind: Literal["folder"] = "folder"
    path: Address


SOURCE_KINDS = ("synthetic", "folder")

Source = Annotated[SyntheticSource | FolderSource, Field(discriminator="kind")]


class IngestionConfig(Frozen):
    """Sources → Arrow shards of faces."""

    sources: tuple[Source, ...] = Field(default=(SyntheticSource(),), min_length=1)
    held_out: float = Field(default=0.0, ge=0, lt=1)
    """Share of identities kept aside for verification: never embedded, coded or trained on."""
    min_samples: PositiveInt = 1
    """Identities with fewer images are left out."""
    shard_bytes: int = Field(default=256 * 2**20, ge=2**16, le=2**30)
    """Image bytes in one Arrow file."""
