"""Progress of a running stage: a bar in the terminal, lines in the log, a progress artifact in Prefect's UI."""

import logging
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from uuid import UUID

import rich.progress as rich
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.context import SettingsContext, TaskRunContext, get_settings_context
from rich.console import Console, RenderableType
from rich.text import Text

from gif_core.runtime import Progress, Ticker, milestones

logger = logging.getLogger(__name__)

LOG_SECONDS = 10.0
UI_SECONDS = 2.0


def show(steps: Generator[Progress, None, None]) -> None:
    """Run a stage to its end and show its progress."""
    with closing(steps):
        for _ in track(steps):
            pass


def track(steps: Iterable[Progress]) -> Iterator[Progress]:
    """Pass progress on, and show it: each activity has a bar and a progress artifact of its own."""
    shown: Activity | None = None
    try:
        for step in steps:
            if shown is None or shown.is_over(step):
                if shown:
                    shown.end(finished=True)
                shown = Activity(step.activity)
            shown.update(step)
            yield step
        if shown:
            shown.end(finished=True)
    finally:
        if shown:
            shown.end()


class Activity:
    """The progress display of one activity of a stage."""

    def __init__(self, name: str) -> None:
        """Start its bar."""
        self.name, self.done = name, 0
        self.console = Console(stderr=True)
        self.log_due, self.ui_due = Ticker(LOG_SECONDS), Ticker(UI_SECONDS)
        self.artifact: UUID | None = None
        self.bar = _bar(self.console)
        self.bar.start()
        self.row = self.bar.add_task(label_of(name), total=None, note="")

    def is_over(self, step: Progress) -> bool:
        """Whether this step belongs to another activity, or to the same one begun again, as for another set."""
        return step.activity != self.name or step.done < self.done

    def update(self, step: Progress) -> None:
        """Move the bar; update the log and Prefect's UI at intervals."""
        self.done = step.done
        self.bar.update(self.row, completed=step.done, total=step.total, note=step.text)
        if self.ui_due():
            self.artifact = _show(self.artifact, self.name, 100 * step.done / max(step.total or 1, 1), step.text)
        if step.milestone:
            milestones.info("%s: %s  %s", self.name, step.milestone, step.text)
        elif self.log_due() and not self.console.is_terminal:
            logger.info("%s: %d of %s %s", self.name, step.done, step.total or "?", step.text)

    def end(self, *, finished: bool = False) -> None:
        """Leave the bar as it is; that of work that ended before its limit, such as a descent, is full."""
        if finished and self.done:
            self.bar.update(self.row, total=self.done)
        self.bar.stop()


def label_of(activity: str) -> str:
    """An activity with the stage it belongs to, such as `evaluation: encoder`."""
    context = TaskRunContext.get()
    stage = context.task.name if context else activity
    return activity if activity == stage else f"{stage}: {activity}"


class _Bar(rich.Progress):
    """A bar with its metrics on the line below, so that both fit into a narrow terminal."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        for task in self.tasks:
            if task.fields["note"]:
                yield Text(f"  {task.fields['note']}", style="dim", no_wrap=True, overflow="ellipsis")


def _bar(console: Console) -> rich.Progress:
    return _Bar(
        rich.TextColumn("{task.description:<23}"),
        rich.BarColumn(bar_width=20),
        rich.MofNCompleteColumn(),
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def _show(artifact: UUID | None, name: str, percent: float, note: str) -> UUID | None:
    """Create or move the progress artifact of this task run, with its metrics; outside Prefect there is none.

    A request that fails is not retried, since the work would wait for it.
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
    """Log a warning instead of failing if Prefect's server does not answer; few retries, since work waits for them."""
    try:
        with _retries(retries):
            yield
    except Exception as error:
        logger.warning("Prefect could not be shown %s: %s", what, error)


def _retries(most: int) -> SettingsContext:
    """Settings with so many retries. Prefect's `temporary_settings` reads all of them anew: a fifth of a stored run."""
    now = get_settings_context()
    client = now.settings.client.model_copy(update={"max_retries": most})
    return SettingsContext(profile=now.profile, settings=now.settings.model_copy(update={"client": client}))
