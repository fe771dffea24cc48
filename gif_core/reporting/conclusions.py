"""What a run shows, in three lines: accuracies, what training gained, and the cost of heads at a million identities."""

from collections.abc import Sequence
from typing import Final

from gif_core.artifacts import ArtifactStore
from gif_core.reporting.comparison import differing_settings
from gif_core.reporting.head_cost import FLOAT_BYTES, code_dimension, size_of_rows, size_of_tokens
from gif_core.reporting.scored_runs import ScoredRun, load_beside
from gif_core.runtime import percent, size
from gif_core.tokenization import code_shape
from schemas.artifacts import Manifest
from schemas.run import RunConfig

RIVAL: Final = "cosface"
OF_THE_HEAD: Final = frozenset({"training.head", "training.scale", "training.margin"})
"""Settings in which a classifier with the same budget may differ."""
MANY: Final = 1_000_000


def conclude(config: RunConfig, runs: Sequence[ScoredRun]) -> list[str]:
    """Return three lines on the first of `runs`, if it is GIF's and a CosFace run with the same budget is beside it."""
    rival = _find_rival(runs)
    if rival is None:
        return []
    own = runs[0].evaluation.metrics
    accuracies = {
        "raw pixels": own.get("raw_pixels_accuracy"),
        "the encoder": own.get("encoder_accuracy"),
        "CosFace": rival.evaluation.metrics.get("model_accuracy"),
        "GIF": own.get("model_accuracy"),
    }
    shown = {name: value for name, value in accuracies.items() if isinstance(value, float)}
    if len(shown) < len(accuracies):
        return []
    listed = ", ".join(f"{name} {percent(value)}" for name, value in shown.items())
    gained = _points(shown["GIF"] - shown["the encoder"])
    ahead = _points(shown["GIF"] - shown["CosFace"])
    return [
        f"Verification of unseen identities: {listed}.",
        f"GIF against the encoder that its codes come from: {gained}; against a CosFace classifier with the same "
        f"network, images and steps: {ahead} (one seed).",
        f"A step of the head with a million identities (computed): {_costs(config, runs[0])}.",
    ]


def conclude_report(store: ArtifactStore, config: RunConfig, report: Manifest) -> list[str]:
    """Return the lines with which a stored report begins."""
    beside, scored = report.settings.get("beside"), report.inputs.get("evaluation")
    if not beside or scored is None:
        return []
    return conclude(config, load_beside(store, [scored.key, *beside]))


def _find_rival(runs: Sequence[ScoredRun]) -> ScoredRun | None:
    """The newest run of a CosFace classifier that differs from the first run in nothing but the head."""
    if not runs or runs[0].settings.get("training.head") != "gif":
        return None
    rivals = (run for run in runs[1:] if run.settings.get("training.head") == RIVAL)
    return next((run for run in rivals if OF_THE_HEAD.issuperset(differing_settings([runs[0], run]))), None)


def _points(difference: float) -> str:
    return f"{100 * difference:+.1f} points"


def _costs(config: RunConfig, run: ScoredRun) -> str:
    """Memory of a step on the device for both heads; code vectors that learn can be in a file on the host."""
    dim = code_dimension(run.lineage["separation"], run.lineage["embedding"])
    rows = size_of_rows(MANY, dim).step_bytes(config.training)
    tokens = size_of_tokens(config.training, code_shape(MANY, config.tokenization), dim).step_bytes(config.training)
    vectors = size(FLOAT_BYTES * MANY * dim)
    return f"{size(rows)} for CosFace, {size(tokens)} for GIF, whose code vectors ({vectors}) can stay in a file"
