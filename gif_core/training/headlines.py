"""The headline metrics of a training: in a line while it runs, and their means for the manifest."""

import math
from typing import Final

from gif_core.training.trainer import TrainingReport

SHOWN: Final = {
    "loss": ("loss", ".3f"),
    "token_accuracy": ("tokens", ".0%"),
    "code_accuracy": ("code", ".0%"),
    "accuracy": ("right", ".0%"),
    "alignment": ("z·h", ".2f"),
    "val_accuracy": ("unseen", ".1%"),
    "images_per_second": ("img/s", ".0f"),
}
"""Headline metrics of a training, those of them that its head has: how they are called and written. Of metrics that
are counted, such as `token_accuracy/1`, all are shown."""


def describe_report(report: TrainingReport) -> str:
    """The headline metrics in a line: `loss 2.113  tokens 91 84 62%  code 55%  z·h 0.71`."""
    shown = []
    for key, (name, how) in SHOWN.items():
        values = [f"{report.metrics[found]:{how}}" for found in report.metrics if found.partition("/")[0] == key]
        shown += [f"{name} {' '.join(values).replace('% ', ' ')}"] if values else []
    return "  ".join(shown)


def mean_metrics(reports: list[TrainingReport]) -> dict[str, float]:
    """Mean of the headline metrics over the last twentieth of the reports, without those of skipped steps."""
    tail = reports[-max(len(reports) // 20, 1) :]
    found = {name: [report.metrics.get(name, math.nan) for report in tail] for name in SHOWN}
    finite = {name: [value for value in values if math.isfinite(value)] for name, values in found.items()}
    return {name: sum(values) / len(values) for name, values in finite.items() if values}
