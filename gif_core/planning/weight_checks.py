"""Local files of weights that settings name, read before a run whose stages would open them hours later."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from gif_core.artifacts import ArtifactStore
from gif_core.embedding.encoders import given_file
from gif_core.planning.plan import plan_stages
from schemas.run import RunConfig
from schemas.stages import StageName
from schemas.training import OTHER_OUTPUTS

READ: Final = 2 * 2**30
"""Bytes up to which a file is read before a run: some seconds. A larger one is checked by the stage that opens it."""
Named = tuple[StageName, str, Path, str | None, int | None]


def unfit_weights(store: ArtifactStore, config: RunConfig, selected: Collection[StageName]) -> Iterator[str]:
    """What is wrong with the files of weights of stages that are not stored: values, names, shapes."""
    given = [each for each in _named_files(config) if each[0] in selected and _is_quick_to_read(each[2])]
    if not given:
        return
    plans = plan_stages(store, config, selected)
    for stage, setting, file, backbone, dim in given:
        if plans[stage].action == "run":
            from gif_core.backbones import find_misfit  # imports torch, which a cached run does without

            if fault := find_misfit(file, backbone, dim):
                yield f"{setting}: {fault}"


def _named_files(config: RunConfig) -> Iterator[Named]:
    """The stage, the setting, the file, and the backbone that it must fit, None where that is another network.

    The last is the dimension of features, None where the encoder's decides or none is asked for.
    """
    training, embedding, dim = config.training, config.embedding, config.separation.dimension
    encoder = embedding.model if embedding.encoder == "backbone" else None
    own = None if training.head in OTHER_OUTPUTS else training.backbone
    if (file := given_file(embedding)) is not None:
        yield "embedding", "embedding.pretrained", file, encoder, None
    if training.start_file is not None:
        yield "training", "training.start_from", Path(training.start_file).expanduser(), own, dim
    if training.teacher is not None:
        backbone = training.teacher_backbone or training.backbone
        yield "training", "training.teacher", Path(training.teacher).expanduser(), backbone, dim


def _is_quick_to_read(path: Path) -> bool:
    return path.is_file() and path.stat().st_size <= READ
