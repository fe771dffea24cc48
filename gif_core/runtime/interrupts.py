"""Postponing SIGINT and SIGTERM during sections that must not be interrupted."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def postponed_interrupts() -> Iterator[None]:
    """Deliver signals that arrive inside the block at its end. Other threads than the main one receive no signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []
    usual = {number: signal.getsignal(number) for number in SIGNALS}
    usual = {number: handler for number, handler in usual.items() if callable(handler)}
    for number in usual:
        signal.signal(number, lambda number, _: heard.append(number))
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
        if heard:
            signal.raise_signal(heard[0])
