"""Estimation: what would a run cost before anybody starts it? Bytes, memory, hours and what limits every stage.

estimate   `estimate_run`: all stages, their sum, and what does not fit
scale      How many identities and images a run has: given, of a known dataset, or drawn
machine    The machine: its GPUs and cores, and how fast it does what; measured by `gif bench`, or reference figures
case       What is estimated, and the estimate of one stage
costs      One function per stage: from scale and machine to bytes, memory and seconds
evaluation That of evaluation: features, raw pixels, drawn probes, search
networks   Operations and memory of the networks that a run names
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = ["Estimate", "Machine", "Scale", "StageCost", "describe_machine", "estimate_run", "find_scale"]

if TYPE_CHECKING:
    from gif_core.estimation.case import StageCost
    from gif_core.estimation.estimate import Estimate, estimate_run
    from gif_core.estimation.machine import Machine, describe_machine
    from gif_core.estimation.scale import Scale, find_scale
else:
    __getattr__ = lazy_imports(__name__)
