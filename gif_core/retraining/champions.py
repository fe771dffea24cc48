"""Records champion decisions in the append-only log `decisions/<tag>/<number>.json`, and moves the tag.

Creating the next number is the commit: only one process can do it. The tag is moved afterwards; if the process dies in
between, the next retraining moves it.
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
    seal,
    settle,
)
from schemas.retraining import CHAMPION, Decision

logger = logging.getLogger(__name__)


def record(store: ArtifactStore, tag: str, decide: Callable[[list[Decision]], Decision | dict[str, Any]]) -> Decision:
    """Record the next decision; `decide` maps the history to the fields of a new entry, or to an existing entry.

    When another process records one first, `decide` is called again with the longer history. Then the tag is moved.
    """
    entry: Decision | None = None
    while entry is None:
        history = read_history(store, tag)
        decided = decide(history)
        entry = decided if isinstance(decided, Decision) else _create(store, tag, history, decided)
    settle(store, tag)
    return entry


def _create(store: ArtifactStore, tag: str, history: list[Decision], fields: dict[str, Any]) -> Decision | None:
    """Create the next entry; None if another process was first.

    An existing file with the same content is ours: the storage wrote it, but its answer was lost.
    """
    number = history[-1].number + 1 if history else 1
    entry = Decision(number=number, tag=tag, made_at=datetime.now(UTC), **fields)
    try:
        store.storage.create(decision_path(tag, number), seal(entry))
    except FileExistsError:
        return entry if read_decision(store, decision_path(tag, number)) == entry else None
    return entry


def record_first(store: ArtifactStore, tag: str, key: str, **about: Any) -> Decision:
    """Make a model the first champion; an entry of another process with the same model is reused."""

    def decide(history: list[Decision]) -> Decision | dict[str, Any]:
        if history and history[-1].champion == key:
            return history[-1]
        _refuse_another(_current(store, history, tag), None, tag)
        return {"kind": "first", "champion": key, "challenger": key, **about}

    return record(store, tag, decide)


def record_verdict(
    store: ArtifactStore, tag: str, *, champion: str, challenger: str, promoted: bool, since: int = 0, **about: Any
) -> Decision:
    """Record the result of a comparison that started after decision `since`.

    If another process has recorded it in the meantime, that entry is reused, even if it was rolled back since.
    """

    def decide(history: list[Decision]) -> Decision | dict[str, Any]:
        for entry in history[since:]:
            if (entry.before, entry.challenger, entry.evaluations) == (champion, challenger, about.get("evaluations")):
                return entry
        _refuse_another(_current(store, history, tag), champion, tag)
        kind, winner = ("promoted", challenger) if promoted else ("kept", champion)
        return {"kind": kind, "champion": winner, "before": champion, "challenger": challenger, **about}

    return record(store, tag, decide)


def promote(store: ArtifactStore, model: Artifact, *, because: str, tag: str = CHAMPION, **about: Any) -> Decision:
    """Make a model the champion by hand."""

    def decide(history: list[Decision]) -> Decision | dict[str, Any]:
        before = _current(store, history, tag)
        if before == model.ref.key:
            raise ChampionError(f"{model.ref} is the {tag} already")
        _refuse_incomplete(store, model.ref.key)
        return {"kind": "by_hand", "champion": model.ref.key, "before": before, "because": because, **about}

    return record(store, tag, decide)


def roll_back(store: ArtifactStore, *, because: str, tag: str = CHAMPION, to: str | None = None) -> Decision:
    """Return to the previous champion, or to `to`, which must have been champion."""

    def decide(history: list[Decision]) -> dict[str, Any]:
        key = earlier_champion(history, tag) if to is None else to
        entry = next((each for each in reversed(history) if each.champion == key), None)
        if entry is None and not any(each.before == key for each in history):
            raise ChampionError(f"training/{key[:12]} was never {tag}: 'gif promote' makes a model one")
        if key == history[-1].champion:
            raise ChampionError(f"training/{key[:12]} is the {tag} already")
        _refuse_incomplete(store, key)
        return {
            "kind": "rolled_back",
            "champion": key,
            "before": history[-1].champion,
            "because": because,
            "evaluation": entry.evaluation if entry else None,
            "run_id": entry.run_id if entry else None,
        }

    return record(store, tag, decide)


def _refuse_incomplete(store: ArtifactStore, key: str) -> None:
    """Raise if files of a model are missing: as champion it would make every retraining fail."""
    if store.find("training", key) is None:
        raise ArtifactMissingError(f"training/{key[:12]} is not whole in {store.storage.url} any more")


def _refuse_another(current: str | None, expected: str | None, tag: str) -> None:
    """Raise if the champion changed while the challenger was trained: the comparison is then outdated."""
    if current != expected:
        now = f"training/{current[:12]}" if current else "no model"
        raise ChampionError(f"{now} has become {tag} meanwhile: retrain again to compare with the current {tag}")


def _current(store: ArtifactStore, history: list[Decision], tag: str) -> str | None:
    if history:
        return history[-1].champion
    tagged = read_tag(store, "training", tag)
    return tagged.ref.key if tagged else None
