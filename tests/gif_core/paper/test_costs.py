"""Costs as the paper's figures: measured in processes of their own, computed beyond."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gif_core.benchmarking import draw_labels
from gif_core.paper import HEADS, HeadPoint, Measured, compute_bytes, measure_apart, show_cost
from gif_core.paper.costs import count_multiplications
from gif_core.paper.head_steps import GIVES_BACK, measure
from gif_core.paper.separation_steps import SeparationPoint
from gif_core.paper.separation_steps import measure as measure_here
from gif_core.paper.separation_steps import measure_apart as measure_separation
from schemas.errors import GifError
from schemas.experiments import Cost, Experiment, read_experiment


@pytest.mark.parametrize("head", ["arcface", "pfc0.3", "dcq", "f2c", "virtual_fc", "gif", "paper"])
def test_multiplications_grow_with_the_identities_unless_codes_are_learned(head: str) -> None:
    few, many = (count_multiplications(HeadPoint(head, number)) for number in (10**6, 64 * 10**6))
    growth = many / few
    if HEADS[head].has_codes:
        assert growth < 2, "logarithmic: a longer code"
    else:
        assert growth == pytest.approx(64)


def test_rows_fill_eight_gpus_of_80_gb_where_the_remark_says_and_codes_do_not() -> None:
    def held(head: str, millions: int, share: int = 8) -> float:
        return compute_bytes(HeadPoint(head, millions * 10**6 // share, 4096)) / 1e9

    assert held("arcface", 27) < 80 < held("arcface", 29)
    assert held("pfc0.3", 58) < 80 < held("pfc0.3", 60)
    assert held("paper", 64, share=1) < 0.1


@pytest.mark.parametrize("kind", ["head_cost", "training_speed"])
def test_heads_are_measured_one_by_one_and_reported(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gif_core.paper.head_steps.SECONDS", 0.0)
    monkeypatch.setattr("gif_core.paper.costs.measure_apart", lambda point, **_: measure(point, tmp_path))
    cost = Cost(heads=("paper", "dcq"), identities=(300,), demo_identities=(300,), batch_size=8, demo_batch_size=8)
    experiment = Experiment.model_validate({"title": "t", "kind": kind, "cost": cost})
    said: list[str] = []
    (grid,), charts, _ = show_cost(experiment, "demo", device="cpu", memory=10**10, report=said.append)
    assert [row[0] for row in grid.rows] == ["GIF, paper's loss", "DCQ"]
    assert len(said) == 2
    assert all(len(line) > 0 for chart in charts for line in chart.series.values())


def test_images_of_a_step_come_in_groups_of_one_identity_as_in_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Virtual FC has as many anchors as a step of such groups needs, and cannot take one of single images."""
    labels_B = draw_labels(np.random.default_rng(0), 3000, 512, 10)
    assert len(labels_B) == 512
    assert np.unique(np.diff(np.flatnonzero(np.diff(labels_B)))).tolist() == [10]
    monkeypatch.setattr("gif_core.paper.head_steps.SECONDS", 0.0)
    assert measure(HeadPoint("virtual_fc", 3000), tmp_path).processor_seconds > 0


def test_heads_that_do_not_fit_are_computed_only() -> None:
    cost = Cost(heads=("arcface",), identities=(10**6,), demo_identities=(10**6,))
    experiment = Experiment.model_validate({"title": "t", "kind": "head_cost", "cost": cost})
    (grid,), _, remarks = show_cost(experiment, "demo", device="cpu", memory=10**8, report=pytest.fail)
    assert grid.rows[0][2:5] == ("–", "–", "–")
    assert any("does not fit" in remark for remark in remarks)


def refuse_dcq(point: HeadPoint, **_: object) -> Measured:
    if point.head == "dcq":
        raise GifError("DCQ could not be measured: out of memory")
    return Measured(0.5, 0.25, 2**20)


