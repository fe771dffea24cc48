"""The paper's tables and figures: how their numbers are measured, and how they are shown in the paper's own form.

results          What an experiment shows: tables, charts and remarks
tables           Scores of runs as the paper's tables and figures, the published numbers beside ours
costs            Cost of heads, training speed and cost of separation as the paper's figures
datasets         Public training sets, their years and sizes (Figure 1a)
head_steps       One step of a head, alone or with a backbone, measured in a process of its own
separation_steps  One step of separation, measured in a process of its own
charts           Charts as SVG
page             Experiments as one self-contained HTML page
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "HEADS",
    "Chart",
    "Grid",
    "HeadPoint",
    "Measured",
    "Result",
    "RowScores",
    "compute_bytes",
    "measure_apart",
    "show_cost",
    "show_datasets",
    "show_scores",
    "show_separation",
    "write_page",
]

if TYPE_CHECKING:
    from gif_core.paper.costs import show_cost
    from gif_core.paper.datasets import show_datasets
    from gif_core.paper.head_steps import HEADS, HeadPoint, Measured, compute_bytes, measure_apart
    from gif_core.paper.page import write_page
    from gif_core.paper.results import Chart, Grid, Result
    from gif_core.paper.tables import RowScores, show_scores, show_separation
else:
    __getattr__ = lazy_imports(__name__)
