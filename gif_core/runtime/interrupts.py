"""SIGINT and SIGTERM: postponed during sections that must not be interrupted, and one end for all of them."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
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


@contextmanager
def ending_by_signal() -> Iterator[None]:
    """Raise KeyboardInterrupt on Ctrl-C, on SIGTERM and when the terminal is closed, unless `nohup` ignores that.

    Children started meanwhile do not inherit ignored signals, as those of a background job would.
    """

    def interrupt(sign: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with handling_signals(interrupt):
        yield


@contextmanager
def handling_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Have SIGINT, SIGTERM and SIGHUP handled so in the block; SIGHUP stays ignored where it is."""
    signs = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signs.append(signal.SIGHUP)
    before = {sign: signal.signal(sign, handler) for sign in signs}
    try:
        yield
    finally:
        for sign, old in before.items():
            signal.signal(sign, old)
