"""Scores of runs as the paper's tables and figures, with the published numbers beside ours."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Final

from gif_core.paper.results import Chart, Grid
from gif_core.reporting import PUBLISHED, ScoredRun, benchmark_of
from gif_core.reporting.published import BY_PAPER, NUM_IDENTITIES, PAPER
from gif_core.runtime import set_name
from gif_core.sweeps import Line, Section
from gif_core.tokenization import code_shape
from gif_core.training import MeasuredCentroids
from schemas.experiments import Experiment, Row, Scale
from schemas.tokenization import TokenizationConfig

METHOD: Final = "Method"
NOTHING: Final = "–"
Column = tuple[str, str]
"""A set and a metric."""
Series = dict[str, list[tuple[float, float]]]
OF_LENGTHS: Final = ("CASIA-WebFace", "MS1MV2", "WebFace4M")
"""The training sets of Figure 5f."""
PAPER_BATCH: Final = 4096
PAPER_BUDGET: Final = (
    "The paper: the training set and network that it names, 20 epochs (ResNet) or 40 (ViT), "
    f"batches of {PAPER_BATCH} in all."
)
PAPER_TRAINING: Final = {"R50": ("iresnet50", 20), "R100": ("iresnet100", 20), "ViT-B": ("vit_base", 40)}
"""Backbone and epochs by the paper's name of F_θ; rows that do not name it have R100."""


@dataclass(frozen=True)
class RowScores:
    """A row of an experiment, and its runs by seed; none if all failed."""

    row: Row
    runs: Mapping[int, ScoredRun]

    def values(self, column: Column) -> list[float]:
        """The metric of every seed that has it, in percent."""
        title, metric = column
        found = (run.scores.get(title, {}).get(metric) for run in self.runs.values())
        return [100 * value for value in found if value is not None]


def show_scores(
    experiment: Experiment, rows: Sequence[RowScores], scale: Scale, differences: Sequence[Section] = ()
) -> tuple[list[Grid], list[Chart], list[str]]:
    """The table in the paper's form, the figure that it belongs to, and what differs from the paper.

    With `differences`, a second table has those to the row that others are compared with.
    """
    columns = find_columns(experiment, rows)
    grids, remarks = [_tabulate(experiment, rows, columns, scale)], describe_budgets(rows)
    if differences:
        base = experiment.base_label(scale)
        if any(line.variant == base for section in differences for line in section.lines):
            grids.append(_tabulate_differences(differences, columns, base))
        else:
            remarks.append(f"No differences: {base}, with which the other rows are compared, has no scores.")
    return grids, list(_draw(experiment, rows, columns)), remarks


def _tabulate_differences(sections: Sequence[Section], columns: Mapping[str, Column], base: str) -> Grid:
    """Differences in points, each with the larger of its standard errors over seeds and over identities."""
    found = {(section.set, section.metric): {line.variant: line for line in section.lines} for section in sections}
    names = dict.fromkeys(line.variant for section in sections for line in section.lines if line.variant != base)
    rows = tuple(
        (name, *(_difference(found.get(column, {}).get(name)) for column in columns.values())) for name in names
    )
    title = f"Difference to {base} in points, ± standard error (the larger of that over seeds and over identities)"
    return Grid(title, (METHOD, *columns), rows)


def _difference(line: Line | None) -> str:
    if line is None or line.difference is None:
        return NOTHING
    errors = [error for error in (line.seed_error, line.identity_error) if error is not None]
    return f"{100 * line.difference:+.2f}" + (f" ± {100 * max(errors):.2f}" if errors else "")


def find_columns(experiment: Experiment, rows: Sequence[RowScores]) -> dict[str, Column]:
    """Names of columns, and the metrics in them: accuracy of pairs, and TAR at the experiment's FARs.

    Benchmarks come in the paper's order, other sets after them.
    """
    runs = [run for row in rows for run in row.runs.values()]
    titles = dict.fromkeys(title for run in runs for title in run.scores)
    found: dict[str, Column] = {}
    for title in titles:
        known = {name for run in runs for name in run.scores.get(title, {})}
        name = benchmark_of("bin", title) or set_name(title)
        is_pairs = "accuracy" in known
        if is_pairs:
            found[name] = (title, "accuracy")
        rates = [
            far for far in (experiment.pair_fars if is_pairs else experiment.fars) if f"tar_at_far_{far:g}" in known
        ]
        for far in rates:
            single = not is_pairs and len(experiment.fars) == 1
            found[name if single else _with_rate(name, far)] = (title, f"tar_at_far_{far:g}")
    wanted = [name for name in experiment.columns if name in found]
    return {name: found[name] for name in dict.fromkeys([*wanted, *found])}


