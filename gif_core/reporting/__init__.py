"""Reporting: how the artifacts of a run become one HTML page, and how runs are compared.

stage        `run`: all artifacts of a run → `report.html`
page         `write_report`, `write_comparison`: fills the templates; lists the sections
sections/    The values each section shows: glance, scores, faces, vectors, codes, training, lineage
plots        The plotly figures: arrays in, figures out
published    Metrics that the paper and its peers report
head_cost    Parameters and memory of heads, computed from the number of identities
scored_runs  Finds comparable evaluations in the store and loads them with settings, scores and cost
comparison   `tabulate`: runs side by side as a table of text
conclusions  `conclude`: what a run shows, in three lines
headlines    A run in a few lines of text, from its manifests alone
templates/   HTML, CSS and JavaScript of the pages
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "PUBLISHED",
    "Scored",
    "ScoredRun",
    "Table",
    "benchmark_of",
    "conclude",
    "conclude_report",
    "find_comparable",
    "headline_rows",
    "load_beside",
    "load_run",
    "shared_metrics",
    "size_of_head",
    "size_of_rows",
    "tabulate",
    "write_comparison",
    "write_page",
    "write_report",
]

if TYPE_CHECKING:
    from gif_core.reporting.comparison import Table, shared_metrics, tabulate
    from gif_core.reporting.conclusions import conclude, conclude_report
    from gif_core.reporting.head_cost import size_of_head, size_of_rows
    from gif_core.reporting.headlines import headline_rows
    from gif_core.reporting.page import write_comparison, write_page, write_report
    from gif_core.reporting.published import PUBLISHED, benchmark_of
    from gif_core.reporting.scored_runs import Scored, ScoredRun, find_comparable, load_beside, load_run
else:
    __getattr__ = lazy_imports(__name__)
