"""Settings of ingestion: the sources, the checks of images, and the held-out identities."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, PositiveInt, field_validator, model_validator

from schemas.addresses import Address
from schemas.base import Frozen, Seed

MOST_DRAWN = 10**6
"""Most identities of a synthetic source; higher identity numbers are reserved for synthetic evaluation sets."""


class SyntheticSource(Frozen):
    """Generated faces, for tests and demonstrations."""

    kind: Literal["synthetic"] = "synthetic"
    identities: int = Field(default=500, ge=1, le=MOST_DRAWN)
    """Number of identities."""
    smallest: PositiveInt = 6
    """Images of the rarest identity."""
    largest: PositiveInt = 40
    """Images of the most frequent identity; the counts in between follow a long-tailed distribution."""
    seed: Seed = 0
    """Seed of the drawn identities; independent of the run's seed."""

    @model_validator(mode="after")
    def _check_range(self) -> "SyntheticSource":
        if self.largest < self.smallest:
            raise ValueError(f"largest={self.largest} must be at least smallest={self.smallest}")
        return self


class FolderSource(Frozen):
    """A folder with one sub-folder of images per identity, local or at any fsspec URL."""

    kind: Literal["folder"] = "folder"
    path: Address
    """The folder."""
    landmarks: Address | None = None
    """Text file with lines of `label/image.jpg x1 y1 … x5 y5` (eyes, nose, mouth corners), by which images are
    aligned; null: the images are aligned already, or `detect` aligns them."""
    detect: bool = False
    """Find and align the face of every photograph; those with no face or several are quarantined. Needs the detector:
    `gif detector install`. false: the images are aligned faces."""

    @model_validator(mode="after")
    def _check_alignment(self) -> "FolderSource":
        if self.detect and self.landmarks is not None:
            raise ValueError("give landmarks or detect: true, not both: faces are aligned by one of them")
        return self


class RecordIOSource(Frozen):
    """MXNet RecordIO: a `.rec` file (with or without its `.idx`), or a folder or pattern of them."""

    kind: Literal["recordio"] = "recordio"
    path: Address
    """The file, folder or pattern."""


class WebDatasetSource(Frozen):
    """Tar files of `key.jpg` with `key.cls` or `key.json`, or with one folder per identity."""

    kind: Literal["webdataset"] = "webdataset"
    path: Address
    """A tar file, a folder of them, or a pattern."""
    label: str = "label"
    """Field of `key.json` that holds the identity's label; without it `key.cls` is used, then the member's folder."""
    detect: bool = False
    """Find and align the face of every photograph; those with no face or several are quarantined. Needs the detector:
    `gif detector install`. false: the images are aligned faces."""


class TableSource(Frozen):
    """Parquet or Arrow files with a column of images, as Hugging Face datasets have them."""

    kind: Literal["parquet", "arrow"] = "parquet"
    path: Address
    """A file, a folder of them, or a pattern."""
    image: str = "image"
    """Column of images: bytes, or a struct of `bytes` and `path`."""
    label: str = "label"
    """Column of the identities' labels: numbers or text."""
    detect: bool = False
    """Find and align the face of every photograph; those with no face or several are quarantined. Needs the detector:
    `gif detector install`. false: the images are aligned faces."""


Source = Annotated[
    SyntheticSource | FolderSource | RecordIOSource | WebDatasetSource | TableSource, Field(discriminator="kind")
]


class IngestionConfig(Frozen):
    """Sources → Arrow shards of checked, aligned faces."""

    sources: tuple[Source, ...] = Field(default=(SyntheticSource(),), min_length=1)
    """The datasets to read, each with its own `kind`. The same label in two sources is two identities."""
    held_out: float = Field(default=0.0, ge=0, lt=1)
    """Share of identities held out for evaluation: they are never encoded, given codes or trained on."""
    left_out: float | None = Field(default=None, gt=0, lt=1)
    """Share of identities that are left out altogether, before `held_out` takes its share. At the `held_out` of another
    run, none of that run's test identities is seen here: for choosing settings on other identities. null: none."""
    min_samples: PositiveInt = 1
    """Identities with fewer images are left out."""
    smallest_side: PositiveInt = 16
    """Images whose width or height is below this many pixels are quarantined."""
    largest_side: PositiveInt = 4096
    """Images whose header declares a width or height above this many pixels are quarantined."""
    decode_all: bool = False
    """Decode every image during ingestion. By default a regular JPEG is checked by its structure only, which is much
    faster and finds everything that a decoder would reject."""
    max_bad_fraction: float = Field(default=0.01, ge=0, le=1)
    """Fail when more than this share of the images is bad. Raise it for datasets known to be damaged."""
    relabel: tuple[Address, ...] | None = Field(default=None, min_length=1)
    """Lists of wrong labels of `gif faces audit`, a CSV file or several that are applied in this order: images get
    other labels or are left out. null: labels are taken as they are."""
    incremental: bool = True
    """When the sources have only grown since an earlier ingestion with the same settings, read only the new images."""
    shard_bytes: int = Field(default=256 * 2**20, ge=2**16, le=2**30)
    """Image bytes per Arrow file."""

    @property
    def shares(self) -> tuple[float, float]:
        """Where the identities that are held out begin and end, as shares of all; those before are left out."""
        begin = self.left_out or 0.0
        return begin, begin + self.held_out

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        if self.shares[1] >= 1:
            raise ValueError(f"left_out={self.left_out} and held_out={self.held_out} leave no identity to train on")
        return self

    @field_validator("relabel", mode="before")
    @classmethod
    def _take_one_file(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value
