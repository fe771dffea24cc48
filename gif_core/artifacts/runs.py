"""Run records, `runs/<run id>.json`: what each run was told and which artifacts it made or reused."""

import os
import secrets
from datetime import UTC, datetime
from typing import Any

from gif_core.artifacts.attempts import is_process_dead, this_host
from gif_core.artifacts.errors import ArtifactMissingError
from gif_core.artifacts.store import ArtifactStore
from schemas.artifacts import RunRecord
from schemas.run import RunConfig


def begin_run(store: ArtifactStore, config: RunConfig) -> RunRecord:
    """Write down that a run has begun."""
    now = datetime.now(UTC)
    record = RunRecord(
        run_id=f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}",
        config=config.model_dump(mode="json"),
        state="running",
        started_at=now,
        updated_at=now,
        host=this_host(),
        process=os.getpid(),
    )
    return save_run(store, record)


def save_run(store: ArtifactStore, record: RunRecord, **changes: Any) -> RunRecord:
    """Replace a run's record by one with `changes`."""
    record = record.model_copy(update=changes | {"updated_at": datetime.now(UTC)})
    store.storage.replace(f"runs/{record.run_id}.json", record.model_dump_json(indent=1).encode())
    return record


def list_runs(store: ArtifactStore) -> list[RunRecord]:
    """All runs, the newest first."""
    paths = [file.path for file in store.storage.find("runs") if file.path.endswith(".json")]
    return [_read(store, path) for path in sorted(paths, reverse=True)]


def find_run(store: ArtifactStore, text: str | None = None) -> RunRecord:
    """The run whose id begins with `text`, or the newest one that has made something."""
    runs = [run for run in list_runs(store) if (run.run_id.startswith(text) if text else run.stages)]
    if not runs:
        wanted = f"no run {text!r}" if text else "no run yet"
        raise ArtifactMissingError(f"there is {wanted} in {store.storage.url}; 'gif runs ls' lists them")
    return runs[0]


def _read(store: ArtifactStore, path: str) -> RunRecord:
    record = RunRecord.model_validate_json(store.storage.read(path))
    if record.state == "running" and is_process_dead(record.host, record.process):
        return record.model_copy(update={"state": "interrupted"})
    return record
