"""A run in a few lines of text, from its manifests alone: no file of an artifact is opened."""

from collections.abc import Iterator, Mapping

from gif_core.artifacts import Artifact
from gif_core.runtime import duration, figure_name, percent, set_name, thousands
from schemas.stages import StageName

Figures = Mapping[str, float | int | str]


def headline_rows(inputs: Mapping[StageName, Artifact]) -> list[tuple[str, str]]:
    """Data, codes, scores, cost."""
    faces, codes = inputs["ingestion"].manifest.metrics, inputs["tokenization"].manifest.metrics
    training = inputs["training"].manifest
    lines = [(name, thousands(number)) for name, number in _numbers(faces, ("identities", "images"))]
    lines += [("code", f"{codes['length']} tokens of {codes['range']} values")]
    lines += _scores(inputs["evaluation"].manifest.metrics)
    speeds = _numbers(training.metrics, ("images_per_second",))
    lines += [("images per second", thousands(speed)) for _, speed in speeds]
    return [*lines, ("training took", duration(training.seconds))]


def _numbers(figures: Figures, names: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    for name in names:
        value = figures.get(name)
        if isinstance(value, float | int):
            yield name, value


def _scores(figures: Figures) -> Iterator[tuple[str, str]]:
    """The model's main figures; those of held-out people have no set before them."""
    for name, value in figures.items():
        title, _, figure = ("held_out", "", "accuracy") if name == "model_accuracy" else name.partition("/")
        if figure and isinstance(value, float):
            yield f"{set_name(title)}: {figure_name(figure)}", percent(value)
