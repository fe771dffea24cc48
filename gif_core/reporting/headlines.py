"""A run in a few lines of text, from its manifests alone, without opening other files."""

from collections.abc import Iterator, Mapping

from gif_core.artifacts import Artifact
from gif_core.runtime import duration, metric_name, percent, set_name, thousands
from schemas.stages import StageName

Metrics = Mapping[str, float | int | str]


def headline_rows(inputs: Mapping[StageName, Artifact]) -> list[tuple[str, str]]:
    """Return name and value of the data, code, score and cost lines."""
    faces, codes = inputs["ingestion"].manifest.metrics, inputs["tokenization"].manifest.metrics
    training = inputs["training"].manifest
    lines = [(name, thousands(number)) for name, number in _numbers(faces, ("identities", "images"))]
    lines += [("code", f"{codes['length']} tokens of {codes['vocab_size']} values")]
    lines += _scores(inputs["evaluation"].manifest.metrics)
    speeds = _numbers(training.metrics, ("images_per_second",))
    lines += [("images per second", thousands(speed)) for _, speed in speeds]
    return [*lines, ("training took", duration(training.seconds))]


def _numbers(metrics: Metrics, names: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    for name in names:
        value = metrics.get(name)
        if isinstance(value, float | int):
            yield name, value


def _scores(metrics: Metrics) -> Iterator[tuple[str, str]]:
    """Yield the model's main metrics; that of held-out identities has no set in its name."""
    for name, value in metrics.items():
        title, _, metric = ("held_out", "", "accuracy") if name == "model_accuracy" else name.partition("/")
        if metric and isinstance(value, float):
            yield f"{set_name(title)}: {metric_name(metric)}", percent(value)
