"""Progress of a running stage: a bar in the terminal, lines in a log, and live in Prefect's UI."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.context import TaskRunContext
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

logger = logging.getLogger(__name__)
Step = TypeVar("Step")

LOG_SECONDS = 10.0
UI_SECONDS = 2.0


class Ticker:
    """True at most once in so many seconds."""

    def __init__(self, seconds: float) -> None:
        """Start counting now."""
        self.seconds, self.last = seconds, time.monotonic()

    def __call__(self) -> bool:
        """Whether it is time again."""
        now = time.monotonic()
        due = now - self.last >= self.seconds
        self.last = now if due else self.last
        return due


class Rate:
    """How many per second since the first call."""

    def __init__(self) -> None:
        """Count from the first call on: what was done before it does not count."""
        self.begun: tuple[int, float] | None = None

    def __call__(self, done: int) -> float:
        """Mean rate so far."""
        now = time.monotonic()
        first, began = self.begun = self.begun or (done, now)
        return (done - first) / max(now - began, 1e-9)


def track(
    steps: Iterable[Step],
    name: str,
    position: Callable[[Step], tuple[int, int]],
    describe: Callable[[Step], str] = lambda _: "",
) -> Iterator[Step]:
    """Pass the steps of a core generator on, and show how far it is: `position` gives (done, total)."""
    console = Console(stderr=True)
    log_due, show_due = Ticker(LOG_SECONDS), Ticker(UI_SECONDS)
    artifact = None
    with _bar(console) as bar:
        task = bar.add_task(name, total=None, note="")
        for step in steps:
            done, total = position(step)
            bar.update(task, completed=done, total=total, note=describe(step))
            if show_due():
                artifact = _show(artifact, name, 100 * done / max(total, 1), describe(step))
            if log_due() and not console.is_terminal:
                logger.info("%s: %d of %d %s", name, done, total, describe(step))
            yield step


def last(steps: Iterable[Step]) -> Step:
    """Run a generator to its end and give its last step, which carries the result."""
    final = deque(steps, maxlen=1)
    return final[0]


def collect_features(chunks: Iterator[NDArray[np.float32]], name: str, total: int) -> NDArray[np.float32]:
    """All rows of the chunks that a core generator yields."""
    collected: list[NDArray[np.float32]] = []

    def collect() -> Iterator[int]:
        for chunk in chunks:
            collected.append(chunk)
            yield sum(map(len, collected))

    last(track(collect(), name, lambda done: (done, total)))
    return np.concatenate(collected)


class _Bar(Progress):
    """With its metrics below, so that a narrow terminal has room for both."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        for task in self.tasks:
            if task.fields["note"]:
                yield Text(f"  {task.fields['note']}", style="dim", no_wrap=True, overflow="ellipsis")


def _bar(console: Console) -> Progress:
    return _Bar(
        TextColumn("{task.description:<13}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def _show(artifact: UUID | None, name: str, percent: float, note: str) -> UUID | None:
    """Create or move the progress artifact of this task run, with its metrics; outside Prefect there is none.

    A server that does not answer is not asked again until the next time: the work would wait for it.
    """
    if TaskRunContext.get() is None:
        return None
    described = f"Progress of {name}" + (f": `{note}`" if note else "")
    with warn_of_prefect("progress", retries=0):
        if artifact is None:
            return create_progress_artifact(  # type: ignore[return-value]
                progress=percent, key=f"progress-{name}", description=described
            )
        update_progress_artifact(artifact_id=artifact, progress=percent, description=described)
    return artifact


@contextmanager
def warn_of_prefect(what: str, retries: int = 1) -> Iterator[None]:
    """Work goes on when Prefect's server cannot be told about it, and does not wait a minute, as its client would."""
    try:
        with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: retries}):
            yield
    except Exception as error:
        logger.warning("Prefect could not be shown %s: %s", what, error)
