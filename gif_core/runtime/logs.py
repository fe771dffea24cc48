"""Structured logging: log lines carry the run, stage and artifact that they are about."""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from datetime import UTC, datetime
from functools import partial
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
Answer = TypeVar("Answer")
FIELDS: Final = ("run", "stage", "artifact")
milestones: Final = logging.getLogger("gif_core.milestones")
"""What a reader of a log without bars wants to follow: stages that begin and end, epochs of a training."""
milestones_beside: Final = milestones.getChild("beside")
"""Those of a run beside the one that shows bars."""
_about: ContextVar[dict[str, str]] = ContextVar("gif-log", default={})  # noqa: B039 (never changed in place)


@contextmanager
def log_fields(**fields: str) -> Iterator[None]:
    """Log lines of this thread inside the block carry these fields: `run`, `stage`, `artifact`."""
    token = _about.set(_about.get() | fields)
    try:
        yield
    finally:
        _about.reset(token)


def add_log_fields(**fields: str) -> None:
    """Add fields until the surrounding `log_fields` block ends."""
    _about.set(_about.get() | fields)


def with_log_fields(function: Callable[P, Answer]) -> Callable[P, Answer]:
    """The function, to be called in another thread with this thread's log fields."""
    return partial(copy_context().run, function)


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the run, stage and artifact, and a traceback if any."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record as a JSON line."""
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in _about.get().items() if name in FIELDS},
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)
