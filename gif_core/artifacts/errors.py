"""What can be wrong with an artifact, said so that a person knows what to do."""

from schemas.errors import GifError


class ArtifactMissingError(GifError, LookupError):
    """There is no such artifact in the store."""


class ArtifactDamagedError(GifError, RuntimeError):
    """A stored file is missing or is not what its manifest says."""


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
