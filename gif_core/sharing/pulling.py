"""A folder of `gif export hf` as a model of this store: its digests are checked, and nothing in it is run."""

import hashlib
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from pydantic import ValidationError

from gif_core.artifacts import Artifact, ArtifactDamagedError, ArtifactStore, check_file, move_tag, read_tag, unseal
from gif_core.backbones import build_network, fit_weights, read_weights
from gif_core.recognition import pair_thresholds
from schemas.artifacts import ArtifactRef, MadeFrom
from schemas.errors import GifError
from schemas.files import BACKBONE_FILE, MODEL_FILE, SCORES_FILE
from schemas.retraining import CHAMPION
from schemas.sharing import CONFIG_FILE, LARGEST_RECORD, WEIGHTS_FILE, Origin, SharedModel, SharedScores
from schemas.stages import StageName

RESERVED: Final = (CHAMPION, "latest")
"""Tags that runs and promotions move."""


class PullError(GifError, ValueError):
    """A folder that is not a shared model, or is damaged."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """A model that is in the store now."""

    ref: ArtifactRef
    shared: SharedModel
    tag: str
    has_scores: bool
    origin: Origin | None = None
    """Where the model was pulled from first, if that was the hub."""


def tag_for(source: str) -> str:
    """The tag that a folder or hub id gives by default: the last part of its name in small letters."""
    name = re.sub(r"[^a-z0-9_.-]", "-", Path(source).resolve().name.lower())
    return name if name[:1].isalpha() else f"model-{name}".rstrip("-")


def pull_folder(
    store: ArtifactStore, folder: Path, tag: str, *, replace: bool = False, origin: Origin | None = None
) -> Pulled:
    """Check a folder and publish its model, and its scores if it has any, both with a tag.

    The key is that of the record, so pulling the same folder again changes nothing. A tag of another model is moved
    only if `replace` is set. The manifest keeps `origin`.
    """
    if tag in RESERVED:
        raise PullError(f"--tag {tag}: this tag is moved by runs and promotions; choose another, then 'gif promote'")
    content = _read_config(folder)
    shared = unseal(SharedModel, content, str(folder / CONFIG_FILE))
    names = [file.name for file in shared.files]
    if WEIGHTS_FILE not in names or not set(names) <= {WEIGHTS_FILE, SCORES_FILE} or len(names) != len(set(names)):
        raise PullError(
            f"{folder / CONFIG_FILE} lists {', '.join(names)}: it must be {WEIGHTS_FILE}, and {SCORES_FILE}"
        )
    _check_files(folder, shared)
    _check_network(folder / WEIGHTS_FILE, shared)
    key = hashlib.sha256(content).hexdigest()
    taken = read_tag(store, "training", tag)
    if taken and taken.ref.key != key and not replace:
        raise PullError(f"the tag {tag} is that of {taken.ref}: choose another with --tag, or move it with --replace")
    model = _publish_model(store, folder, shared, key, origin)
    move_tag(store, tag, model)
    if SCORES_FILE in names:
        move_tag(store, tag, _publish_scores(store, folder, model))
    return Pulled(model, shared, tag, SCORES_FILE in names, origin_of(store.open(model)))


def origin_of(model: Artifact) -> Origin | None:
    """Where a model was pulled from; None if it was made here or came as a folder."""
    known = model.manifest.settings.get("origin")
    return Origin.model_validate(known) if known else None


def _read_config(folder: Path) -> bytes:
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise PullError(f"{folder} is not a shared model: it has no {CONFIG_FILE}; 'gif export hf' writes such folders")
    return _read_bounded(path)


def _read_bounded(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(LARGEST_RECORD + 1)
    if len(content) > LARGEST_RECORD:
        raise PullError(f"{path} is larger than {LARGEST_RECORD:,} bytes, so it is not the record of a model")
    return content


def _check_files(folder: Path, shared: SharedModel) -> None:
    """Compare sizes and digests; the scores must be readable."""
    for file in shared.files:
        try:
            check_file(folder / file.name, file)
        except ArtifactDamagedError as error:
            raise PullError(f"{error}: the folder is incomplete or was changed; get it again") from error
        if file.name == SCORES_FILE:
            _check_scores(folder / file.name)


def _check_scores(path: Path) -> None:
    """Read no more than a record's size, and believe nothing about it."""
    try:
        SharedScores.model_validate_json(_read_bounded(path), strict=True)
        pair_thresholds(path)
    except (KeyError, ValueError) as error:
        if isinstance(error, GifError):
            raise
        raise PullError(f"{path} does not hold scores as evaluation writes them ({_first_line(error)})") from error


def _first_line(error: Exception) -> str:
    return " ".join(str(error).splitlines()[1:3]) if isinstance(error, ValidationError) else repr(error)


def _check_network(weights: Path, shared: SharedModel) -> None:
    """Every tensor must fit the network that the record names; it may name one that is larger than memory."""
    with torch.device("meta"):
        model = build_network(shared.backbone, shared.embedding_dim, head=shared.head, groups=shared.groups)
    fit_weights(model, read_weights(weights), weights)


def _publish_model(
    store: ArtifactStore, folder: Path, shared: SharedModel, key: str, origin: Origin | None
) -> ArtifactRef:
    known = {"backbone": shared.backbone, "embedding_dim": shared.embedding_dim, "head": shared.head}
    description = {**known, "settings": {"groups": shared.groups}}
    about = shared.model_dump(mode="json")
    settings = {"pulled": about, "data": about["data"], "sources": [{"kind": kind} for kind in shared.data.sources]}
    if origin is not None:
        settings["origin"] = origin.model_dump(mode="json")

    def fill(into: Path) -> None:
        shutil.copyfile(folder / WEIGHTS_FILE, into / BACKBONE_FILE)
        (into / MODEL_FILE).write_text(json.dumps(description, indent=1, sort_keys=True))

    return _publish(store, "training", key, settings, {}, fill)


def _publish_scores(store: ArtifactStore, folder: Path, model: ArtifactRef) -> ArtifactRef:
    made_from = store.open(model).made_from
    key = hashlib.sha256(f"scores of {made_from.key} {made_from.digest}".encode()).hexdigest()
    inputs: dict[StageName, MadeFrom] = {"training": made_from}
    return _publish(
        store, "evaluation", key, {}, inputs, lambda into: shutil.copyfile(folder / SCORES_FILE, into / SCORES_FILE)
    )


def _publish(
    store: ArtifactStore,
    stage: StageName,
    key: str,
    settings: dict[str, Any],
    inputs: dict[StageName, MadeFrom],
    fill: Any,
) -> ArtifactRef:
    if found := store.find(stage, key, inputs):
        return found
    with store.draft(store.ref(stage, key), settings, inputs) as draft:
        fill(draft.folder)
        return store.publish(draft)
