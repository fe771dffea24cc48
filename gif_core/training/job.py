"""What the processes of a training are given: its files, its checkpoints, and the weights that it starts from."""

# Shapes: N identities, L code length.

from typing import Final

import numpy as np

from gif_core.artifacts import Artifact, ArtifactStore, Draft, Inputs, StoreError, checkpoint_folder, open_input
from gif_core.backbones import describe_file, find_weights
from gif_core.runtime import count_processes
from gif_core.tokenization import check_identities, read_codes
from schemas.errors import GifError
from schemas.evaluation import PairFiles
from schemas.files import BACKBONE_FILE, CODE_VECTORS_FILE, CODES_DUCKDB_FILE, CODES_FILE, HEAD_FILE, IDENTITIES_FILE
from schemas.run import RunConfig
from schemas.training import TrainingConfig, TrainingJob, TrainingStart, TrainingTeacher

WEIGHT_FILES: Final = {"head": HEAD_FILE, "code_vectors": CODE_VECTORS_FILE}
"""What a model holds about its codes and identities."""


def describe_job(config: RunConfig, inputs: Inputs, draft: Draft) -> TrainingJob:
    """What the processes need to know; files that lie in object storage are fetched first."""
    faces, execution = inputs["ingestion"], config.execution
    return TrainingJob(
        config=config.training,
        seed=config.seed,
        device=execution.device,
        process_timeout=execution.process_timeout,
        lost_after=execution.lost_after,
        code_vector_memory=execution.code_vector_memory,
        code_vector_precision=execution.code_vector_precision,
        workers=max(1, execution.workers // count_processes(execution)),
        shards=_paths(faces, "identities-"),
        held_out=_paths(faces, "held_out-"),
        val_sets=tuple(each for each in config.evaluation.sets if isinstance(each, PairFiles)),
        codes=str(inputs["tokenization"].path(CODES_DUCKDB_FILE)),
        code_vectors=str(inputs["separation"].path(CODE_VECTORS_FILE)),
        store=config.store,
        checkpoints=checkpoint_folder("training", draft.ref, draft.inputs),
        checkpoint_seconds=execution.checkpoint_seconds,
        checkpoint_steps=execution.checkpoint_steps,
        checkpoints_kept=execution.checkpoints_kept,
        background_checkpoints=execution.background_checkpoints,
        compile=execution.compile,
        gradient_checkpointing=execution.gradient_checkpointing,
        start=_find_start(config, inputs, draft) if config.training.start_from else None,
        teacher=_find_teacher(config.training, draft),
    )


def _find_teacher(config: TrainingConfig, draft: Draft) -> TrainingTeacher | None:
    if config.teacher is None:
        return None
    file = _unchanged_file(config.teacher, "teacher", draft)
    return TrainingTeacher(backbone=config.teacher_backbone or config.backbone, file=file)


def _unchanged_file(address: str, setting: str, draft: Draft) -> str:
    """The local file of weights; GifError if it is not the one in the key."""
    name = f"training.{setting}"
    if setting in draft.settings and describe_file(address, name) != draft.settings[setting]:
        raise GifError(f"{name}: {address} has changed since the run began: run it again")
    return str(find_weights(address, name))


def _find_start(config: RunConfig, inputs: Inputs, draft: Draft) -> TrainingStart:
    """The weights of a file, or of an earlier model: its head only if it has the same codes or identities."""
    if config.training.start_file is not None:
        return TrainingStart(backbone=_unchanged_file(config.training.start_file, "start_from", draft))
    store = ArtifactStore(config.store)
    assert config.training.start_from is not None
    model = store.open(store.ref("training", config.training.start_from))
    same_head = model.manifest.settings.get("head") == config.training.head
    continued = same_head and _is_continued(store, config, model, inputs)
    found = {name: str(model.path(file)) for name, file in WEIGHT_FILES.items() if continued and model.names(file)}
    return TrainingStart(backbone=str(model.path(BACKBONE_FILE)), **found)


def _is_continued(store: ArtifactStore, config: RunConfig, model: Artifact, inputs: Inputs) -> bool:
    """Whether the codes that the model learned are the first of these, and their vectors go through a map as before.

    Heads without codes only ask for the identities. No when its codes are no longer in the store.
    """
    try:
        before = open_input(store, model, "tokenization")
        check_identities(before.path(CODES_FILE), inputs["ingestion"].path(IDENTITIES_FILE), more=True)
    except StoreError:
        raise
    except GifError:
        return False
    if config.training.head != "gif":
        return True
    (old_NL, old_shape), (new_NL, new_shape) = (
        read_codes(table.path(CODES_DUCKDB_FILE)) for table in (before, inputs["tokenization"])
    )
    same_map = config.training.maps_code_vectors(len(old_NL)) == config.training.maps_code_vectors(len(new_NL))
    return same_map and old_shape == new_shape and np.array_equal(old_NL, new_NL[: len(old_NL)])


def _paths(artifact: Artifact, prefix: str) -> tuple[str, ...]:
    return tuple(map(str, artifact.paths(prefix)))
