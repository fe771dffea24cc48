"""When a training writes a checkpoint: when one is due, after the last step, and on a request to stop."""

import time
from collections.abc import Callable, Generator
from contextlib import closing

from gif_core.artifacts import Checkpoints
from gif_core.training.checkpoints import save_state
from gif_core.training.trainer import Training, TrainingReport
from schemas.training import TrainingJob


class OthersStoppedError(RuntimeError):
    """Processes of another machine are stopping; torchrun restarts those of this machine without them."""


class Checkpointing:
    """Runs a training and decides after every step, together with all its processes, whether to save and to stop."""

    def __init__(
        self, training: Training, checkpoints: Checkpoints, job: TrainingJob, stopping: Callable[[], bool]
    ) -> None:
        """The training is at its newest checkpoint, or at its beginning; `stopping` is asked after every step."""
        self.training, self.checkpoints, self.job, self.stopping = training, checkpoints, job, stopping
        self.saved_step, self.saved_at = training.state.step, time.monotonic()
        self.stop_requested = False

    def run(self) -> Generator[TrainingReport, None, None]:
        """Train to the end, or until any process is asked to stop; the last step is in a checkpoint either way."""
        with closing(self.training.run(self._end_step)) as reports:
            try:
                yield from reports
            except Exception:
                raise  # a fault: the training goes on from the checkpoint before it
            except BaseException:  # Ctrl-C, a cancelled run, or a consumer that closes this generator
                self._save_alone()
                raise
        self._save_new_steps()
        if self.training.state.step < self.training.steps and not self.stop_requested:
            raise OthersStoppedError(
                "another process was asked to stop: this one resumes from the checkpoint without it"
            )

    def _end_step(self) -> bool:
        """Save if a checkpoint is due; whether to stop here, in all processes at once."""
        self.stop_requested = self.stop_requested or self.stopping()
        stop, is_late = self.training.group.any(self.stop_requested, self._is_late())
        if is_late or self._has_enough_steps():
            self._save()
        return stop

    def _is_late(self) -> bool:
        """By the clock of the first process, which decides for all."""
        return self.training.group.leads and time.monotonic() - self.saved_at >= self.job.checkpoint_seconds

    def _has_enough_steps(self) -> bool:
        new_steps = self.training.state.step - self.saved_step
        return self.job.checkpoint_steps is not None and new_steps >= self.job.checkpoint_steps

    def _save_alone(self) -> None:
        """Save when this is the only process, unless it was interrupted in the middle of an update of its state.

        Several processes are asked to stop by a signal, and save together after the step.
        """
        if self.training.group.size == 1 and self.training.state.whole:
            self._save_new_steps()

    def _save_new_steps(self) -> None:
        if self.training.state.step > self.saved_step:
            self._save()

    def _save(self) -> None:
        training = self.training
        save_state(training.state, training.reports, self.checkpoints, training.group, steps=training.steps)
        self.saved_step, self.saved_at = training.state.step, time.monotonic()
