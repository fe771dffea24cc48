"""Lineage: what an artifact was made from, what a run produced, and which model a name means."""

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from gif_core.artifacts.artifact import Artifact
from gif_core.artifacts.decisions import find_champion
from gif_core.artifacts.errors import ArtifactDamagedError, ArtifactMissingError
from gif_core.artifacts.runs import find_run, list_runs
from gif_core.artifacts.store import ArtifactStore
from gif_core.artifacts.tags import TAG_PATTERN, resolve
from schemas.artifacts import MadeFrom, Manifest
from schemas.errors import GifError
from schemas.retraining import CHAMPION
from schemas.stages import STAGES, VERSIONS, StageName

logger = logging.getLogger(__name__)
Place = tuple[StageName, str]
"""A stage and a key."""
FORMS: Final = "a tag such as champion, training/KEY, the first digits of a key, or a run id"
"""How a model can be named."""
WITH_MODEL: Final[frozenset[StageName]] = frozenset({"training", "evaluation", "reporting"})
"""Stages of a run that need a model."""


class NotAModelError(GifError, ValueError):
    """The name means an artifact of a stage other than training, or several things."""


class OldArtifactError(GifError):
    """Another version of GIF has published the artifact, and its files have changed since."""


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A trained model, and how it was found."""

    artifact: Artifact
    reason: str
    """Why this one, for the line that the command line prints."""
    run_id: str | None = None
    """The run that it was named by, if it was named by a run."""


def source_of(artifact: Artifact, stage: StageName) -> MadeFrom:
    """What an artifact was made from; ArtifactMissingError for a model of `gif pull`, which comes without that."""
    if stage not in artifact.manifest.inputs:
        raise ArtifactMissingError(
            f"{artifact.ref} was made elsewhere and came without its {stage}: it embeds and verifies faces, "
            "'gif enroll' adds people to identify, and a training can start from it (training.start_from)"
        )
    return artifact.manifest.inputs[stage]


def open_input(store: ArtifactStore, artifact: Artifact, stage: StageName) -> Artifact:
    """The artifact of `stage` that this one was made from; ArtifactMissingError if it was removed."""
    return store.open(store.ref(stage, source_of(artifact, stage).key))


def with_ancestors(store: ArtifactStore, *artifacts: Artifact) -> dict[StageName, Artifact]:
    """These artifacts and everything they were made from, in the order of the stages.

    What was removed or cannot be read is left out. One artifact is given for each stage: the nearest.
    """
    found = {artifact.ref.stage: artifact for artifact in artifacts}
    waiting = list(artifacts)
    while waiting:
        artifact = waiting.pop(0)
        for stage in artifact.manifest.inputs:
            if stage not in found and (source := _open_if_there(store, stage, artifact.manifest.inputs[stage].key)):
                found[stage] = source
                waiting.append(source)
    return {stage: found[stage] for stage in STAGES if stage in found}


def run_artifacts(store: ArtifactStore, run: str | None = None) -> dict[StageName, Artifact]:
    """The artifacts that a run made or reused, and those they were made from; of the newest run by default."""
    stages = find_run(store, run).stages
    done = (_open_if_there(store, stage, stages[stage].key) for stage in stages)
    return with_ancestors(store, *(artifact for artifact in done if artifact))


def find_evaluation(store: ArtifactStore, model: Artifact, *, prefer_own_faces: bool = False) -> Artifact | None:
    """The newest evaluation of a model, or None.

    With `prefer_own_faces` an evaluation on the faces that the model was trained with comes before all others: only
    that one knows which identities are enrolled.
    """
    found = [each for each in store.manifests("evaluation") if each.inputs.get("training") == model.made_from]
    if prefer_own_faces:
        own = model.manifest.inputs.get("ingestion")
        found.sort(key=lambda manifest: manifest.inputs.get("ingestion") != own)
    return store.open(store.ref("evaluation", found[0].key)) if found else None


def find_model(store: ArtifactStore, name: str | None = None) -> FoundModel:
    """The model that `name` means: a tag, `training/KEY`, the first digits of its key, or the id of a run.

    Run ids may be shortened too. Without a name it is the champion, and where there is none the newest run's model.
    """
    found = _find_model(store, name)
    check_version(found.artifact)
    return found


def check_version(artifact: Artifact) -> None:
    """OldArtifactError if another version of the stage's code has published the artifact: its files differ."""
    ref, version = artifact.ref, artifact.manifest.version
    if version != VERSIONS[ref.stage]:
        raise OldArtifactError(
            f"{ref} was published by another version of GIF ({ref.stage} {version}, this is {VERSIONS[ref.stage]}) and "
            "cannot be read: run its configuration again with 'gif run', or use the version that published it"
        )


