"""The embedded dataset is a real problem: pixels do not solve it, a small network trained on codes does."""

from pathlib import Path

import pytest

from flows.pipeline import gif
from gif_core.artifacts import ArtifactStore
from gif_core.protocols import read_scores
from schemas.loading import load_config


@pytest.mark.slow
@pytest.mark.usefixtures("prefect")
def test_on_unseen_identities_raw_pixels_stay_below_75_percent_and_the_demos_network_is_above_90(
    tmp_path: Path,
) -> None:
    record = gif(load_config("demo", [f"store={tmp_path}"]))
    store = ArtifactStore(str(tmp_path))
    scores = store.open(store.ref("evaluation", record.stages["evaluation"].key)).path("scores.json")
    systems = read_scores(scores)["held_out"]["systems"]
    accuracy = {system: metrics["accuracy"] for system, metrics in systems.items()}
    assert accuracy["raw_pixels"] < 0.75
    assert accuracy["model"] > 0.90
