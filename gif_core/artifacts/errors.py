"""What can be wrong with an artifact, said so that a person knows what to do."""

from schemas.artifacts import ArtifactRef, StoredFile
from schemas.errors import GifError


class ArtifactMissingError(GifError, LookupError):
    """There is no such artifact in the store."""


class ArtifactDamagedError(GifError, RuntimeError):
    """A stored file is missing or is not what its manifest says."""


class FileDamagedError(ArtifactDamagedError):
    """A file of a published artifact is not what its manifest says, read twice."""

    def __init__(self, ref: ArtifactRef, attempt: str, file: StoredFile, fault: str, advice: str) -> None:
        """`attempt` is the one whose files the manifest named that was read."""
        super().__init__(ref, attempt, file, fault, advice)
        self.ref, self.attempt, self.file, self.fault, self.advice = ref, attempt, file, fault, advice

    def __str__(self) -> str:
        """What is damaged, and what to do."""
        return f"{self.file.name} of {self.ref}: {self.fault}; {self.advice}"

    def with_advice(self, advice: str) -> "FileDamagedError":
        """The same damage, and something else to do."""
        return FileDamagedError(self.ref, self.attempt, self.file, self.fault, advice)


class PublishedMeanwhileError(GifError):
    """Another run, with which this one shared the work, has published the artifact: there is nothing left to do."""


class StoreError(GifError, OSError):
    """The store itself cannot be used."""


class StoreRefusedError(StoreError):
    """The store answers, and says no: asking again would not help."""


class StoreAwayError(StoreError):
    """The store has not answered for as long as one was to wait."""


class DiskFullError(GifError, OSError):
    """There is no room left where an artifact is being written."""
