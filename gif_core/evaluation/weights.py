"""Scores of published weights, such as insightface's `backbone.pth`, without training anything."""

from collections.abc import Generator
from pathlib import Path
from typing import Final

from safetensors.torch import save_file

from gif_core.artifacts import Artifact, ArtifactStore, Inputs, InThisProcess
from gif_core.backbones import open_foreign_backbone
from gif_core.evaluation.groups import compare_groups
from gif_core.evaluation.results import SetResult
from gif_core.evaluation.stage import evaluate_set
from gif_core.protocols import write_json
from gif_core.runtime import Progress
from schemas.evaluation import HeldOutSet
from schemas.files import BACKBONE_FILE, MODEL_FILE
from schemas.run import RunConfig

KEY: Final = "0" * 64
SYSTEM: Final = "model"
MIRRORED, PLAIN = "image and mirror", "image"
"""The two ways in which pairs are scored."""


def evaluate_weights(
    weights: Path, backbone: str, config: RunConfig, folder: Path
) -> Generator[Progress, None, list[SetResult]]:
    """Score the weights of a backbone on `config.evaluation.sets`: pairs with and without the mirror image.

    `folder` holds the features of templates while they are needed. No code in the file of weights is run.
    """
    config = config.model_copy(update={"store": str(folder)})
    inputs: Inputs = {"training": _import(weights, backbone, folder)}
    results: list[SetResult] = []
    runner = InThisProcess(config.execution.workers)
    for given in config.evaluation.sets:
        if isinstance(given, HeldOutSet):
            raise ValueError(
                "held-out identities are those of a run: give files of pairs, or folders of IJB or TinyFace"
            )
        mirrored = evaluate_set(_model_only(config, flip=True), inputs, given, folder, runner, from_scratch=False)
        result = yield from mirrored
        if "folds" in result.flags:  # pairs; the flag of other sets is their own
            plain = yield from evaluate_set(
                _model_only(config, flip=False), inputs, given, folder, runner, from_scratch=False
            )
            both = ((MIRRORED, result), (PLAIN, plain))
            result.systems = {name: each.systems[SYSTEM] for name, each in both if SYSTEM in each.systems}
        results.append(result)
    return results


def write_weight_scores(path: Path, weights: str, results: list[SetResult]) -> None:
    """Write the scores in the form of an evaluation's `scores.json`."""
    sets, groups = {result.title: result.describe() for result in results}, compare_groups(results)
    write_json(path, {"model": weights, "sets": sets} | ({"groups": groups} if groups else {}))


def _model_only(config: RunConfig, *, flip: bool) -> RunConfig:
    evaluation = config.evaluation.model_copy(update={"systems": (SYSTEM,), "flip": flip})
    return config.model_copy(update={"evaluation": evaluation})


def _import(weights: Path, backbone: str, folder: Path) -> Artifact:
    """The weights as the model of a store of their own, which the evaluation reads like any other."""
    tensors = {name: each.contiguous() for name, each in open_foreign_backbone(backbone, weights).state_dict().items()}
    dim = len([each for each in tensors.values() if each.ndim][-1])
    store = ArtifactStore(str(folder))
    with store.draft(store.ref("training", KEY), {}, {}) as draft:
        save_file(tensors, draft.folder / BACKBONE_FILE)
        write_json(draft.folder / MODEL_FILE, {"backbone": backbone, "embedding_dim": dim, "head": "none"})
        return store.open(store.publish(draft))
