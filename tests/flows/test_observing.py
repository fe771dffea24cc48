"""What is known of a run afterwards: its stages as a table, and its log in lines that programs can read."""

import json
import sys
from pathlib import Path

import pytest

from flows.pipeline import gif
from gif_core.artifacts import ArtifactStore
from schemas.run import RunConfig
from schemas.stages import STAGES


@pytest.mark.usefixtures("prefect")
def test_stages_are_a_table_and_log_lines_name_run_stage_and_artifact(
    tiny: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIF_LOG", str(tmp_path / "log.jsonl"))
    first, second = gif(tiny), gif(tiny)
    store = ArtifactStore(tiny.store)
    rows = store.sql("SELECT * FROM stages ORDER BY started_at, run").to_pylist()
    made, reused = ([row for row in rows if row["run"] == record.run_id] for record in (first, second))
    assert [{row["action"] for row in part} for part in (made, reused)] == [{"computed"}, {"reused"}]
    assert {row["stage"] for row in made} == {row["stage"] for row in reused} == set(STAGES)
    sizes = store.sql("SELECT s.stage, s.bytes = a.bytes AS same FROM stages s JOIN artifacts a USING (key)")
    assert [row["stage"] for row in sizes.to_pylist() if row["same"]] != []
    assert not [row for row in sizes.to_pylist() if row["same"] is False]
    fast = {row["stage"] for row in made if row["images_per_second"]}
    assert fast == {"ingestion", "embedding", "training"}
    if sys.platform == "linux":
        assert all(row["peak_memory"] > 10 * 2**20 for row in made)

    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    published = [line for line in lines if "is published" in line["message"]]
    assert {line["stage"] for line in published} == set(STAGES)
    assert {line["run"] for line in published} == {first.run_id}
    assert all(line["message"].startswith(line["artifact"]) for line in published)
