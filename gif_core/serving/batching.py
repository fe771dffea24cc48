"""Micro-batches: faces of requests that wait at the same time go through the network together."""

# Shapes: B faces, H height, W width, C channels, D dimensions.

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gif_core.recognition import Recognizer
from gif_core.serving.metrics import Metrics

MOST: Final = 8
"""Faces of a batch, if no single request has more."""
WAIT: Final = 0.002
"""Seconds that a batch which is not full waits for requests that have arrived but are not decoded yet."""


@dataclass(frozen=True, slots=True)
class _Job:
    recognizer: Recognizer
    faces_BHWC: NDArray[np.uint8]
    flip: bool
    done: "asyncio.Future[NDArray[np.float32]]"

    def fits(self, other: "_Job") -> bool:
        """Whether both go through one network in one way."""
        return self.recognizer is other.recognizer and self.flip == other.flip


class Batcher:
    """Embeds faces in one thread, in the order of the requests; while it computes, the next batch gathers."""

    def __init__(self, metrics: Metrics, *, most: int = MOST, wait: float = WAIT) -> None:
        """`most` faces of several requests make a batch."""
        self._metrics, self._most, self._wait = metrics, most, wait
        self._waiting: deque[_Job] = deque()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "gif-network")
        self._task: asyncio.Task[None] | None = None
        self.coming = 0
        """Requests that are on their way here."""

    async def __aenter__(self) -> "Batcher":
        """Begin."""
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop; nothing waits any more."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._thread.shutdown(wait=True)

    async def embed(
        self, recognizer: Recognizer, faces_BHWC: NDArray[np.uint8], *, flip: bool = True
    ) -> NDArray[np.float32]:
        """Unit features [B, D] of aligned faces."""
        job = _Job(recognizer, faces_BHWC, flip, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        self._arrived.set()
        return await job.done

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            await self._gather()
            jobs = self._take()
            if not jobs:
                continue
            try:
                features = await loop.run_in_executor(self._thread, _embed, jobs)
            except Exception as error:  # whatever it was belongs to the requests
                _fail(jobs, error)
                continue
            self._metrics.observe("gif_batch_faces", sum(map(len, features)))
            for job, features_BD in zip(jobs, features, strict=True):
                if not job.done.done():
                    job.done.set_result(features_BD)

    async def _gather(self) -> None:
        """Wait a moment for requests that are being decoded, if the batch has room for them."""
        end = asyncio.get_running_loop().time() + self._wait
        while self.coming and sum(len(job.faces_BHWC) for job in self._waiting) < self._most:
            left = end - asyncio.get_running_loop().time()
            if left <= 0:
                return
            self._arrived.clear()
            try:
                async with asyncio.timeout(left):
                    await self._arrived.wait()
            except TimeoutError:
                return

    def _take(self) -> list[_Job]:
        """The oldest jobs that fit together; those whose request has ended are dropped."""
        jobs: list[_Job] = []
        faces = 0
        while self._waiting and (not jobs or faces + len(self._waiting[0].faces_BHWC) <= self._most):
            if self._waiting[0].done.done():
                self._waiting.popleft()
                continue
            if jobs and not jobs[0].fits(self._waiting[0]):
                break
            jobs.append(self._waiting.popleft())
            faces += len(jobs[-1].faces_BHWC)
        if not self._waiting:
            self._arrived.clear()
        else:
            self._arrived.set()
        return jobs


def _embed(jobs: list[_Job]) -> list[NDArray[np.float32]]:
    faces_BHWC = np.concatenate([job.faces_BHWC for job in jobs])
    features_BD = jobs[0].recognizer.embed_aligned(faces_BHWC, flip=jobs[0].flip)
    return np.split(features_BD, np.cumsum([len(job.faces_BHWC) for job in jobs])[:-1])


def _fail(jobs: list[_Job], error: Exception) -> None:
    for job in jobs:
        if not job.done.done():
            job.done.set_exception(error)
