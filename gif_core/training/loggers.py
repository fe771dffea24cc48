"""Where the metrics of a training can be watched: TensorBoard, Weights & Biases."""

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gif_core.training.event_file import EventFile
from gif_core.training.trainer import TrainingReport
from schemas.errors import GifError


class TrainingLogs:
    """Writes every report to each of the places that were asked for; of several machines one alone has reports."""

    def __init__(self, events: Path, *, wandb: str | None, name: str) -> None:
        """TensorBoard's folder, and a project of Weights & Biases, in which the run has a name; opened when needed."""
        self.events, self.project, self.name = events, wandb, name
        self.stack = ExitStack()
        self.board: EventFile | None = None
        self.wandb = _import_wandb(wandb) if wandb else None

    def add(self, report: TrainingReport) -> None:
        """Write down one report."""
        if self.board is None:
            self.board = self._open()
        self.board.add(report.metrics, report.step)
        if self.wandb:
            self.wandb.log(report.metrics, step=report.step)

    def _open(self) -> EventFile:
        board = EventFile(self.events)
        self.stack.callback(board.close)
        board.begin()
        if self.wandb:
            self.wandb = self.wandb.init(project=self.project, name=self.name)
            self.stack.callback(self.wandb.finish)
        return board

    def __enter__(self) -> Self:
        """Use as a context: the files are whole when it ends."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close them all."""
        self.stack.close()


def _import_wandb(project: str) -> Any:
    """The package, before the first step; it is none of the project's."""
    try:
        import wandb  # type: ignore[import-not-found]
    except ImportError:
        raise GifError(
            f"execution.wandb={project} needs the package wandb, which is not installed: pip install wandb"
        ) from None
    return wandb