def _find_model(store: ArtifactStore, name: str | None) -> FoundModel:
    if name is None:
        champion = find_champion(store)
        return FoundModel(champion, "the champion") if champion else _newest_model(store)
    tag = name.removeprefix("training@")
    if re.fullmatch(TAG_PATTERN, tag) and (tagged := find_champion(store, tag)):
        return FoundModel(tagged, "the champion" if tag == CHAMPION else f"tagged {tag}")
    if set(name) & set("/@"):
        return _model_by_key(store, name)
    is_run = any(run.run_id.startswith(name) for run in list_runs(store))
    is_key = any(ref.key.startswith(name) for ref in store.refs("training"))
    if is_run and is_key:
        raise NotAModelError(f"{name!r} begins both a run id and the key of a model: write training/{name} for the key")
    if not is_run and not is_key:
        raise ArtifactMissingError(f"there is no model {name!r} in {store.storage.url}: name {FORMS}")
    return _model_of_run(store, name) if is_run else _model_by_key(store, f"training/{name}")


def find_scores(store: ArtifactStore, name: str) -> Artifact:
    """The evaluation that `name` means: `evaluation/KEY`, a run's, or the newest one of a model."""
    runs = [run for run in list_runs(store) if run.run_id.startswith(name)]
    if len(runs) == 1 and "evaluation" in runs[0].stages:
        return store.open(store.ref("evaluation", runs[0].stages["evaluation"].key))
    if name.startswith(("evaluation/", "evaluation@")):
        return store.open(resolve(store, name))
    model = find_model(store, name).artifact
    evaluation = find_evaluation(store, model)
    if evaluation is None:
        raise ArtifactMissingError(
            f"{model.ref} has no scores in {store.storage.url}: run its configuration with --from evaluation"
        )
    return evaluation


def with_sources(roots: Iterable[Place], manifests: Mapping[Place, Manifest]) -> set[Place]:
    """These artifacts, all that they were made from, and the code vectors and codes that they extend.

    The sources of what was extended are not needed, nor is a model whose weights another one started from.
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


def _newest_model(store: ArtifactStore) -> FoundModel:
    for run in list_runs(store):
        if set(run.stages) & WITH_MODEL and (model := run_artifacts(store, run.run_id).get("training")):
            return FoundModel(model, f"of {run.run_id}, the newest run that has one: there is no champion", run.run_id)
    raise ArtifactMissingError(f"there is no trained model in {store.storage.url}: 'gif run' trains one")


def _model_of_run(store: ArtifactStore, name: str) -> FoundModel:
    run_id = find_run(store, name).run_id
    model = run_artifacts(store, run_id).get("training")
    if model is None:
        raise ArtifactMissingError(f"run {run_id} has no trained model: 'gif runs ls' shows what each run has")
    return FoundModel(model, f"of run {run_id}", run_id)


def _model_by_key(store: ArtifactStore, name: str) -> FoundModel:
    ref = resolve(store, name)
    if ref.stage != "training":
        raise NotAModelError(f"{ref} is not a trained model: name {FORMS}")
    return FoundModel(store.open(ref), f"named {name}")


def _open_if_there(store: ArtifactStore, stage: StageName, key: str) -> Artifact | None:
    try:
        return store.open(store.ref(stage, key))
    except ArtifactMissingError:
        return None
    except ArtifactDamagedError as error:
        logger.warning("%s", error)
        return None
