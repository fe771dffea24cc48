"""Public training sets: identities and images of each, and where the numbers are from."""

from dataclasses import dataclass
from typing import Final

FILES: Final = "insightface's files"
"""Numbers of the files that presets read, which may differ from what the authors describe."""
AUTHORS: Final = "its authors"


@dataclass(frozen=True)
class Dataset:
    """A training set; numbers of its authors may be rounded."""

    name: str
    year: int
    """Of publication."""
    identities: int
    images: int
    source: str


DATASETS: Final = (
    Dataset("LFW", 2007, 5_749, 13_233, AUTHORS),
    Dataset("CASIA-WebFace", 2014, 10_572, 490_623, FILES),
    Dataset("VGGFace", 2015, 2_622, 2_600_000, AUTHORS),
    Dataset("MS-Celeb-1M", 2016, 100_000, 10_000_000, AUTHORS),
    Dataset("UMDFaces", 2017, 8_277, 367_888, AUTHORS),
    Dataset("MegaFace 2", 2017, 672_057, 4_753_320, AUTHORS),
    Dataset("VGGFace2", 2018, 9_131, 3_310_000, AUTHORS),
    Dataset("IMDb-Face", 2018, 59_000, 1_700_000, AUTHORS),
    Dataset("MS1MV2", 2019, 85_742, 5_822_653, FILES),
    Dataset("MS1MV3", 2019, 93_431, 5_179_510, FILES),
    Dataset("Glint360K", 2021, 360_232, 17_091_657, FILES),
    Dataset("WebFace4M", 2021, 205_990, 4_235_242, FILES),
    Dataset("WebFace12M", 2021, 617_970, 12_720_066, FILES),
    Dataset("WebFace42M", 2021, 2_059_906, 42_474_557, FILES),
    Dataset("WebFace260M", 2021, 4_008_130, 260_890_076, AUTHORS),
)
"""By year of publication."""
TRAINED_ON: Final = {each.name: each for each in DATASETS if each.source == FILES}
"""Those that presets train on, by name."""
