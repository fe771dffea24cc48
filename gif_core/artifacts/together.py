"""Machines that compute one artifact together: they share the store, agree on a checkpoint, and the first publishes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from gif_core.artifacts.artifact import Draft
from gif_core.artifacts.checkpoints import Checkpoint, Checkpoints
from gif_core.artifacts.errors import PublishedMeanwhileError
from gif_core.artifacts.store import ArtifactStore
from schemas.errors import GifError
from schemas.run import RunConfig
from schemas.stages import StageName

if TYPE_CHECKING:
    from gif_core.runtime import ProcessGroup

SIGN: Final = "sign"
TOGETHER: Final[frozenset[StageName]] = frozenset({"separation", "training"})
"""Stages that several machines compute together; of any other stage one machine computes the artifact."""


def is_shared_out(stage: StageName, config: RunConfig) -> bool:
    """Whether several machines compute the artifact of this stage together."""
    return stage in TOGETHER and config.execution.nodes != "1"


def check_shared(checkpoints: Checkpoints, group: "ProcessGroup") -> None:
    """Refuse a store that is another one for each machine: no checkpoint there would have all its parts."""
    if group.size == 1:
        return
    (folder, *_) = group.gather(_leave_sign(checkpoints) if group.leads else None)
    seen = group.gather(any(checkpoints.storage.find(folder)))
    if group.leads:
        checkpoints.storage.remove(folder)
    if not all(seen):
        raise GifError(
            "not every machine sees what the first one writes to the store: give all of them one that they share, "
            "such as store: s3://bucket/prefix or a folder that is mounted on each, or use one machine "
            "(execution.nodes: 1)"
        )


def _leave_sign(checkpoints: Checkpoints) -> str:
    folder = checkpoints.new_folder(0)
    checkpoints.storage.create(f"{folder}/{SIGN}", b"")
    return folder


def newest_of_all(checkpoints: Checkpoints, group: "ProcessGroup") -> Checkpoint | None:
    """The newest whole checkpoint, the same one in every process; None when there is none."""
    found = checkpoints.newest()
    (folder, *_) = group.gather(found.folder if found else None)
    if folder is None:
        return None
    if found is None or found.folder != folder:
        raise RuntimeError(f"the checkpoint {folder} that the first process sees cannot be read by all")
    return found


@contextmanager
def yield_to_first_publisher(config: RunConfig, draft: Draft) -> Iterator[None]:
    """Raise PublishedMeanwhileError for a failure after another machine has published the artifact.

    The machine that publishes removes the checkpoints, even while the others still read them.
    """
    if not is_shared_out(draft.ref.stage, config):
        yield
        return
    store = ArtifactStore(config.store)
    before = store.look_up(draft.ref, draft.inputs)
    try:
        yield
    except (GifError, FileNotFoundError) as error:
        if store.look_up(draft.ref, draft.inputs) not in (None, before):
            raise PublishedMeanwhileError("another of the machines was first to publish") from error
        raise
