"""Section "Code vectors": the encoder's identity vectors, their separation, and what it cost."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gif_core.artifacts import Artifact
from gif_core.reporting import plots
from gif_core.reporting.plots import Curve
from gif_core.reporting.sections.inputs import Inputs, Shown, describe_encoder
from schemas.files import CURVE_FILE, DISTANCES_FILE, LEAST_COHESIVE_FILE
from schemas.run import RunConfig

LEAST_COHESIVE: Final = 5


def show_vectors(config: RunConfig, inputs: Inputs) -> Shown:
    """Show how far separation moved the code vectors apart, and how many neighbours it lost."""
    separation = inputs["separation"]
    curve = pq.read_table(separation.path(CURVE_FILE))
    gap, kept = _measured(curve, "gap"), _measured(curve, "neighbours_kept")
    ranks = _measured(curve, "spearman")
    shown = {"Neighbours kept": kept} | ({"Rank correlation": ranks} if len(ranks.x) else {})
    gap_there = gap.y[np.searchsorted(gap.x, kept.x)]
    return {
        "encoder": describe_encoder(config),
        "metrics": separation.manifest.metrics,
        "embedding": inputs["embedding"].manifest.metrics,
        "least_cohesive": pq.read_table(inputs["embedding"].path(LEAST_COHESIVE_FILE))[:LEAST_COHESIVE].to_pylist(),
        "curves": plots.draw_separation(gap, shown),
        "trade_off": plots.draw_trade_off(gap_there, kept.y, kept.x.tolist()),
        "distances": _draw_distances(separation),
    }


def _measured(curve: pa.Table, name: str) -> Curve:
    """Return a column over the epochs in which it was measured; empty if the table has no such column."""
    if name not in curve.column_names:
        return Curve(np.empty(0), np.empty(0))
    there = curve.filter(pc.is_valid(curve[name]))
    return Curve(there["epoch"].to_numpy(), there[name].cast("float64").to_numpy())


def _draw_distances(separation: Artifact) -> Any:
    """Draw the histogram of distances; None if the artifact has none or there are no pairs."""
    if DISTANCES_FILE not in separation.names():
        return None
    table = pq.read_table(separation.path(DISTANCES_FILE))
    edges, before, after = (table[name].cast("float64").to_numpy() for name in ("distance", "before", "after"))
    return plots.draw_distances(edges, before, after) if (before + after).any() else None
