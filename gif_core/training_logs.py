"""Where the figures of a training can be watched: TensorBoard, Weights & Biases."""

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gif_core.training import TrainingReport
from schemas.errors import GifError


class TrainingLogs:
    """Writes every report to each of the places that were asked for."""

    def __init__(self, events: Path, *, wandb: str | None, name: str) -> None:
        """Open them: TensorBoard's folder, and a project of Weights & Biases, in which the run has a name."""
        self.stack = ExitStack()
        self.board = _open_tensorboard(events)
        self.stack.callback(self.board.close)
        self.wandb = _open_wandb(wandb, name) if wandb else None
        if self.wandb:
            self.stack.callback(self.wandb.finish)

    def add(self, report: TrainingReport) -> None:
        """Write down one report."""
        for name, value in report.metrics.items():
            self.board.add_scalar(name, value, report.step)
        if self.wandb:
            self.wandb.log(report.metrics, step=report.step)

    def __enter__(self) -> Self:
        """Use as a context: the files are whole when it ends."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close them all."""
        self.stack.close()


def _open_tensorboard(folder: Path) -> Any:
    """A writer of events; those of an earlier attempt, which are told again, are removed."""
    from torch.utils.tensorboard import SummaryWriter  # seconds to import

    for old in folder.glob("events.out.tfevents.*"):
        old.unlink()
    return SummaryWriter(str(folder))


def _open_wandb(project: str, name: str) -> Any:
    try:
        import wandb  # type: ignore[import-not-found]
    except ImportError:
        raise GifError(
            f"execution.wandb={project} needs the package wandb, which is not installed: pip install wandb"
        ) from None
    return wandb.init(project=project, name=name)
