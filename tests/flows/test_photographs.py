"""A folder of real photographs, a sub-folder for each person, goes through the whole pipeline."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from flows.pipeline import gif
from gif_core.artifacts import ArtifactStore, check_artifacts
from schemas.loading import load_config
from schemas.stages import STAGES

PHOTOGRAPHS = Path(__file__).parents[3] / "shared" / "data" / "faces_299"


@pytest.mark.slow
@pytest.mark.usefixtures("prefect")
@pytest.mark.skipif(not PHOTOGRAPHS.is_dir(), reason="needs photographs")
def test_a_folder_of_photographs_goes_through_the_whole_pipeline(
    tmp_path: Path, tiny_settings: dict[str, object]
) -> None:
    source = {"kind": "folder", "path": str(PHOTOGRAPHS)}
    ingestion = {"sources": [source], "held_out": 0.12}
    config = load_config({**tiny_settings, "ingestion": ingestion, "store": str(tmp_path / "store")})
    gif(config)
    store = ArtifactStore(config.store)
    artifacts = {ref.stage: store.open(ref) for ref in store.refs()}
    assert artifacts.keys() == set(STAGES)
    assert [check for check in check_artifacts(store, store.refs()) if check.fault] == []
    faces = artifacts["ingestion"]
    assert faces.manifest.metrics["images"] == len(list(PHOTOGRAPHS.glob("*/*.jpg")))
    identities = [
        pq.read_table(faces.path(f"{name}.parquet"))["label"].to_pylist() for name in ("identities", "held_out")
    ]
    assert sorted(identities[0] + identities[1]) == sorted(path.name for path in PHOTOGRAPHS.iterdir())
