"""Log lines of a run on Prefect's server, and in a file of JSON lines."""

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
    """Meanwhile, lines of every layer go to Prefect's server, where the run's page shows them.

    With `GIF_LOG` in the environment they are also added to that file, one JSON object each.
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
