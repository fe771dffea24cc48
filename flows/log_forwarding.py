"""Forwarding of a run's log lines to Prefect's server and to a file of JSON lines."""

import itertools
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prefect.logging.handlers import APILogHandler

from gif_core.runtime import JsonLines

LAYERS: Final = ("flows", "tasks", "gif_core")


@contextmanager
def logs_forwarded() -> Iterator[None]:
    """Forward log lines of every layer to Prefect's server, which shows them on the run's page.

    With `GIF_LOG` in the environment they are also appended to that file, one JSON object per line.
    """
    handlers: list[logging.Handler] = [APILogHandler()]
    if path := os.environ.get("GIF_LOG"):
        handlers.append(logging.FileHandler(path, encoding="utf-8"))
        handlers[-1].setFormatter(JsonLines())
    loggers = [logging.getLogger(layer) for layer in LAYERS]
    for logger, handler in itertools.product(loggers, handlers):
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger, handler in itertools.product(loggers, handlers):
            logger.removeHandler(handler)
        for handler in handlers[1:]:
            handler.close()
