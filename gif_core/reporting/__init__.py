"""Reporting: all artifacts of a run become one HTML page, and runs are compared.

comparison        Which evaluations of a store can stand side by side
comparison_table  Runs side by side as a table of text: a column for each run, a row for each difference, score and cost
head_cost         What a training head holds, computed: its parameters, and the memory of a step against the number o...
headlines         A run in a few lines of text, from its manifests alone: no file of an artifact is opened
page              Reporting: all artifacts of a run → one HTML page that needs no network
plots             The report's metrics: plain arrays in, a plotly metric out
published         Published metrics that scores stand beside: of the paper and of its peers, as they are printed
scored_runs       Runs side by side: what differs in their settings, scores and cost
sections/         Sections of the report: what each one reads from the artifacts of a run.
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "Scored",
    "Table",
    "find_comparable",
    "find_evaluation",
    "headline_rows",
    "load_beside",
    "load_run",
    "size_of_rows",
    "tabulate",
    "write_comparison",
    "write_report",
]

if TYPE_CHECKING:
    from gif_core.reporting.comparison import Scored, find_comparable, find_evaluation
    from gif_core.reporting.comparison_table import Table, tabulate
    from gif_core.reporting.head_cost import size_of_rows
    from gif_core.reporting.headlines import headline_rows
    from gif_core.reporting.page import write_comparison, write_report
    from gif_core.reporting.scored_runs import load_beside, load_run
else:
    __getattr__ = lazy_imports(__name__)