def _with_rate(name: str, far: float) -> str:
    """As the paper writes it where it has several rates."""
    return f"{name} {far:.0e}".replace("e-0", "e-")


def _tabulate(experiment: Experiment, rows: Sequence[RowScores], columns: Mapping[str, Column], scale: Scale) -> Grid:
    """Rows as in the paper: method, what the paper says of it, our percentages, the paper's."""
    about = list(dict.fromkeys(name for each in rows for name in each.row.about))
    printed = [published_of(each.row) for each in rows]
    theirs = [name for name in experiment.columns if any(name in each for each in printed)]
    names = [f"{name} (paper)" if scale == "demo" else name for name in about]
    head = (experiment.x or METHOD, *names, *columns, *(f"{name}, paper" for name in theirs))
    lines = [
        (
            each.row.name,
            *(each.row.about.get(name, NOTHING) for name in about),
            *(_cell(each.values(column)) for column in columns.values()),
            *(f"{numbers[name]:.2f}" if name in numbers else NOTHING for name in theirs),
        )
        for each, numbers in zip(rows, printed, strict=True)
    ]
    if experiment.improvement:
        lines.append(_improvement(rows, printed, list(columns.values()), theirs, len(about)))
    title = "Accuracy of pairs and TAR of templates in percent, ± standard deviation over seeds"
    return Grid(title, head, tuple(lines), 1 + len(about))


def _cell(values: Sequence[float]) -> str:
    if not values:
        return NOTHING
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def _improvement(
    rows: Sequence[RowScores],
    printed: Sequence[Mapping[str, float]],
    columns: Sequence[Column],
    theirs: Sequence[str],
    about: int,
) -> tuple[str, ...]:
    """The last row minus the first, as the paper's Table 3 has it."""
    pairs = [(rows[0].values(column), rows[-1].values(column)) for column in columns]
    ours = (f"{mean(last) - mean(first):+.2f}" if first and last else NOTHING for first, last in pairs)
    paper = (f"{printed[-1][name] - printed[0][name]:+.2f}" for name in theirs)
    return ("Improvement", *[""] * about, *ours, *paper)


def published_of(row: Row) -> Mapping[str, float]:
    """Percentages that the paper prints for a row, by its columns."""
    if row.published:
        return row.published
    wanted = (row.name, row.about.get("F_θ"), row.about.get("Train set"))
    for each in PUBLISHED:
        if (each.method, each.backbone, each.trained_on) == wanted and each.source in (PAPER, BY_PAPER):
            return {name: round(100 * value, 2) for name, value in each.by_benchmark().items()}
    return {}


def describe_budgets(rows: Sequence[RowScores]) -> list[str]:
    """A line on our data, network and budget, and one on the paper's; and whether they differ."""
    settings = [(run, each.row) for each in rows for run in each.runs.values()]
    if not settings:
        return []
    ours = list(dict.fromkeys(_budget(run) for run, _ in settings))
    lines = [f"Here: {'; '.join(ours)}.", PAPER_BUDGET]
    if not all(_as_in_the_paper(run, row) for run, row in settings):
        lines.append(
            "Data, network or budget differ from the paper's: compare rows with each other, not with the paper."
        )
    return lines


def _budget(run: ScoredRun) -> str:
    given = run.settings
    return (
        f"{_identities(run):,} identities, {given['training.backbone']}, {given['training.epochs']} epochs, "
        f"batches of {given['training.batch_size']}"
    )


def _identities(run: ScoredRun) -> int:
    return int(run.lineage["tokenization"].metrics["identities"])


def _as_in_the_paper(run: ScoredRun, row: Row) -> bool:
    """Whether data, network, epochs and images of a step, over all processes, are the paper's."""
    identities = NUM_IDENTITIES.get(row.about.get("Train set", "MS1MV2"))
    training = PAPER_TRAINING.get(row.about.get("F_θ", "R100"), PAPER_TRAINING["R100"])
    given = tuple(run.settings[f"training.{name}"] for name in ("backbone", "epochs", "batch_size"))
    return _identities(run) == identities and given == (*training, PAPER_BATCH)


