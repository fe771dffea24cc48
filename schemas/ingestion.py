"""Settings of ingestion: where the faces come from, which are refused, and who is kept aside."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from schemas.addresses import Address
from schemas.base import Frozen

MOST_DRAWN = 10**6
"""Identities of a synthetic source; those with higher numbers are kept for evaluation sets."""


class SyntheticSource(Frozen):
    """Faces that the project draws itself."""

    kind: Literal["synthetic"] = "synthetic"
    identities: int = Field(default=500, ge=1, le=MOST_DRAWN)
    smallest: PositiveInt = 6
    """Samples of the rarest identity."""
    largest: PositiveInt = 40
    """Samples of the most frequent identity; the numbers between are long-tailed."""
    seed: int = Field(default=0, ge=0)
    """The identities drawn; independent of the run's seed."""

    @model_validator(mode="after")
    def _check_range(self) -> "SyntheticSource":
        if self.largest < self.smallest:
            raise ValueError(f"largest={self.largest} must be at least smallest={self.smallest}")
        return self


class FolderSource(Frozen):
    """A folder with one sub-folder of images per identity, local or any fsspec URL."""

    kind: Literal["folder"] = "folder"
    path: Address
    landmarks: Address | None = None
    """A text file with lines of `label/image.jpg x1 y1 … x5 y5`: eyes, nose and mouth corners, by which the images
    are aligned. Without it they are taken as aligned already."""


class RecordIOSource(Frozen):
    """MXNet RecordIO: a `.rec` file (with or without its `.idx`), or a folder or pattern of them."""

    kind: Literal["recordio"] = "recordio"
    path: Address


class WebDatasetSource(Frozen):
    """Tar files of `key.jpg` with `key.cls` or `key.json`, or of folders per identity: one, a folder or a pattern."""

    kind: Literal["webdataset"] = "webdataset"
    path: Address
    label: str = "label"
    """The field of `key.json` that names the person; then comes `key.cls`, then the member's folder."""


class TableSource(Frozen):
    """Parquet or Arrow files with a column of images, as Hugging Face writes them: one, a folder or a pattern."""

    kind: Literal["parquet", "arrow"] = "parquet"
    path: Address
    image: str = "image"
    """Column of images: bytes, or a struct of `bytes` and `path`."""
    label: str = "label"
    """Column that names the person: numbers or text."""


SOURCE_KINDS = ("synthetic", "folder", "recordio", "webdataset", "parquet", "arrow")

Source = Annotated[
    SyntheticSource | FolderSource | RecordIOSource | WebDatasetSource | TableSource, Field(discriminator="kind")
]


class IngestionConfig(Frozen):
    """Sources → Arrow shards of faces."""

    sources: tuple[Source, ...] = Field(default=(SyntheticSource(),), min_length=1)
    held_out: float = Field(default=0.0, ge=0, lt=1)
    """Share of identities kept aside for verification: never embedded, coded or trained on."""
    min_samples: PositiveInt = 1
    """Identities with fewer images are left out."""
    smallest_side: PositiveInt = 16
    """Images narrower or lower than this many pixels go to the quarantine."""
    largest_side: PositiveInt = 4096
    """Images that declare more than this many pixels a side go to the quarantine."""
    decode_all: bool = False
    """Decode every image once. Without it a usual JPEG is checked by its structure, which is far faster and finds
    all that a decoder would refuse."""
    max_bad_fraction: float = Field(default=0.01, ge=0, le=1)
    """Stop when more than this share of the images is bad."""
    incremental: bool = True
    """When the sources have only grown since faces were ingested with these settings, read only what is new."""
    shard_bytes: int = Field(default=256 * 2**20, ge=2**16, le=2**30)
    """Image bytes in one Arrow file."""
