"""Computing the parts of a stage that are not stored yet, in this process or on an engine that the caller brings."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import ClassVar, Final, Protocol

from gif_core.artifacts.parts import PartStore
from gif_core.artifacts.store import ArtifactStore
from gif_core.runtime import Progress
from schemas.stages import StageName

logger = logging.getLogger(__name__)

_one_at_a_time: Final = Lock()
"""The threads of a process share one network and, on a CPU, torch's thread count."""


@dataclass(frozen=True)
class PartJob(ABC):
    """All that a process needs to compute one part; it is pickled when that is another process."""

    kind: ClassVar[str]
    """What is done, in a few words: `embed part`."""
    stage: ClassVar[StageName]

    store: str
    """Address of the artifact store."""
    key: str
    """Digest of what the result depends on."""
    device: str
    batch_size: int
    again: bool = field(default=False, kw_only=True)
    """Whether to compute a part that is stored already."""

    @property
    @abstractmethod
    def title(self) -> str:
        """Name of this part among those of its kind."""

    @abstractmethod
    def compute(self, threads: int) -> bytes:
        """The content of the part, computed with so many threads; any number of them gives the same bytes."""

    def compute_and_store(self, threads: int) -> str:
        """The name under which the part is stored; one thread of a process computes at a time.

        Engines also repeat parts that a lost machine had finished: these are in the store.
        """
        parts = PartStore(ArtifactStore(self.store), self.stage)
        if not self.again and (stored := parts.find(self.key)):
            return stored
        with _one_at_a_time:
            content = self.compute(threads)
        return parts.save(self.key, content)


class PartRunner(Protocol):
    """An engine that calls `compute_and_store` of jobs, several at a time and wherever it likes."""

    @property
    def name(self) -> str:
        """What the metrics of an artifact call it."""

    def map(self, jobs: Sequence[PartJob]) -> Iterator[str]:
        """The names under which the parts are stored, in order."""


@dataclass(frozen=True)
class InThisProcess:
    """Computes one part after another in this process."""

    threads: int = 1
    name: str = "InThisProcess"

    def map(self, jobs: Sequence[PartJob]) -> Iterator[str]:
        """The names under which the parts are stored, in order."""
        return (job.compute_and_store(self.threads) for job in jobs)


class PartRun:
    """The parts of an artifact: those that are stored, and those that are missing."""

    def __init__(self, parts: PartStore, jobs: Sequence[PartJob], *, from_scratch: bool = False) -> None:
        """Look for all parts; `from_scratch`, every one is missing."""
        self.jobs = [replace(job, again=True) for job in jobs] if from_scratch else jobs
        self.stored = {} if from_scratch else parts.names()
        self.missing = [job for job in self.jobs if job.key not in self.stored]
        logger.info("%d of %d parts are stored already", len(jobs) - len(self.missing), len(jobs))

    def complete(self, runner: PartRunner, activity: str) -> Generator[Progress, None, list[str]]:
        """Compute and store what is missing; the names of all parts, in the order of the jobs."""
        if self.missing:
            yield Progress(activity, 0, len(self.missing))
        names = runner.map(self.missing) if self.missing else ()
        for done, (job, name) in enumerate(zip(self.missing, names, strict=True), start=1):
            self.stored[job.key] = name
            yield Progress(activity, done, len(self.missing))
        return [self.stored[job.key] for job in self.jobs]
