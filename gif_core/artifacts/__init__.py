"""The artifact store: immutable results, named by what they depend on, on local disks and object storage."""

from gif_core.artifacts.artifact import Artifact, Draft
from gif_core.artifacts.errors import ArtifactDamagedError, ArtifactMissingError, FileDamagedError
from gif_core.artifacts.keys import artifact_key
from gif_core.artifacts.store import ArtifactStore

__all__ = [
    "Artifact",
    "ArtifactDamagedError",
    "ArtifactMissingError",
    "ArtifactStore",
    "Draft",
    "FileDamagedError",
    "artifact_key",
]
