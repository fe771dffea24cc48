"""Checks of a run before its first stage: paths, encoder, weights, room, and whether the faces suffice."""

from collections.abc import Collection, Iterator
from typing import Final

import pyarrow.parquet as pq

from gif_core.artifacts import Artifact, ArtifactStore
from gif_core.embedding.encoders import check_encoder
from gif_core.ingestion import check_enough, place_of, read_relabelling
from gif_core.planning.evaluation_sets import exists, sets_without_scores
from gif_core.planning.plan import stored_inputs
from gif_core.planning.preflight import RESERVE, Need, check_room
from gif_core.planning.weight_checks import unfit_weights
from gif_core.readers import open_reader
from schemas.errors import GifError
from schemas.files import IDENTITIES_FILE
from schemas.ingestion import FolderSource, Source, SyntheticSource
from schemas.run import RunConfig
from schemas.stages import StageName

MOST_DRAWN: Final = 20_000
"""Synthetic identities whose images are counted before a run."""


class CannotRunError(GifError, ValueError):
    """A run would fail; the message lists everything that is wrong."""


def check_before_run(store: ArtifactStore, config: RunConfig, selected: Collection[StageName]) -> list[str]:
    """Raise CannotRunError with all faults that are quick to find; return warnings.

    ArtifactMissingError if the selected stages read what no run has stored.
    """
    faults = list(_faults(store, config, selected))
    if faults:
        raise CannotRunError("\n".join(faults))
    stored_inputs(store, config, selected)
    if faults := list(unfit_weights(store, config, selected)):
        raise CannotRunError("\n".join(faults))
    if {"ingestion", "training"} <= set(selected) and all(map(_is_quick_to_list, config.ingestion.sources)):
        return check_enough(config, *_count_listed(config))
    return []


def check_faces(config: RunConfig, faces: Artifact) -> list[str]:
    """Check that stored faces suffice for training; returns warnings."""
    if IDENTITIES_FILE not in faces.names():
        return []
    counts = pq.read_table(faces.path(IDENTITIES_FILE), columns=["num_samples"])["num_samples"].to_pylist()
    return check_enough(config, len(counts), sum(counts))


def _faults(store: ArtifactStore, config: RunConfig, selected: Collection[StageName]) -> Iterator[str]:
    if "ingestion" in selected:
        yield from _missing_sources(config)
    if "evaluation" in selected:
        yield from sets_without_scores(config)
    if "embedding" in selected:
        try:
            check_encoder(config.embedding)
        except GifError as error:
            yield str(error)
    folder = store.storage.local_path("")
    if folder is not None:
        try:
            check_room(next(iter(selected)), Need(RESERVE, 0), folder)
        except GifError as error:
            yield str(error)


def _missing_sources(config: RunConfig) -> Iterator[str]:
    for source in config.ingestion.sources:
        try:
            open_reader(source)
        except (OSError, ValueError) as error:
            yield str(error)
        landmarks = getattr(source, "landmarks", None)
        if landmarks and not exists(landmarks):
            yield f"ingestion.sources: there is no landmarks file {landmarks}"
    for address in config.ingestion.relabel or ():
        try:
            read_relabelling(address)
        except (OSError, ValueError) as error:
            yield str(error)


def _is_quick_to_list(source: Source) -> bool:
    """Whether a source is a local folder or a small synthetic one; others are checked after ingestion."""
    if isinstance(source, SyntheticSource):
        return source.identities <= MOST_DRAWN
    return isinstance(source, FolderSource) and "://" not in source.path


def _count_listed(config: RunConfig) -> tuple[int, int]:
    """Identities and images to train on, before images are checked."""
    identities = images = 0
    for number, source in enumerate(config.ingestion.sources):
        listing = open_reader(source).listing
        counts = [0] * len(listing.labels)
        for person in listing.person_R.tolist():
            counts[person] += 1
        for label, count in zip(listing.labels, counts, strict=True):
            kept = count >= config.ingestion.min_samples and place_of(number, label) >= config.ingestion.shares[1]
            identities, images = identities + kept, images + kept * count
    return identities, images
