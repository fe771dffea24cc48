"""Which published artifacts may go: those that no kept run, no tag, no champion, and nothing made from them needs."""

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from gif_core.artifacts.attempts import owner_state
from gif_core.artifacts.decisions import models_in_force
from gif_core.artifacts.errors import ArtifactMissingError
from gif_core.artifacts.leases import find_leases, only_one
from gif_core.artifacts.runs import going_on, list_runs
from gif_core.artifacts.store import ArtifactStore
from gif_core.artifacts.tags import list_tags
from schemas.artifacts import Manifest
from schemas.errors import GifError
from schemas.stages import StageName

logger = logging.getLogger(__name__)
WEEK: Final = 7 * 24 * 3600.0
"""A run that has not ended and has said nothing for so long is taken for dead, unless it holds a lease."""
Place = tuple[StageName, str]


class StoreInUseError(GifError):
    """Somebody is at work, and it cannot be told what is needed."""


def find_unneeded(store: ArtifactStore, *, keep_runs: int, older_than: timedelta = timedelta()) -> list[Manifest]:
    """Artifacts that the newest runs, tags, champions and what those were made from do not need, the newest first."""
    _refuse_while_in_use(store)
    manifests = store.manifests()
    if len(manifests) < len(store.refs()):
        raise GifError(
            "some manifests cannot be read, so nobody knows what is needed: 'gif artifacts verify' names them"
        )
    runs = [run for run in list_runs(store) if run.stages]
    kept = [*runs[:keep_runs], *(run for run in runs[keep_runs:] if run.state == "running")]
    roots = {(stage, done.key) for run in kept for stage, done in run.stages.items()}
    roots |= {(tag.ref.stage, tag.ref.key) for tag in list_tags(store)} | models_in_force(store)
    needed = _with_lineage(roots, {(manifest.stage, manifest.key): manifest for manifest in manifests})
    before = datetime.now(UTC) - older_than
    return [each for each in manifests if (each.stage, each.key) not in needed and each.created_at <= before]


def remove_unneeded(store: ArtifactStore, unneeded: Iterable[Manifest]) -> list[Manifest]:
    """Remove these artifacts, manifest first; what went. A run that begins meanwhile ends it."""
    runs, gone = _names_of_runs(store), list[Manifest]()
    for manifest in unneeded:
        ref = store.ref(manifest.stage, manifest.key)
        with only_one(store.storage, ref):
            if _names_of_runs(store) != runs:
                logger.warning("a run has begun meanwhile: what is left stays")
                break
            with suppress(ArtifactMissingError):
                if store.open(ref).manifest == manifest:
                    store.remove(ref)
                    gone.append(manifest)
    return gone


def _refuse_while_in_use(store: ArtifactStore) -> None:
    """What a run reads that was told to begin in the middle is written down nowhere, so all stays while one goes on."""
    runs = going_on(store, store.storage.now() - WEEK)
    holders = {lease.holder for lease in find_leases(store.storage) if owner_state(lease.holder) != "dead"}
    if runs or holders:
        names = ", ".join([*runs, *sorted(holders)])
        raise StoreInUseError(
            f"a run is going on ({names}): prune when it has ended ('gif artifacts gc' sweeps old leases)"
        )


def _with_lineage(roots: set[Place], manifests: Mapping[Place, Manifest]) -> set[Place]:
    """These and all that they were made from, and code vectors and codes that they extend.

    What those were made from may go, and so may a model from whose weights another was trained.
    """
    needed, waiting = set[Place](), list(roots)
    while waiting:
        place = waiting.pop()
        if place in manifests and place not in needed:
            needed.add(place)
            waiting += [(stage, source.key) for stage, source in manifests[place].inputs.items()]
    for stage, key in list(needed):
        place = (stage, str(manifests[stage, key].settings.get("extends")))
        while place in manifests:
            needed.add(place)
            place = (stage, str(manifests[place].settings.get("extends")))
    return needed


def _names_of_runs(store: ArtifactStore) -> set[str]:
    return {file.path for file in store.storage.find("runs")}
