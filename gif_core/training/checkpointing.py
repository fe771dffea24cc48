"""When a training writes a checkpoint: when one is due, after the last step, and on a request to stop.

With `background_checkpoints` it goes on while one is written (`checkpoint_writer`).
"""

import time
from collections.abc import Callable, Generator
from contextlib import closing, suppress

from gif_core.artifacts import Checkpoints
from gif_core.training.checkpoint_writer import CheckpointWriter
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
        self.training, self.job, self.stopping = training, job, stopping
        self.writer = CheckpointWriter(checkpoints, training.group)
        self.saved_step, self.saved_at = training.state.step, time.monotonic()
        self.stop_requested = False

    def run(self) -> Generator[TrainingReport, None, None]:
        """Train to the end, or until any process is asked to stop; the last step is in a checkpoint either way."""
        with closing(self.writer), closing(self.training.run(self._end_step)) as reports:
            try:
                yield from reports
            except Exception:  # a fault: the training goes on from the checkpoint before it
                self._finish_alone()
                raise
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
        flags = (self.stop_requested, self._is_late(), self.writer.is_writing)
        stop, is_late, is_writing = self.training.group.any(*flags)
        if not is_writing:
            self.writer.advance()
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

    def _finish_alone(self) -> None:
        """Complete the checkpoint that is being written, after a fault of which the caller hears.

        Several processes cannot: the others may be waiting elsewhere.
        """
        if self.training.group.size == 1:
            with suppress(Exception):
                self.writer.finish()

    def _save_new_steps(self) -> None:
        """Save what no checkpoint has, and wait until it counts."""
        if self.training.state.step > self.saved_step:
            self._save()
        self.writer.finish()

    def _save(self) -> None:
        training = self.training
        self.writer.start(training.state, training.reports, steps=training.steps)
        if not self.job.background_checkpoints:
            self.writer.finish()
        self.saved_step, self.saved_at = training.state.step, time.monotonic()