@pytest.mark.parametrize("kind", ["head_cost", "training_speed"])
def test_a_head_that_fails_is_a_dash_with_a_remark_and_the_others_go_on(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gif_core.paper.costs.measure_apart", refuse_dcq)
    cost = Cost(heads=("dcq", "paper"), identities=(300,), demo_identities=(300,), batch_size=8, demo_batch_size=8)
    experiment = Experiment.model_validate({"title": "t", "kind": kind, "cost": cost})
    (grid,), charts, remarks = show_cost(experiment, "demo", device="cpu", memory=10**10, report=lambda _: None)
    failed, measured = grid.rows
    assert failed[:4] == ("DCQ", "300" if kind == "head_cost" else "–", "–", "–")
    assert "–" not in measured
    assert remarks[-1] == "DCQ could not be measured: out of memory."
    assert "DCQ" not in charts[0].series
    assert "DCQ" not in charts[0].labels


def test_a_number_of_vectors_that_fails_is_a_dash_with_a_remark(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(point: SeparationPoint) -> Measured:
        if point.identities == largest:
            raise GifError("out of memory")
        return Measured(0.5, 0.25, 2**20)

    experiment = read_experiment("supplement-separation")
    assert experiment.cost is not None
    largest = max(experiment.cost.demo_identities)
    monkeypatch.setattr("gif_core.paper.costs.measure_separation", measured)
    (grid,), _, remarks = show_cost(experiment, "demo", device="cpu", memory=10**10, report=lambda _: None)
    assert (f"{largest:,}", "–", "–", "failed") in grid.rows
    assert remarks[-1] == "out of memory."


def test_a_network_that_does_not_fit_with_its_head_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gif_core.paper.costs.measure_apart", lambda *_, **__: pytest.fail("does not fit"))
    alone = compute_bytes(HeadPoint("paper", 300, 512))
    cost = Cost(heads=("paper",), identities=(300,), demo_identities=(300,), demo_batch_size=512)
    experiment = Experiment.model_validate({"title": "t", "kind": "training_speed", "cost": cost})
    (grid,), _, remarks = show_cost(experiment, "demo", device="cpu", memory=2 * alone, report=pytest.fail)
    assert grid.rows == (("GIF, paper's loss", "–", "–", "–", "–"),)
    assert "do not fit" in remarks[0]


@pytest.mark.slow
def test_the_computed_memory_of_a_network_and_its_head_is_near_the_measured() -> None:
    point = HeadPoint("paper", 1000, 64, 512, backbone="iresnet_tiny")
    assert measure_apart(point, environment=GIVES_BACK).bytes == pytest.approx(compute_bytes(point), rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("head", HEADS)
def test_every_head_has_a_step_in_a_process_of_its_own_alone_and_with_a_backbone(head: str) -> None:
    for backbone in (None, "iresnet_tiny"):
        measured = measure_apart(HeadPoint(head, 1000, 20, 16, backbone=backbone))
        assert measured.seconds > 0


@pytest.mark.slow
def test_separation_is_measured_in_a_process_of_its_own() -> None:
    assert measure_separation(SeparationPoint(3000, 64, 16)).bytes > 4 * 3000 * 16


FREES_FIRST = """
import numpy as np
from gif_core.paper.separation_steps import SeparationPoint, measure
np.ones(25 * 2**20).sum()
print(measure(SeparationPoint(100_000, 16, 128)).bytes)
"""


def test_memory_of_separation_is_that_of_its_step_and_not_of_what_was_freed_before() -> None:
    """In a process of its own: what other tests have freed and the allocator keeps would serve the step."""
    done = subprocess.run([sys.executable, "-c", FREES_FIRST], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 0.9 * SeparationPoint(100_000, 16, 128).bytes_of_vectors


def test_separation_is_measured_and_modelled_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = measure_here(SeparationPoint(3000, 64, 16))
    assert measured.seconds > 0
    monkeypatch.setattr("gif_core.paper.costs.measure_separation", lambda point: measured)
    experiment = read_experiment("supplement-separation")
    (grid,), charts, remarks = show_cost(experiment, "demo", device="cpu", memory=10**9, report=lambda _: None)
    assert [row[-1] for row in grid.rows].count("model") == 7, "1 to 64 million"
    assert grid.rows[-1][0] == "64,000,000"
    assert grid.rows[-1][2].startswith("131"), "GB of 64 million vectors of 512 numbers in fp32"
    assert [chart.title for chart in charts] == ["Memory", "Time"]
    assert "proportional" in remarks[0]
