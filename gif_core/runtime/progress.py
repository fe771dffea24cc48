"""How far a stage is: what the generators of the core yield, and whoever runs them shows."""

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Progress:
    """How much of an activity is done; a stage may have several, one after another."""

    activity: str
    done: int
    total: int | None
    """None while it is not known."""
    text: str = ""
    """Headline metrics so far, in a line."""
    milestone: str = ""
    """What this step completes, such as an epoch."""


def result_of(steps: Generator[Progress, None, Result]) -> Result:
    """Run a generator to its end without showing its progress, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


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
