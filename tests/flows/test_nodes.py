"""The same run started on two machines: they train together, and both end with the one model."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gif_core.artifacts import ArtifactStore, list_runs
from tests.conftest import free_port

GIF = str(Path(sys.executable).with_name("gif"))


@pytest.mark.slow
def test_two_machines_train_one_model_together(
    tmp_path: Path, prefect_api: str, tiny_settings: dict[str, object]
) -> None:
    settings = tiny_settings | {
        "store": str(tmp_path / "store"),
        "execution": {"device": "cpu", "workers": 1, "nodes": "2", "rendezvous": f"127.0.0.1:{free_port()}"},
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    environment = {**os.environ, "PREFECT_API_URL": prefect_api, "OMP_NUM_THREADS": "1"}
    earlier = [GIF, "run", "--config", str(tmp_path / "run.yaml")]
    for stage in ("ingestion", "embedding", "separation", "tokenization"):
        subprocess.run([*earlier, "--only", stage], env=environment, check=True)
    command = [*earlier, "--only", "training"]
    machines = [subprocess.Popen(command, env=environment) for _ in range(2)]
    assert [machine.wait(300) for machine in machines] == [0, 0]
    store = ArtifactStore(str(tmp_path / "store"))
    records = list_runs(store)[:2]
    assert {record.stages["training"].key for record in records} == {records[0].stages["training"].key}
    model = store.open(store.ref("training", records[0].stages["training"].key))
    assert json.loads(model.path("model.json").read_text())["backbone"] == "iresnet_tiny"
    assert model.manifest.metrics["steps"] > 0
