"""Who is champion: an append-only history of decisions, `decisions/<tag>/<number>.json`, and the tag that follows it.

A decision is made by creating the next number, which only one process can: that is the commit. The tag is moved after
it, and again by whoever looks next if the process died in between.
"""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from gif_core.artifacts import (
    Artifact,
    ArtifactMissingError,
    ArtifactStore,
    ChampionError,
    decision_path,
    earlier_champion,
    read_decision,
    read_history,
    read_tag,
    settle,
)
from schemas.retraining import CHAMPION, Decision

logger = logging.getLogger(__name__)


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
        store.storage.create(decision_path(tag, number), entry.model_dump_json(indent=1).encode())
    except FileExistsError:
        return entry if read_decision(store, decision_path(tag, number)) == entry else None
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
        key = earlier_champion(history, tag) if to is None else to
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


def _current(store: ArtifactStore, history: list[Decision], tag: str) -> str | None:
    if history:
        return history[-1].champion
    tagged = read_tag(store, "training", tag)
    return tagged.ref.key if tagged else None
