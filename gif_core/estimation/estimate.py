"""All stages of a run: what they cost together, and what does not fit."""

from collections.abc import Iterator
from dataclasses import dataclass

from gif_core.estimation.case import Case, StageCost
from gif_core.estimation.costs import EXPECTED_EPOCHS, cost_of, expected_epochs, vectors_fit
from gif_core.estimation.machine import Machine
from gif_core.estimation.scale import Scale
from gif_core.runtime import size
from schemas.run import RunConfig
from schemas.stages import STAGES


@dataclass(frozen=True)
class Estimate:
    """A run before it is started."""

    scale: Scale
    machine: Machine
    stages: tuple[StageCost, ...]
    remarks: tuple[str, ...]
    """What does not fit, and what was assumed."""

    @property
    def seconds(self) -> float:
        """Of all stages, one after another."""
        return sum(stage.seconds for stage in self.stages)

    def price(self, rate: float) -> float:
        """At so much per hour of the whole machine."""
        return rate * self.seconds / 3600


def estimate_run(config: RunConfig, scale: Scale, machine: Machine) -> Estimate:
    """Bytes, memory and hours of every stage."""
    case = Case(config, scale, machine)
    stages = tuple(cost_of(stage, case) for stage in STAGES)
    return Estimate(scale, machine, stages, tuple(_remarks(case, stages)))


def _remarks(case: Case, stages: tuple[StageCost, ...]) -> Iterator[str]:
    sheet, given = case.machine.sheet, case.config.separation
    for stage in stages:
        if sheet is not None and stage.device_memory > sheet.memory:
            yield (
                f"{stage.stage} needs {size(stage.device_memory)} of each GPU, which has {size(sheet.memory)}: "
                + ADVICE.get(stage.stage, "use more GPUs")
            )
    if sheet is not None and case.config.training.head == "gif" and not vectors_fit(case):
        yield f"code vectors ({size(case.vectors)}) stay in host memory in training: rows are copied a step ahead"
    if case.machine.machines > 1:
        yield (
            f"{case.machine.machines} machines of 8 GPUs share embedding and training; ingestion, separation and "
            "tokenization run on one"
        )
    if expected_epochs(given) == EXPECTED_EPOCHS != given.epochs:
        yield f"separation: {EXPECTED_EPOCHS} epochs are assumed until its target gap; 6 to 65 were measured"
    if any("reference" in stage.source for stage in stages):
        yield "rates marked 'reference' were not measured: run 'gif bench all' with these settings on the machine"


ADVICE = {
    "separation": "its rows are then streamed from host memory in every step",
    "training": "raise training.accumulation, set execution.gradient_checkpointing=true, or use more GPUs",
}
