"""Errors of the artifact store. Messages say what is wrong and what to do."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from schemas.artifacts import ArtifactRef, StoredFile
from schemas.errors import GifError


class ArtifactMissingError(GifError, LookupError):
    """The store has no such artifact."""


class ArtifactDamagedError(GifError, RuntimeError):
    """A stored file is missing or differs from its manifest."""


class RecordDamagedError(ArtifactDamagedError):
    """A manifest, tag, run record or decision does not match its digest; the message names the file."""


class FileDamagedError(ArtifactDamagedError):
    """A file of a published artifact differs from its manifest, on two reads."""

    def __init__(self, ref: ArtifactRef, attempt: str, file: StoredFile, fault: str, advice: str) -> None:
        """`attempt` is the attempt whose files the manifest listed."""
        super().__init__(ref, attempt, file, fault, advice)
        self.ref, self.attempt, self.file, self.fault, self.advice = ref, attempt, file, fault, advice

    def __str__(self) -> str:
        """The damaged file, the fault, and what to do."""
        return f"{self.file.name} of {self.ref}: {self.fault}; {self.advice}"

    def with_advice(self, advice: str) -> "FileDamagedError":
        """The same error with other advice."""
        return FileDamagedError(self.ref, self.attempt, self.file, self.fault, advice)


class PublishedMeanwhileError(GifError):
    """Another run that shared the work has published the artifact: there is nothing left to do."""


class StoreError(GifError, OSError):
    """The store itself cannot be used."""


class StoreRefusedError(StoreError):
    """The store rejects the request; a retry would not help."""


class StoreAwayError(StoreError):
    """The store has not answered within the time limit."""


class DiskFullError(GifError, OSError):
    """The disk to which an artifact is written is full."""


@contextmanager
def naming_full_disk(place: str) -> Iterator[None]:
    """Turn any library's error about a full disk into a DiskFullError that says which disk and what to do."""
    try:
        yield
    except DiskFullError:
        raise
    except Exception as error:
        if not _is_of_full_disk(error):
            raise
        advice = "free some space and run again; published artifacts are not affected"
        raise DiskFullError(errno.ENOSPC, f"the disk of {place} is full: {advice}") from error


def _is_of_full_disk(error: BaseException | None) -> bool:
    """Whether an error, or one that led to it, says so: by its number, or in words where a library has no numbers."""
    while error is not None:
        full = (errno.ENOSPC, errno.EDQUOT)
        if getattr(error, "errno", None) in full or any(os.strerror(number) in str(error) for number in full):
            return True
        error = error.__cause__ or error.__context__
    return False
