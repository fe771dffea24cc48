"""The trainer's step with its time by phases."""

from typing import Any

from torch import Tensor

from gif_core.benchmarking.clock import Clock
from gif_core.benchmarking.host_waits import counted_waits
from gif_core.heads import HeadOutput
from gif_core.training.data.loader import Batch
from gif_core.training.step import Stepper

COUNTED_STEP = 1
"""The step whose waits are counted, from 0: the first one builds what later ones reuse."""


class TimedStepper(Stepper):
    """Marks on a clock what the time of a step goes to, and counts what the host waits for in one of them."""

    def __init__(self, *given: Any, clock: Clock, **settings: Any) -> None:
        """Measure with `clock`, which others read."""
        super().__init__(*given, **settings)
        self.clock, self.taken = clock, 0
        self.waits: int | None = None

    def take(self, batch: Batch) -> None:
        """One step; what comes before it is the wait for its images."""
        self.clock.mark("wait")
        if self.taken == COUNTED_STEP:
            with counted_waits(self.group.device) as waits:
                super().take(batch)
            self.waits = waits.count
        else:
            super().take(batch)
        self.taken += 1
        self.clock.mark("optimizer")

    def _accumulate(self, batch: Batch) -> dict[str, Tensor]:
        self.clock.mark("head")  # which has read its rows
        return super()._accumulate(batch)

    def _embed(self, images_BCHW: Tensor) -> tuple[Tensor, Tensor | None]:
        self.clock.mark("copy")
        features = super()._embed(images_BCHW)
        self.clock.mark("forward")
        return features

    def _loss(self, features_BD: Tensor, keys_BD: Tensor | None, labels_B: Tensor) -> HeadOutput:
        output = super()._loss(features_BD, keys_BD, labels_B)
        self.clock.mark("head")
        return output

    def _clip(self, loss: Tensor) -> Tensor:
        self.clock.mark("backward")
        return super()._clip(loss)
