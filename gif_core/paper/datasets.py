"""Public training sets, their years and sizes (Figure 1a)."""

from dataclasses import dataclass
from typing import Final

from gif_core.paper.results import Chart, Grid


@dataclass(frozen=True)
class Dataset:
    """A training set as its authors describe it."""

    name: str
    year: int
    identities: int
    images: int


DATASETS: Final = (
    Dataset("LFW", 2007, 5_749, 13_233),
    Dataset("CASIA-WebFace", 2014, 10_575, 494_414),
    Dataset("VGGFace", 2015, 2_622, 2_600_000),
    Dataset("MS-Celeb-1M", 2016, 100_000, 10_000_000),
    Dataset("UMDFaces", 2017, 8_277, 367_888),
    Dataset("MegaFace 2", 2017, 672_057, 4_753_320),
    Dataset("VGGFace2", 2018, 9_131, 3_310_000),
    Dataset("IMDb-Face", 2018, 59_000, 1_700_000),
    Dataset("MS1MV2", 2019, 85_742, 5_822_653),
    Dataset("MS1MV3", 2019, 93_431, 5_179_510),
    Dataset("Glint360K", 2021, 360_232, 17_091_657),
    Dataset("WebFace42M", 2021, 2_059_906, 42_474_558),
    Dataset("WebFace260M", 2021, 4_008_130, 260_890_076),
)
"""By year of publication."""


def show_datasets() -> tuple[Grid, Chart]:
    """All sets as a table, and identities over the years."""
    rows = tuple((each.name, str(each.year), f"{each.identities:,}", f"{each.images:,}") for each in DATASETS)
    grid = Grid("Public datasets", ("dataset", "year", "identities", "images"), rows)
    largest: list[tuple[float, float]] = []
    for each in DATASETS:
        if not largest or each.identities > largest[-1][1]:
            largest = [point for point in largest if point[0] != each.year]
            largest.append((each.year, each.identities))
    points: list[tuple[float, float]] = [(each.year, each.identities) for each in DATASETS]
    series = {"dataset": points, "largest so far": largest}
    return grid, Chart("Identities over the years", "year", "identities", series, loose=("dataset",), log="y")