def _draw(experiment: Experiment, rows: Sequence[RowScores], columns: Mapping[str, Column]) -> Iterator[Chart]:
    if experiment.form == "bars":
        series: Series = {
            each.row.name: [
                (place, mean(values))
                for place, column in enumerate(columns.values())
                if (values := each.values(column))
            ]
            for each in rows
        }
        yield Chart(experiment.title, "", "percent", series, kind="bars", labels=tuple(columns))
    elif experiment.form == "curve":
        yield _draw_curve(experiment, rows, columns)
    elif experiment.form == "lengths":
        yield _draw_lengths(experiment, rows, columns)
        yield _draw_vocab_sizes(rows)


def _draw_curve(experiment: Experiment, rows: Sequence[RowScores], columns: Mapping[str, Column]) -> Chart:
    """A line for each set over the rows, and horizontal lines for the rows that the paper draws so."""
    on_axis = sorted((each for each in rows if each.row.name not in experiment.levels), key=lambda e: float(e.row.name))
    series: Series = {
        name: [(place, mean(values)) for place, each in enumerate(on_axis) if (values := each.values(column))]
        for name, column in columns.items()
    }
    levels = {
        f"{each.row.name}: {name}": mean(values)
        for each in rows
        if each.row.name in experiment.levels
        for name, column in columns.items()
        if (values := each.values(column))
    }
    labels = tuple(each.row.name for each in on_axis)
    return Chart(experiment.title, experiment.x, "percent", series, labels=labels, levels=levels)


def _draw_lengths(experiment: Experiment, rows: Sequence[RowScores], columns: Mapping[str, Column]) -> Chart:
    """Figure 5e: the mean accuracy over all sets of pairs."""
    pairs = [column for column in columns.values() if column[1] == "accuracy"]
    points = []
    for each in rows:
        values = [mean(found) for column in pairs if (found := each.values(column))]
        if values:
            points.append((float(each.row.name), mean(values)))
    return Chart("Figure 5e", experiment.x, "mean accuracy of the sets of pairs, percent", {"here": points})


def _draw_vocab_sizes(rows: Sequence[RowScores]) -> Chart:
    """Figure 5f: the vocab size that a length needs, for the paper's datasets and for ours."""
    counts = {f"{name} ({NUM_IDENTITIES[name]:,})": NUM_IDENTITIES[name] for name in OF_LENGTHS}
    counts |= {f"here ({number:,})": number for each in rows for number in map(_identities, each.runs.values())}
    lengths = sorted(int(each.row.name) for each in rows)
    series: Series = {
        name: [(length, code_shape(count, TokenizationConfig(length=length)).vocab_size) for length in lengths]
        for name, count in counts.items()
    }
    return Chart("Figure 5f", "length l", "vocab size v", series, log="y")


def show_separation(
    rows: Sequence[tuple[Row, Sequence[MeasuredCentroids]]], scale: Scale
) -> tuple[list[Grid], list[Chart]]:
    """Figure 4: distances of what each run ended with; the figure has the centroids, and H as separation left it."""
    about = list(dict.fromkeys(name for row, _ in rows for name in row.about))
    names = [f"{name} (paper)" if scale == "demo" else name for name in about]
    lines = tuple(
        (row.name, *(row.about.get(name, NOTHING) for name in about), each.name, f"{each.vectors:,}", *_scores(each))
        for row, found in rows
        for each in (found if row.name == "GIF" else found[-1:])
    )
    head = (METHOD, *names, "vectors", "number", "min", "mean", "max")
    grid = Grid("Cosine distance of all pairs", head, lines, 2 + len(about))
    series: Series = {}
    for row, found in rows:
        chosen = next((each for each in found if each.name == "Code vectors H"), None) if row.name == "GIF" else None
        shown = chosen or (found[-1] if found else None)
        name = " ".join([row.name, *(row.about.values() if scale == "full" else ())])
        if shown:
            series[name] = [(0, shown.scores.min), (1, shown.scores.mean), (2, shown.scores.max)]
    chart = Chart("Figure 4", "", "cosine distance", series, kind="bars", labels=("min", "mean", "max"))
    return [grid], [chart]


def _scores(each: MeasuredCentroids) -> tuple[str, ...]:
    return tuple(f"{value:.4f}" for value in (each.scores.min, each.scores.mean, each.scores.max))
