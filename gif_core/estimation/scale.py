"""How many identities and images a run has."""

from dataclasses import dataclass
from typing import Final

from gif_core.synthetic import sample_count
from schemas.datasets import TRAINED_ON
from schemas.errors import GifError
from schemas.ingestion import SyntheticSource
from schemas.loading import load_config
from schemas.run import RunConfig

BY_PRESET: Final = {name.lower(): each for name, each in TRAINED_ON.items()} | {
    "casia": TRAINED_ON["CASIA-WebFace"],
    "insightface-r50": TRAINED_ON["MS1MV3"],
    "insightface-r100": TRAINED_ON["Glint360K"],
    "insightface-vit-b": TRAINED_ON["WebFace42M"],
}
"""Datasets of the presets that are named after one, or train on one."""
FILE_BYTES: Final = 8000.0
"""An aligned face of 112 × 112 pixels as a JPEG file of usual quality."""
DRAWN_BYTES: Final = 4000.0


@dataclass(frozen=True)
class Scale:
    """The size of a run's data."""

    identities: int
    images: int
    drawn: bool = False
    """Whether the faces are drawn instead of read."""
    held_out: float = 0.0
    """Share of the identities that no stage but evaluation sees."""
    left_out: float = 0.0
    """Share of the identities that no stage sees."""

    @property
    def image_bytes(self) -> float:
        """Bytes of an image file."""
        return DRAWN_BYTES if self.drawn else FILE_BYTES

    @property
    def trained_identities(self) -> int:
        """Identities that get codes."""
        return max(round(self.identities * (1 - self.left_out - self.held_out)), 1)

    @property
    def trained_images(self) -> int:
        """Images that are encoded and trained on."""
        return max(round(self.images * (1 - self.left_out - self.held_out)), 1)

    @property
    def held_out_images(self) -> int:
        """Images of the identities that only evaluation sees."""
        return round(self.images * self.held_out)

    @property
    def stored_images(self) -> int:
        """Images that ingestion checks and writes."""
        return self.trained_images + self.held_out_images


def find_scale(config: RunConfig, identities: int | None = None, images: int | None = None) -> Scale:
    """The numbers that are given; else those of the preset's dataset if it is read, or of synthetic sources."""
    drawn = all(isinstance(source, SyntheticSource) for source in config.ingestion.sources)
    found = _count_drawn(config) if drawn else _find_dataset(config)
    if found is None and (identities is None or images is None):
        raise GifError(
            "the sources are not read for an estimate: say how large they are with --identities and --images, "
            "such as --identities 2e6 --images 4.2e7"
        )
    usual = found or (0, 0)
    if identities is not None and images is None:
        images = round(usual[1] * identities / usual[0])
    given = config.ingestion
    return Scale(identities or usual[0], images or usual[1], drawn, given.held_out, given.left_out or 0.0)


def _count_drawn(config: RunConfig) -> tuple[int, int]:
    sources = [source for source in config.ingestion.sources if isinstance(source, SyntheticSource)]
    counts = [
        sample_count(source.seed, identity, smallest=source.smallest, largest=source.largest)
        for source in sources
        for identity in range(source.identities)
    ]
    return len(counts), sum(counts)


def _find_dataset(config: RunConfig) -> tuple[int, int] | None:
    """The preset's dataset, if it is still what the run reads: its sources may have been replaced."""
    if config.preset is None:
        return None
    usual = load_config({"preset": config.preset, "data": config.data})
    if config.ingestion.sources != usual.ingestion.sources:
        return None
    name = config.preset.removeprefix("paper/").removesuffix("-r100").removesuffix("-vit-b")
    found = BY_PRESET.get(config.preset, BY_PRESET.get(name))
    return (found.identities, found.images) if found else None
