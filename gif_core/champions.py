"""Who is champion: an append-only history of decisions, `decisions/<tag>/<number>.json`, and the tag that follows it.

A decision is made by creating the next number, which only one process can: that is the commit. The tag is moved after
it, and again by whoever looks next if the process died in between.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError

from gif_core.artifacts import Artifact, ArtifactMissingError, ArtifactStore
from gif_core.artifacts.tags import move_tag, read_tag
from schemas.errors import GifError
from schemas.retraining import CHAMPION, Decision
from schemas.stages import StageName

logger = logging.getLogger(__name__)
HISTORY: Final = "decisions"


class ChampionError(GifError):
    """A promotion or a way back that cannot be."""


def read_history(store: ArtifactStore, tag: str = CHAMPION) -> list[Decision]:
    """All decisions about a tag, the first first."""
    paths = sorted(file.path for file in store.storage.find(f"{HISTORY}/{tag}") if _is_entry(file.path))
    return [_read(store, path) for path in paths]


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
            models.add(_earlier(history, tag))
        newest = {entry.champion: entry.evaluation for entry in history if entry.champion in models}
        scores = {*newest.values(), *history[-1].evaluations.values()}
        found |= {("training", key) for key in models} | {("evaluation", key) for key in scores}
    return {(stage, key) for stage, key in found if key is not None}


def find_champion(store: ArtifactStore, tag: str = CHAMPION) -> Artifact | None:
    """The model in use: the one of the last decision, or else the one that somebody has tagged."""
    history, tagged = read_history(store, tag), read_tag(store, "training", tag)
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

    It is looked at again afterwards: somebody else may have decided and moved the tag meanwhile.
    """
    moved = False
    while history := read_history(store, tag):
        pointer = read_tag(store, "training", tag)
        if pointer is not None and pointer.ref.key == history[-1].champion:
            break
        move_tag(store, tag, store.ref("training", history[-1].champion))
        moved = True
    return moved


def enter(store: ArtifactStore, tag: str, decide: Callable[[list[Decision]], Decision | dict[str, Any]]) -> Decision:
    """Make the next decision: `decide` gets the history, and gives the fields of a new entry or one that holds already.

    When another process is first, `decide` is asked again with what that one has entered. The tag follows.
    """
    entry: Decision | None = None
    while entry is None:
        history = read_history(store, tag)
        decided = decide(history)
        entry = decided if isinstance(decided, Decision) else _create(store, tag, history, decided)
    settle(store, tag)
    return entry


def _create(store: ArtifactStore, tag: str, history: list[Decision], fields: dict[str, Any]) -> Decision | None:
    """The next entry, or None when another process was first; an answer that was lost may have been carried out."""
    number = history[-1].number + 1 if history else 1
    entry = Decision(number=number, tag=tag, made_at=datetime.now(UTC), **fields)
    try:
        store.storage.create(_path(tag, number), entry.model_dump_json(indent=1).encode())
    except FileExistsError:
        return entry if _read(store, _path(tag, number)) == entry else None
    return entry


def enter_first(store: ArtifactStore, tag: str, key: str, **about: Any) -> Decision:
    """Make a model the first champion; when another process was first with the same one, its entry holds."""

    def decide(history: list[Decision]) -> Decision | dict[str, Any]:
        if history and history[-1].champion == key:
            return history[-1]
        _refuse_another(_current(store, history, tag), None, tag)
        return {"kind": "first", "champion": key, "challenger": key, **about}

    return enter(store, tag, decide)


def enter_verdict(
    store: ArtifactStore, tag: str, *, champion: str, challenger: str, promoted: bool, since: int = 0, **about: Any
) -> Decision:
    """Enter what came of a comparison that began after decision `since`.

    If another process has entered it meanwhile, that entry holds, also when somebody has gone back since then.
    """

    def decide(history: list[Decision]) -> Decision | dict[str, Any]:
        for entry in history[since:]:
            if (entry.before, entry.challenger, entry.evaluations) == (champion, challenger, about.get("evaluations")):
                return entry
        _refuse_another(_current(store, history, tag), champion, tag)
        kind, winner = ("promoted", challenger) if promoted else ("kept", champion)
        return {"kind": kind, "champion": winner, "before": champion, "challenger": challenger, **about}

    return enter(store, tag, decide)


def promote(store: ArtifactStore, model: Artifact, *, because: str, tag: str = CHAMPION, **about: Any) -> Decision:
    """Make a model the champion by hand."""

    def decide(history: list[Decision]) -> Decision | dict[str, Any]:
        before = _current(store, history, tag)
        if before == model.ref.key:
            raise ChampionError(f"{model.ref} is the {tag} already")
        _refuse_half(store, model.ref.key)
        return {"kind": "by_hand", "champion": model.ref.key, "before": before, "because": because, **about}

    return enter(store, tag, decide)


def roll_back(store: ArtifactStore, *, because: str, tag: str = CHAMPION, to: str | None = None) -> Decision:
    """Go back to the champion before the one in use, or to `to`, which must have been champion."""

    def decide(history: list[Decision]) -> dict[str, Any]:
        key = _earlier(history, tag) if to is None else to
        entry = next((each for each in reversed(history) if each.champion == key), None)
        if entry is None and not any(each.before == key for each in history):
            raise ChampionError(f"training/{key[:12]} was never {tag}: 'gif promote' makes a model one")
        if key == history[-1].champion:
            raise ChampionError(f"training/{key[:12]} is the {tag} already")
        _refuse_half(store, key)
        return {
            "kind": "rolled_back",
            "champion": key,
            "before": history[-1].champion,
            "because": because,
            "evaluation": entry.evaluation if entry else None,
            "run_id": entry.run_id if entry else None,
        }

    return enter(store, tag, decide)


def _refuse_half(store: ArtifactStore, key: str) -> None:
    """A model whose files are not all there would let every retraining fail."""
    if store.find("training", key) is None:
        raise ArtifactMissingError(f"training/{key[:12]} is not whole in {store.storage.url} any more")


def _refuse_another(current: str | None, expected: str | None, tag: str) -> None:
    """Somebody may have chosen another champion while a challenger was trained: then the comparison is of no use."""
    if current != expected:
        now = f"training/{current[:12]}" if current else "nobody"
        raise ChampionError(f"{now} has become {tag} meanwhile: retrain again, and the challenger meets that one")


def _earlier(history: list[Decision], tag: str) -> str:
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


def _current(store: ArtifactStore, history: list[Decision], tag: str) -> str | None:
    if history:
        return history[-1].champion
    tagged = read_tag(store, "training", tag)
    return tagged.ref.key if tagged else None


def _read(store: ArtifactStore, path: str) -> Decision:
    try:
        return Decision.model_validate_json(store.storage.read(path))
    except ValidationError as error:
        raise ChampionError(f"{path} of {store.storage.url} is not a decision: {error}") from None


def _is_entry(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith(".json") and name.removesuffix(".json").isdigit()


def _path(tag: str, number: int) -> str:
    return f"{HISTORY}/{tag}/{number:06d}.json"
