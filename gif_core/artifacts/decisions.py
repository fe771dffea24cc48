"""Decisions about champions: an append-only log, `decisions/<tag>/<number>.json`, and the tag that follows it."""

from contextlib import suppress
from typing import Final

from gif_core.artifacts.artifact import Artifact
from gif_core.artifacts.errors import ArtifactMissingError, RecordDamagedError
from gif_core.artifacts.records import unseal
from gif_core.artifacts.store import ArtifactStore
from gif_core.artifacts.tags import move_tag, read_tag
from schemas.errors import GifError
from schemas.retraining import CHAMPION, Decision
from schemas.stages import StageName

HISTORY: Final = "decisions"


class ChampionError(GifError):
    """A promotion or a way back that cannot be."""


def read_history(store: ArtifactStore, tag: str = CHAMPION) -> list[Decision]:
    """All decisions about a tag, oldest first."""
    paths = sorted(file.path for file in store.storage.find(f"{HISTORY}/{tag}") if _is_entry(file.path))
    return [read_decision(store, path) for path in paths]


def read_histories(store: ArtifactStore) -> list[Decision]:
    """The decisions about all tags."""
    tags = sorted({file.path.split("/")[1] for file in store.storage.find(HISTORY) if _is_entry(file.path)})
    return [decision for tag in tags for decision in read_history(store, tag)]


def models_in_force(store: ArtifactStore) -> set[tuple[StageName, str]]:
    """Of every tag the champion, the one before it, their scores, and those that were compared last."""
    found: set[tuple[StageName, str | None]] = set()
    for tag in {decision.tag for decision in read_histories(store)}:
        history = read_history(store, tag)
        models = {history[-1].champion}
        with suppress(ChampionError):
            models.add(earlier_champion(history, tag))
        newest = {entry.champion: entry.evaluation for entry in history if entry.champion in models}
        scores = {*newest.values(), *history[-1].evaluations.values()}
        found |= {("training", key) for key in models} | {("evaluation", key) for key in scores}
    return {(stage, key) for stage, key in found if key is not None}


def find_champion(store: ArtifactStore, tag: str = CHAMPION) -> Artifact | None:
    """The model in use: the one of the last decision, or else the one that is tagged."""
    history = read_history(store, tag)
    tagged = None if history else read_tag(store, "training", tag)
    key = history[-1].champion if history else tagged.ref.key if tagged else None
    if key is None:
        return None
    ref = store.ref("training", key)
    if store.find("training", key) is None:
        raise ArtifactMissingError(
            f"the {tag} {ref} is not whole in {store.storage.url}: 'gif promote' another model, or 'gif rollback'"
        )
    return store.open(ref)


def settle(store: ArtifactStore, tag: str = CHAMPION) -> bool:
    """Point the tag at the champion of the last decision; True when it was not there yet.

    The tag is read again afterwards, because another process may have decided and moved it meanwhile.
    """
    moved = False
    while history := read_history(store, tag):
        try:
            pointer = read_tag(store, "training", tag)
        except RecordDamagedError:
            pointer = None
        if pointer is not None and pointer.ref.key == history[-1].champion:
            break
        move_tag(store, tag, store.ref("training", history[-1].champion))
        moved = True
    return moved


def earlier_champion(history: list[Decision], tag: str) -> str:
    """The champion before the one in use; going back twice goes back two steps, not to and fro."""
    line: list[str] = []
    for entry in history:
        if entry.kind == "rolled_back":
            line = line[: line.index(entry.champion) + 1] if entry.champion in line else [entry.champion]
            continue
        if entry.before is not None and not line:
            line.append(entry.before)
        if not line or line[-1] != entry.champion:
            line.append(entry.champion)
    if len(line) < 2:
        raise ChampionError(f"there is no {tag} before the one in use; 'gif champion' shows the history")
    return line[-2]


def read_decision(store: ArtifactStore, path: str) -> Decision:
    """One entry of the log; ChampionError if the file is not a decision."""
    try:
        return unseal(Decision, store.storage.read(path), path)
    except RecordDamagedError as error:
        raise ChampionError(f"{error}; restore it from a copy of {store.storage.url}") from None


def _is_entry(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith(".json") and name.removesuffix(".json").isdigit()


def decision_path(tag: str, number: int) -> str:
    """Where entry `number` of a tag is stored."""
    return f"{HISTORY}/{tag}/{number:06d}.json"
