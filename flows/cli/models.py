"""Which trained model a command means, and what was made with it."""

from collections.abc import Mapping
from typing import Annotated

import typer
from rich.console import Console

from gif_core.artifacts import (
    Artifact,
    ArtifactMissingError,
    ArtifactStore,
    find_champion,
    list_tags,
    resolve,
    run_artifacts,
)
from schemas.errors import GifError
from schemas.stages import StageName

Artifacts = Mapping[StageName, Artifact]
Run = Annotated[
    str | None,
    typer.Option(metavar="RUN", help="The model of a run, by the run's id or its beginning, instead of the champion."),
]


def open_model(address: str, run: str | None, key: str | None) -> Artifacts:
    """The model that is meant, with what it was made from and its evaluation.

    Of several evaluations the newest counts, on the faces it was trained with if there is one: only that knows whom it
    enrolled.
    """
    store = ArtifactStore(address)
    training = choose_model(store, run, key)
    made_from = training.manifest.inputs
    artifacts: dict[StageName, Artifact] = {name: store.open(store.ref(name, at.key)) for name, at in made_from.items()}
    evaluations = [
        manifest for manifest in store.manifests("evaluation") if manifest.inputs["training"] == training.made_from
    ]
    evaluations.sort(key=lambda manifest: manifest.inputs["ingestion"] != made_from["ingestion"])
    newest = {each.stage: store.open(store.ref(each.stage, each.key)) for each in evaluations[:1]}
    return artifacts | {"training": training} | newest


def choose_model(store: ArtifactStore, run: str | None, key: str | None, *, named_by: str = "--key") -> Artifact:
    """A model by its key, of a run, or else the champion; a line on stderr says which.

    Where there is no champion it is that of the newest run. `named_by` is what the command calls the key.
    """
    if run and key:
        raise GifError(f"give --run or {named_by}, not both")
    training, which = (_named(store, key), f"by {named_by} {key}") if key else _in_use(store, run)
    Console(stderr=True).print(f"model: {training.ref}, {which}", markup=False, highlight=False, soft_wrap=True)
    return training


def _in_use(store: ArtifactStore, run: str | None) -> tuple[Artifact, str]:
    """The model of a run or the champion, and why that one."""
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
