"""The batches of a training, decoded ahead of it by several processes."""

# Shapes: N images in all, B images in a batch, H height, W width, C channels.

import math
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from queue import SimpleQueue
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gif_core.images import Faces
from gif_core.training.data.decoders import Decoder, SharedBatches
from gif_core.training.data.sampler import BatchPlan

SMALLEST_PART: Final = 128
LARGEST_PART: Final = 256
"""Images that a process decodes at a time: enough to be worth a message, few enough to share a batch out."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The images of a step, as bytes, with their identities."""

    epoch: int
    images_BHWC: Tensor
    labels_B: Tensor


def load_batches(
    faces: Faces, plans: Iterable[BatchPlan], *, workers: int = 1, pin: bool = False
) -> Generator[Batch, None, None]:
    """The planned batches, all of one size, in order; closing the iterator ends the processes that read ahead.

    With `pin` they lie in page-locked memory, from which a GPU copies while the host goes on.
    """
    plans = iter(plans)
    first = next(plans, None)
    if first is None:
        return
    pending: deque[_Pending] = deque()
    ahead = batches_ahead(len(first), workers)
    with closing(_Crew(faces, workers, len(first), pin=pin)) as crew:
        for plan in chain([first], plans):
            pending.append(crew.start(plan))
            if len(pending) > ahead:
                yield pending.popleft().wait()
        while pending:
            yield pending.popleft().wait()


def part_size(batch_size: int, workers: int) -> int:
    """How many images a process is given at a time."""
    return min(max(batch_size // workers, SMALLEST_PART), LARGEST_PART)


def batches_ahead(batch_size: int, workers: int) -> int:
    """How many batches are decoded ahead: two parts for each process, so that none waits for the next."""
    return max(2, math.ceil(2 * workers * part_size(batch_size, workers) / batch_size))


@dataclass(frozen=True, slots=True)
class _Pending:
    """A batch whose parts are being decoded."""

    batch: Batch
    parts: list[Future[None]]

    def wait(self) -> Batch:
        for part in self.parts:
            part.result()
        return self.batch


class _Crew:
    """The decoding processes, with a thread for each that waits for it."""

    def __init__(self, faces: Faces, workers: int, batch_size: int, *, pin: bool) -> None:
        self.faces, self.pin = faces, pin
        self.part_size = part_size(batch_size, workers)
        self.memory = SharedBatches(batch_size)
        self.decoders = [Decoder(faces.paths, self.memory) for _ in range(workers)]
        self.idle: SimpleQueue[Decoder] = SimpleQueue()
        for decoder in self.decoders:
            self.idle.put(decoder)
        self.threads = ThreadPoolExecutor(workers, thread_name_prefix="gif-loader")

    def start(self, plan: BatchPlan) -> _Pending:
        """Hand out the parts of a batch."""
        number, shared_BHWC = self.memory.take()
        images_BHWC, labels_B = torch.from_numpy(shared_BHWC), torch.from_numpy(self.faces.labels_N[plan.indices])
        if self.pin:
            images_BHWC, labels_B = torch.empty_like(images_BHWC, pin_memory=True), labels_B.pin_memory()
        parts = [slice(start, start + self.part_size) for start in range(0, len(plan), self.part_size)]
        return _Pending(
            Batch(plan.epoch, images_BHWC, labels_B),
            [
                self.threads.submit(self._fill, number, shared_BHWC, images_BHWC, part, plan.part(part))
                for part in parts
            ],
        )

    def close(self) -> None:
        """End threads and processes, and what they were about to do."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        for decoder in self.decoders:
            decoder.stop()
        self.threads.shutdown()
        for decoder in self.decoders:
            decoder.connection.close()
        self.memory.close()

    def _fill(
        self, number: int, shared_BHWC: NDArray[np.uint8], images_BHWC: Tensor, part: slice, plan: BatchPlan
    ) -> None:
        decoder = self.idle.get()
        try:
            decoder.fill(number, part.start, plan)
        finally:
            self.idle.put(decoder)
        if self.pin:
            images_BHWC[part].copy_(torch.from_numpy(shared_BHWC[part]))
