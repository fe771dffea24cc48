"""Run records, `runs/<run id>.json`: the configuration of each run and the artifacts it computed or reused."""

import logging
import os
import secrets
from datetime import UTC, datetime
from typing import Any

from gif_core.artifacts.attempts import process_state, this_host
from gif_core.artifacts.errors import ArtifactMissingError, RecordDamagedError
from gif_core.artifacts.records import seal, unseal
from gif_core.artifacts.store import ArtifactStore
from schemas.artifacts import RunRecord
from schemas.run import RunConfig
from schemas.stages import STAGES

logger = logging.getLogger(__name__)


def begin_run(store: ArtifactStore, config: RunConfig) -> RunRecord:
    """Create the record of a new run."""
    now = datetime.now(UTC)
    record = RunRecord(
        run_id=f"{now:%Y%m%d-%H%M%S-%f}-{secrets.token_hex(2)}",
        config=config.model_dump(mode="json"),
        state="running",
        started_at=now,
        updated_at=now,
        host=this_host(),
        process=os.getpid(),
    )
    return save_run(store, record)


def save_run(store: ArtifactStore, record: RunRecord, **changes: Any) -> RunRecord:
    """Update fields of a run's record."""
    record = record.model_copy(update=changes | {"updated_at": datetime.now(UTC)})
    store.storage.replace(f"runs/{record.run_id}.json", seal(record))
    return record


def list_runs(store: ArtifactStore, *, strict: bool = False) -> list[RunRecord]:
    """All runs, newest first; unreadable records are skipped with a warning, or an error if `strict`."""
    paths = [file.path for file in store.storage.find("runs") if file.path.endswith(".json")]
    records = (_read(store, path, strict) for path in sorted(paths, reverse=True))
    return [record for record in records if record is not None]


def going_on(store: ArtifactStore, since: float) -> list[str]:
    """Ids of active runs whose records have changed since then by the store's clock."""
    modified = {file.path: file.modified for file in store.storage.find("runs")}
    running = [run.run_id for run in list_runs(store) if run.state == "running"]
    return [run_id for run_id in running if modified.get(f"runs/{run_id}.json", since) >= since]


def find_run(store: ArtifactStore, text: str | None = None) -> RunRecord:
    """The run whose id starts with `text`; without it the newest run with codes, else the newest with any artifact."""
    runs = [run for run in list_runs(store) if (run.run_id.startswith(text) if text else run.stages)]
    if not runs:
        wanted = f"no run {text!r}" if text else "no run yet"
        raise ArtifactMissingError(f"there is {wanted} in {store.storage.url}; 'gif runs ls' lists them")
    if text and len(runs) > 1:
        raise ArtifactMissingError(f"{text!r} names {len(runs)} runs: {', '.join(run.run_id for run in runs)}")
    with_codes = [run for run in runs if STAGES.index(list(run.stages)[-1]) >= STAGES.index("tokenization")]
    found = (with_codes or runs)[0]
    if found is not runs[0]:
        logger.warning("run %s is taken, the newest with codes: the newer %s has none", found.run_id, runs[0].run_id)
    return found


def _read(store: ArtifactStore, path: str, strict: bool) -> RunRecord | None:
    try:
        record = unseal(RunRecord, store.storage.read(path), path)
        if path != f"runs/{record.run_id}.json":
            raise RecordDamagedError(f"{path} is the record of run {record.run_id}")
    except FileNotFoundError:
        return None
    except RecordDamagedError as error:
        if strict:
            raise
        logger.warning("%s", error)
        return None
    if record.state == "running" and process_state(record.host, record.process) == "dead":
        return record.model_copy(update={"state": "interrupted"})
    return record
