"""Sections "Training" and "Head cost": the curves of the training, and memory and parameters of heads."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from gif_core.reporting import plots
from gif_core.reporting.head_cost import code_dimension, memory_curves, size_of_head, size_of_rows, size_of_tokens
from gif_core.reporting.plots import Curve
from gif_core.reporting.sections.inputs import Inputs, Shown, read_curves
from gif_core.runtime import decimal, duration, percent, pick_device, thousands
from gif_core.separation import SCORED_ROWS
from gif_core.tokenization import CodeShape
from gif_core.training import measure_centroids
from schemas.files import METRICS_FILE
from schemas.run import RunConfig

TILES: Final[Mapping[str, tuple[str, Callable[[Any], str]]]] = {
    "loss": ("total loss", decimal),
    "code_accuracy": ("complete codes predicted correctly", percent),
    "accuracy": ("identities predicted correctly", percent),
    "alignment": ("alignment z·h", decimal),
    "val_accuracy": ("verification accuracy on held-out identities", percent),
    "images_per_second": ("images per second", thousands),
}
"""Headline metrics, where the training has them, with their labels and formats."""
VALIDATION: Final = "val_accuracy"
EVALUATED: Final = {
    "dcq": "Evaluated is the moving average of the network, as DCQ's authors do.",
    "f2c": "Evaluated is the trained network, not its moving average, as the authors of F²C do.",
    "groupface": "Evaluated is the feature with those of its groups.",
    "dul": "Evaluated is the mean of the feature's distribution.",
}
"""What is evaluated, for heads with more than one choice."""
LOSSES: Final = {"loss": "Total", "loss_codes": "Codes", "loss_alignment": "Alignment"}
IDENTITIES: Final = tuple(round(10**power) for power in np.linspace(3, np.log10(64e6), 25))


def show_training(config: RunConfig, inputs: Inputs) -> Shown:
    """Show headline metrics and curves of any head."""
    manifest = inputs["training"].manifest
    curves = read_curves(inputs["training"].path(METRICS_FILE), "name", "step", "value")
    tiles = [
        (write(manifest.metrics[name]), words) for name, (words, write) in TILES.items() if name in manifest.metrics
    ]
    return {
        "steps": manifest.metrics["steps"],
        "skipped": round(float(curves["skipped"].y.sum())) if "skipped" in curves else 0,
        "head": config.training.head,
        "evaluated": EVALUATED.get(config.training.head, ""),
        "backbone": config.training.backbone,
        "gamma": config.training.gamma,
        "code_weight": config.training.code_weight,
        "tiles": [*tiles, (duration(manifest.seconds), "training time")],
        "centroids": measure_centroids(inputs["separation"], inputs["training"], pick_device(config.execution.device)),
        "scored_rows": SCORED_ROWS,
        "plots": list(_draw_plots(curves)),
    }


def show_head_cost(config: RunConfig, inputs: Inputs) -> Shown:
    """Show the computed memory of a step against the number of identities, for three kinds of heads."""
    codes = inputs["tokenization"].manifest.metrics
    dim = code_dimension(inputs["separation"].manifest, inputs["embedding"].manifest)
    shape, here = CodeShape(int(codes["length"]), int(codes["vocab_size"])), int(codes["identities"])
    size = size_of_head(config.training, here, shape, dim)
    identities = sorted({*IDENTITIES, max(here, 2)})
    curves = memory_curves(config.training, config.tokenization, dim, identities)
    point = (here, size.step_bytes(config.training))
    return {
        "parameters": size.parameters,
        "rows_parameters": size_of_rows(here, dim).parameters,
        "codes_parameters": size_of_tokens(config.training, shape, dim).parameters,
        "dim": dim,
        "batch": config.training.batch_size,
        "optimizer": config.training.optimizer,
        "bytes": point[1],
        "figure": plots.draw_head_cost(identities, curves, point),
    }


def _draw_plots(curves: Mapping[str, Curve]) -> Iterator[Shown]:
    """Yield a figure for each kind of curve that the training has."""
    if losses := _rename(curves, LOSSES):
        parts = "The total, and its two parts before weighting." if len(losses) > 1 else "Over the steps."
        yield _plot("losses", plots.draw_curves(losses, "Loss"), "Loss", parts)
    tokens = {name: f"Token {name.partition('/')[2]}" for name in curves if name.startswith("token_accuracy/")}
    whole = {"code_accuracy": "Complete code", "accuracy": "Identity"}
    if right := _rename(curves, tokens | whole):
        words = "each token and the complete code" if tokens else "the identity among those of a step"
        title = "Token accuracy" if tokens else "Accuracy"
        figure = plots.draw_curves(right, "Images predicted correctly", share=True)
        yield _plot("accuracies", figure, title, f"On training images: {words}.")
    cosines = {"alignment": "z·h", "cosine": "z·w"}
    if shown := _rename(curves, cosines):
        vector = "code vector h, after the learned map if there is one"
        what = vector if "alignment" in curves else "classifier row w of its identity"
        words = f"Cosine of a feature z and the {what}."
        yield _plot("alignment", plots.draw_curves(shown, "Cosine"), "Alignment", words)
    names = {name: name.partition("/")[2] or "Held-out identities" for name in curves if name.startswith(VALIDATION)}
    if shown := _rename(curves, names):
        figure = plots.draw_points(shown, "Verification accuracy")
        yield _plot(
            "validation", figure, "Validation", "After every epoch, on a sample of pairs of held-out identities."
        )
    if shown := _rename(curves, {"images_per_second": "Speed"}):
        figure = plots.draw_curves(shown, "Images per second")
        yield _plot("speed", figure, "Speed", "Images per second, including the wait for images.")
    if shown := _rename(curves, {"gradient_norm": "Norm"}):
        yield _plot("gradient", plots.draw_curves(shown, "Norm"), "Gradient", "Norm before clipping.")


def _plot(name: str, figure: Any, title: str, explanation: str) -> Shown:
    return {"name": name, "figure": figure, "title": title, "explanation": explanation}


def _rename(curves: Mapping[str, Curve], names: Mapping[str, str]) -> dict[str, Curve]:
    return {shown: curves[name] for name, shown in names.items() if name in curves}
