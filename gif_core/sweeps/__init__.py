"""Sweeps: the same pipeline with several values of settings and several seeds, and what the differences are worth.

grid     The variants of a sweep: every combination of the values
draws    Random trials: values drawn for settings, the same for every variant
summary  Means over seeds, paired differences to the first variant, and their standard errors
page     A sweep as a self-contained HTML page
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "Draw",
    "Drawn",
    "Line",
    "Section",
    "Variant",
    "compare_identities",
    "draw_trials",
    "expand",
    "find_evaluation",
    "read_draw",
    "read_draws",
    "summarise",
    "with_drawn",
    "write_page",
]

if TYPE_CHECKING:
    from gif_core.sweeps.draws import Draw, Drawn, draw_trials, read_draw, read_draws, with_drawn
    from gif_core.sweeps.grid import Variant, expand
    from gif_core.sweeps.page import write_page
    from gif_core.sweeps.summary import Line, Section, compare_identities, find_evaluation, summarise
else:
    __getattr__ = lazy_imports(__name__)
