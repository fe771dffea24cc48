"""Public training sets, their years and sizes (Figure 1a)."""

from gif_core.paper.results import Chart, Grid
from schemas.datasets import DATASETS


def show_datasets() -> tuple[Grid, Chart]:
    """All sets as a table, and identities over the years."""
    rows = tuple(
        (each.name, str(each.year), f"{each.identities:,}", f"{each.images:,}", each.source) for each in DATASETS
    )
    grid = Grid("Public datasets", ("dataset", "year", "identities", "images", "numbers of"), rows)
    largest: list[tuple[float, float]] = []
    for each in DATASETS:
        if not largest or each.identities > largest[-1][1]:
            largest = [point for point in largest if point[0] != each.year]
            largest.append((each.year, each.identities))
    points: list[tuple[float, float]] = [(each.year, each.identities) for each in DATASETS]
    series = {"dataset": points, "largest so far": largest}
    return grid, Chart("Identities over the years", "year", "identities", series, loose=("dataset",), log="y")
