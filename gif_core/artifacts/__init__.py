"""Artifacts: immutable results, named by a digest of what they depend on, on local disks and object storage.

artifact     An artifact open for reading, and the draft of one that is being made
attempts     Names of attempts at an artifact: who is writing, so that leftovers of the dead can be told from work
cache        Local copies of files of remote stores, named by their content and verified whenever they are opened
checkpoints  Checkpoints of a long computation in the store: files first, `state.json` last, which names them with th...
damage       A damaged artifact goes out of use: a note beside its manifest says so, and whoever needs it makes it again
decisions    Decisions about champions: an append-only log, `decisions/<tag>/<number>.json`, and the tag that follows it
digests      Is a file what its manifest says? Checked on every read, once per process for an unchanged file
errors       What can be wrong with an artifact, said so that a person knows what to do
gc           Verification of everything stored, and removal of what dead attempts left behind
keys         The name of an artifact: a digest of everything that its content depends on
leases       Who is making an artifact: a lease that its holder renews, so that no other run makes the same meanwhile
listing      What listings of a store tell
metrics      Metrics of training and evaluation as one long table: stage, step, name, value
parts        Parts of a stage's work, stored one by one as they are done, so that no later run does them again
pruning      Which published artifacts may go: those that no kept run, no tag, no champion, and nothing made from the...
remote       Object storage through fsspec: small requests that are repeated, and large files in parts, several at once
retry        Asking a store again that does not answer: for how long, and which of its errors that can help with
runs         Run records, `runs/<run id>.json`: what each run was told and which artifacts it made or reused
selftest     Whether a store does what artifacts rely on: write, create only once, read, replace, list, delete
sql          SQL over the artifacts of a run: read-only, on the files themselves
storage      The few file operations the store is built on, for local disks; `remote` has them for object storage
store        Artifacts in `<root>/<stage>/<key>/`: files first, the manifest last
tags         Named pointers, `tags/<stage>/<name>.json`, each moved by replacing one small file
uses         Which copies of the cache are in use: each process keeps a list of them, locked for as long as it lives
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "AT_ONCE",
    "PART_BYTES",
    "RESULTS",
    "AccessStep",
    "Artifact",
    "ArtifactDamagedError",
    "ArtifactMissingError",
    "ArtifactStore",
    "ChampionError",
    "Checkpoint",
    "Checkpoints",
    "Draft",
    "FileDamagedError",
    "MetricsWriter",
    "PartStore",
    "PublishedMeanwhileError",
    "Storage",
    "StoreAwayError",
    "StoreError",
    "artifact_key",
    "begin_run",
    "cache_folder",
    "checkpoint_folder",
    "condemning",
    "decision_path",
    "earlier_champion",
    "find_champion",
    "find_leftovers",
    "find_run",
    "find_unneeded",
    "list_parts",
    "list_runs",
    "list_tags",
    "move_tag",
    "only_one",
    "open_database",
    "open_storage",
    "query",
    "read_decision",
    "read_history",
    "read_tag",
    "remove_leftovers",
    "remove_unneeded",
    "resolve",
    "run_artifacts",
    "save_run",
    "settle",
    "sha256_of",
    "try_store",
    "verify_artifacts",
]

if TYPE_CHECKING:
    from gif_core.artifacts.artifact import Artifact, Draft
    from gif_core.artifacts.cache import cache_folder
    from gif_core.artifacts.checkpoints import Checkpoint, Checkpoints, checkpoint_folder
    from gif_core.artifacts.damage import condemning
    from gif_core.artifacts.decisions import (
        ChampionError,
        decision_path,
        earlier_champion,
        find_champion,
        read_decision,
        read_history,
        settle,
    )
    from gif_core.artifacts.digests import sha256_of
    from gif_core.artifacts.errors import (
        ArtifactDamagedError,
        ArtifactMissingError,
        FileDamagedError,
        PublishedMeanwhileError,
        StoreAwayError,
        StoreError,
    )
    from gif_core.artifacts.gc import RESULTS, find_leftovers, remove_leftovers, verify_artifacts
    from gif_core.artifacts.keys import artifact_key
    from gif_core.artifacts.leases import only_one
    from gif_core.artifacts.metrics import MetricsWriter
    from gif_core.artifacts.parts import PartStore, list_parts
    from gif_core.artifacts.pruning import find_unneeded, remove_unneeded
    from gif_core.artifacts.remote import AT_ONCE, PART_BYTES
    from gif_core.artifacts.runs import begin_run, find_run, list_runs, save_run
    from gif_core.artifacts.selftest import AccessStep, try_store
    from gif_core.artifacts.sql import open_database, query, run_artifacts
    from gif_core.artifacts.storage import Storage, open_storage
    from gif_core.artifacts.store import ArtifactStore
    from gif_core.artifacts.tags import list_tags, move_tag, read_tag, resolve
else:
    __getattr__ = lazy_imports(__name__)
