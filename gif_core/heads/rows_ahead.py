"""Rows of the host that a device needs: read a step ahead by a thread, and written back by it after their step.

Reading and writing happen in one thread, in order. So what is read ahead lacks only the changes of the step that runs
meanwhile, and these are still on the device.
"""

# Shapes: S rows in use, C of them in use in two steps that follow each other.

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gif_core.runtime import copies_made, runs_behind, to_device

Read = Callable[[NDArray[np.int64]], Sequence[Tensor]]
"""Rows of some identities, from one or several tables of the host."""
Write = Callable[[NDArray[np.int64], Sequence[Tensor]], None]


class RowsAhead:
    """Rows of one or several tables. A step calls `take`, and `put` if it has changed them."""

    def __init__(self, device: torch.device, read: Read, write: Write | None = None) -> None:
        """`read` and `write` are called in the thread, and by nobody else."""
        self.device, self._read, self._write = device, read, write
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="gif-rows")
        self.ahead: deque[tuple[NDArray[np.int64], Future[list[Tensor]]]] = deque()
        self.last: tuple[NDArray[np.int64], list[Tensor]] | None = None
        self.written: Future[None] | None = None

    def prepare(self, used_S: NDArray[np.int64]) -> None:
        """Begin to read the rows of the next step, before the current one changes any."""
        self.ahead.append((used_S, self.thread.submit(self._read_pinned, used_S)))

    def take(self, used_S: NDArray[np.int64]) -> list[Tensor]:
        """The rows of these identities, which ascend, on the device."""
        while self.ahead and not np.array_equal(self.ahead[0][0], used_S):
            self.ahead.popleft()
        if not self.ahead:
            self.prepare(used_S)
        found = [rows.to(self.device, non_blocking=True) for rows in self.ahead.popleft()[1].result()]
        if self.last is not None:
            _, here_C, there_C = np.intersect1d(used_S, self.last[0], assume_unique=True, return_indices=True)
            new_C, old_C = (to_device(torch.from_numpy(places), self.device) for places in (here_C, there_C))
            for rows, changed in zip(found, self.last[1], strict=True):
                rows[new_C] = changed[old_C]
        return found

    def put(self, used_S: NDArray[np.int64], rows: Sequence[Tensor]) -> None:
        """Write the rows back when the device has computed them."""
        self.last = (used_S, list(rows))
        copies = [each.to("cpu", non_blocking=True) for each in rows]
        if self.written is not None and self.written.done():
            self.written.result()  # raises what went wrong
        self.written = self.thread.submit(self._write_back, used_S, copies, copies_made(self.device))

    def flush(self) -> None:
        """Wait until all rows are written."""
        if self.written is not None:
            self.written.result()

    def _read_pinned(self, used_S: NDArray[np.int64]) -> list[Tensor]:
        found = self._read(used_S)
        return [rows.pin_memory() if runs_behind(self.device) else rows for rows in found]

    def _write_back(self, used_S: NDArray[np.int64], copies: list[Tensor], wait: Callable[[], None]) -> None:
        wait()
        if self._write is not None:
            self._write(used_S, copies)
