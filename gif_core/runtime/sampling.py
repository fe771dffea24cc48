"""Something that a thread measures again and again while a block runs."""

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Sampling(ABC):
    """Calls `sample` in a thread, every so many seconds while it is open, and a last time when it is closed."""

    def __init__(self, seconds: float, name: str) -> None:
        """`name` is that of the thread."""
        self._seconds, self._closing = seconds, threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True, name=name)

    @abstractmethod
    def begin(self) -> bool:
        """Whether there is anything to measure on this machine; called before the thread starts."""

    @abstractmethod
    def sample(self) -> None:
        """Measure once."""

    def __enter__(self) -> Self:
        """Start sampling."""
        if self.begin():
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take a last sample and stop."""
        self._closing.set()
        if self._thread.ident:
            self._thread.join()

    def _go_on(self) -> None:
        while not self._closing.wait(self._seconds):
            self.sample()
        self.sample()
