"""`gif artifacts prune`: removing published artifacts that no kept run, tag or champion needs."""

import logging
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from gif_core.artifacts.attempts import owner_state
from gif_core.artifacts.decisions import models_in_force
from gif_core.artifacts.errors import ArtifactMissingError
from gif_core.artifacts.gallery_log import models_of_galleries
from gif_core.artifacts.leases import find_leases, only_one
from gif_core.artifacts.lineage import with_sources
from gif_core.artifacts.runs import going_on, list_runs
from gif_core.artifacts.store import ArtifactStore
from gif_core.artifacts.tags import list_tags
from schemas.artifacts import Manifest
from schemas.errors import GifError

logger = logging.getLogger(__name__)
WEEK: Final = 7 * 24 * 3600.0
"""An active run without a sign of life for this long counts as dead, unless it holds a lease."""


class StoreInUseError(GifError):
    """A run is active, so it is not known which artifacts are needed."""


def find_unneeded(store: ArtifactStore, *, keep_runs: int, older_than: timedelta = timedelta()) -> list[Manifest]:
    """Artifacts that the newest runs, tags, champions, galleries and their inputs do not need, newest first."""
    _refuse_while_in_use(store)
    manifests = store.manifests()
    if len(manifests) < len(store.refs()):
        raise GifError(
            "some manifests cannot be read, so it is not known what is needed: 'gif artifacts check' lists them"
        )
    runs = [run for run in list_runs(store, strict=True) if run.stages]
    kept = [*runs[:keep_runs], *(run for run in runs[keep_runs:] if run.state == "running")]
    roots = {(stage, done.key) for run in kept for stage, done in run.stages.items()}
    roots |= {(tag.ref.stage, tag.ref.key) for tag in list_tags(store, strict=True)} | models_in_force(store)
    roots |= models_of_galleries(store)
    needed = with_sources(roots, {(manifest.stage, manifest.key): manifest for manifest in manifests})
    before = datetime.now(UTC) - older_than
    return [each for each in manifests if (each.stage, each.key) not in needed and each.created_at <= before]


def remove_unneeded(store: ArtifactStore, unneeded: Iterable[Manifest]) -> list[Manifest]:
    """Remove these artifacts, manifest first, and return the removed ones. It stops when a run starts meanwhile."""
    runs, gone = _names_of_runs(store), list[Manifest]()
    for manifest in unneeded:
        ref = store.ref(manifest.stage, manifest.key)
        with only_one(store.storage, ref):
            if _names_of_runs(store) != runs:
                logger.warning("a run has started meanwhile: the remaining artifacts stay")
                break
            with suppress(ArtifactMissingError):
                if store.open(ref).manifest == manifest:
                    store.remove(ref)
                    gone.append(manifest)
    return gone


def _refuse_while_in_use(store: ArtifactStore) -> None:
    """Raise while a run is active: the inputs of a run that starts at a later stage are not recorded anywhere."""
    runs = going_on(store, store.storage.now() - WEEK)
    holders = {lease.holder for lease in find_leases(store.storage) if owner_state(lease.holder) != "dead"}
    if runs or holders:
        names = ", ".join([*runs, *sorted(holders)])
        raise StoreInUseError(
            f"a run is active ({names}): prune when it has ended ('gif artifacts gc' removes old leases)"
        )


def _names_of_runs(store: ArtifactStore) -> set[str]:
    return {file.path for file in store.storage.find("runs")}
