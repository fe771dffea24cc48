"""Galleries: the stored record of one version, and how its threshold was calibrated."""

from datetime import datetime
from typing import Final

from pydantic import Field, NonNegativeInt, PositiveInt

from schemas.base import Stored

GALLERY_PATTERN: Final = r"[a-z][a-z0-9_-]*"


class GalleryThreshold(Stored):
    """The cosine from which a face counts as known, and what it was calibrated on."""

    cosine: float
    fpir: float = Field(gt=0, lt=1)
    """Share of the images of unknown identities that may reach it."""
    unknown_images: PositiveInt
    unknown_identities: PositiveInt
    origin: str
    """Where the unknown identities come from."""


class GalleryVersion(Stored):
    """One version of a gallery. It is written once and never changed; the newest one is in use."""

    number: PositiveInt
    model: str
    """Key of the training whose features the templates are made of."""
    segments: tuple[str, ...] = ()
    """Names of the files that hold the templates."""
    identities: NonNegativeInt
    images: NonNegativeInt
    threshold: GalleryThreshold | None = None
    missing: str = ""
    """Why there is no threshold."""
    change: str
    """What this version changed, without names."""
    made_at: datetime
