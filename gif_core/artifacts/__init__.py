"""Artifacts: the store of immutable results, addressed by a digest of what they depend on, on disks and object storage.

store        ArtifactStore: publish, find, open, list and remove artifacts
artifact     Artifact (open for reading) and Draft (being written)
keys         artifact_key: what a key is computed from
digests      SHA-256 of files, checked on every read
damage       invalidating damaged artifacts, so that the next run computes them again
errors       all errors of the store
storage      file operations on local disks; open_storage chooses disk or object storage
remote       the same operations on object storage (S3): multipart transfers, conditional writes
retry        retries of requests to a store: which errors (such as 503), how long, with which backoff
listing      entries of a store's listings
selftest     the test of a store that `gif doctor` runs
cache        local cache of remote files, with a size limit
uses         which cached files running processes use
leases       which run computes an artifact, so that others wait
attempts     which process writes which folder; resuming what a dead one left
checkpoints  checkpoints of a long computation
together     machines that compute one artifact together
parts        parts of a stage's work, stored as they are finished
part_runs    computing the parts that are not stored yet, in this process or on the runner that is given
gc           `gif artifacts gc`: removing leftovers
checking     `gif artifacts check`: comparing every file with its digest
records      the digest in manifests, tags, run records, decisions and checkpoints
pruning      `gif artifacts prune`: removing artifacts that nothing needs
tags         tags, and finding the artifact that a text names
decisions    the history of champions: an append-only log of decisions per tag
gallery_log  versions of galleries of enrolled people
runs         run records
lineage      what an artifact was made from, what a run produced, and which model a name means
sql          SQL over the artifacts of a run: `gif sql` and ArtifactStore.sql
sql_tables   the tables of `gif sql`: files of a run, and tables made of the store's small files
metrics      the Parquet table of metrics
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
    "FoundModel",
    "GalleryError",
    "InThisProcess",
    "Inputs",
    "MetricsWriter",
    "NotAModelError",
    "OldArtifactError",
    "PartJob",
    "PartRun",
    "PartRunner",
    "PartStore",
    "PublishedMeanwhileError",
    "RecordDamagedError",
    "Storage",
    "StoreAwayError",
    "StoreError",
    "artifact_key",
    "begin_run",
    "cache_folder",
    "check_artifacts",
    "check_file",
    "check_records",
    "check_shared",
    "check_version",
    "checkpoint_folder",
    "commit_version",
    "condemning",
    "decision_path",
    "describe_tables",
    "earlier_champion",
    "file_sha256",
    "find_champion",
    "find_evaluation",
    "find_leftovers",
    "find_model",
    "find_run",
    "find_scores",
    "find_unneeded",
    "gallery_folder",
    "is_shared_out",
    "latest_version",
    "list_galleries",
    "list_parts",
    "list_runs",
    "list_tags",
    "move_tag",
    "naming_full_disk",
    "newest_of_all",
    "only_one",
    "open_input",
    "open_storage",
    "query",
    "read_decision",
    "read_history",
    "read_tag",
    "read_versions",
    "remove_leftovers",
    "remove_unneeded",
    "resolve",
    "run_artifacts",
    "save_run",
    "seal",
    "settle",
    "sha256_of",
    "source_of",
    "try_store",
    "unseal",
    "with_ancestors",
    "yield_to_first_publisher",
]

if TYPE_CHECKING:
    from gif_core.artifacts.artifact import Artifact, Draft, Inputs
    from gif_core.artifacts.cache import cache_folder
    from gif_core.artifacts.checking import check_artifacts, check_records
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
    from gif_core.artifacts.digests import check_file, file_sha256, sha256_of
    from gif_core.artifacts.errors import (
        ArtifactDamagedError,
        ArtifactMissingError,
        FileDamagedError,
        PublishedMeanwhileError,
        RecordDamagedError,
        StoreAwayError,
        StoreError,
        naming_full_disk,
    )
    from gif_core.artifacts.gallery_log import (
        GalleryError,
        commit_version,
        gallery_folder,
        latest_version,
        list_galleries,
        read_versions,
    )
    from gif_core.artifacts.gc import RESULTS, find_leftovers, remove_leftovers
    from gif_core.artifacts.keys import artifact_key
    from gif_core.artifacts.leases import only_one
    from gif_core.artifacts.lineage import (
        FoundModel,
        NotAModelError,
        OldArtifactError,
        check_version,
        find_evaluation,
        find_model,
        find_scores,
        open_input,
        run_artifacts,
        source_of,
        with_ancestors,
    )
    from gif_core.artifacts.metrics import MetricsWriter
    from gif_core.artifacts.part_runs import InThisProcess, PartJob, PartRun, PartRunner
    from gif_core.artifacts.parts import PartStore, list_parts
    from gif_core.artifacts.pruning import find_unneeded, remove_unneeded
    from gif_core.artifacts.records import seal, unseal
    from gif_core.artifacts.remote import AT_ONCE, PART_BYTES
    from gif_core.artifacts.runs import begin_run, find_run, list_runs, save_run
    from gif_core.artifacts.selftest import AccessStep, try_store
    from gif_core.artifacts.sql import describe_tables, query
    from gif_core.artifacts.storage import Storage, open_storage
    from gif_core.artifacts.store import ArtifactStore
    from gif_core.artifacts.tags import list_tags, move_tag, read_tag, resolve
    from gif_core.artifacts.together import check_shared, is_shared_out, newest_of_all, yield_to_first_publisher
else:
    __getattr__ = lazy_imports(__name__)
