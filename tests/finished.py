"""A finished run as others are compared with it: the digest of every file that it published."""

import re

from gif_core.artifacts import ArtifactStore, check_artifacts

Digests = dict[tuple[str, str, str], str]
OWN = re.compile(r"metrics\.parquet|codes\.duckdb|report\.html|.*tfevents.*")
"""Files that tell times, or to which DuckDB gives a number of their own: no two runs have the same. The codes are also
in `codes.parquet`."""


def digests_of(store: ArtifactStore) -> Digests:
    """Stage, key and name of every published file that is the same in all runs of a configuration → its SHA-256."""
    files = ((ref, file) for ref in store.refs() for file in store.open(ref).manifest.files)
    return {(ref.stage, ref.key, file.name): file.sha256 for ref, file in files if not OWN.fullmatch(file.name)}


def faults_of(store: ArtifactStore) -> list[str]:
    """What is wrong with published files."""
    return [f"{each.artifact} {each.name}: {each.fault}" for each in check_artifacts(store, store.refs()) if each.fault]
