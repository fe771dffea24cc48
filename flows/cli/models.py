"""Which trained model a command means, and what was made with it."""

from collections.abc import Mapping

from rich.console import Console

from gif_core.artifacts import Artifact, ArtifactMissingError, ArtifactStore
from gif_core.artifacts.tags import list_tags, resolve
from gif_core.champions import find_champion
from gif_core.queries import run_artifacts
from schemas.errors import GifError
from schemas.stages import StageName

Artifacts = Mapping[StageName, Artifact]


def open_model(address: str, run: str | None, key: str | None) -> Artifacts:
    """A model with what it was made from and its evaluation: by its key, of a run, or else the champion.

    Where there is no champion it is that of the newest run; a line on stderr says which. Of several evaluations the
    newest counts, on the faces it was trained with if there is one: only that knows whom it enrolled.
    """
    store = ArtifactStore(address)
    if run and key:
        raise GifError("give --run or --key, not both")
    training, which = _choose(store, run, key)
    Console(stderr=True).print(f"model: {training.ref}, {which}", markup=False, highlight=False, soft_wrap=True)
    made_from = training.manifest.inputs
    artifacts: dict[StageName, Artifact] = {name: store.open(store.ref(name, at.key)) for name, at in made_from.items()}
    evaluations = [
        manifest for manifest in store.manifests("evaluation") if manifest.inputs["training"] == training.made_from
    ]
    evaluations.sort(key=lambda manifest: manifest.inputs["ingestion"] != made_from["ingestion"])
    newest = {each.stage: store.open(store.ref(each.stage, each.key)) for each in evaluations[:1]}
    return artifacts | {"training": training} | newest


def _choose(store: ArtifactStore, run: str | None, key: str | None) -> tuple[Artifact, str]:
    """The model that is meant, and why that one."""
    if key:
        return _named(store, key), f"by --key {key}"
    if run:
        return _of_run(store, run), f"of run {run}"
    champion = find_champion(store)
    return (champion, "the champion") if champion else (_of_run(store), "of the newest run: there is no champion")


def _of_run(store: ArtifactStore, run: str | None = None) -> Artifact:
    training = run_artifacts(store, run).get("training")
    if training is None:
        raise ArtifactMissingError("this run has no trained model: 'gif runs ls' shows what each run has")
    return training


def _named(store: ArtifactStore, key: str) -> Artifact:
    tags = {tag.name for tag in list_tags(store) if tag.ref.stage == "training"}
    name = f"training@{key}" if key in tags else f"training/{key}"
    ref = resolve(store, key if set(key) & set("/@") else name)
    if ref.stage != "training":
        raise GifError(f"{ref} is not a trained model: name an artifact of the stage training")
    return store.open(ref)
