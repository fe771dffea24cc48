"""Log lines that say which run, stage and artifact they are about."""

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
_about: ContextVar[dict[str, str]] = ContextVar("gif-log", default={})  # noqa: B039 (never changed in place)


@contextmanager
def lines_about(**fields: str) -> Iterator[None]:
    """Meanwhile, lines of this thread carry these fields: `run`, `stage`, `artifact`."""
    token = _about.set(_about.get() | fields)
    try:
        yield
    finally:
        _about.reset(token)


def say_about(**fields: str) -> None:
    """From here to the end of the surrounding `lines_about`, lines carry these fields too."""
    _about.set(_about.get() | fields)


def carrying_on(function: Callable[P, Answer]) -> Callable[P, Answer]:
    """The function with what lines are about here, for a thread to call."""
    return partial(copy_context().run, function)


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the run, stage and artifact, and a traceback if any."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in _about.get().items() if name in FIELDS},
        }
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)
