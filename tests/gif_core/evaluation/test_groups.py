"""Groups of one benchmark, as in RFW."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gif_core.evaluation import SetResult, SystemResult, compare_groups, write_scores
from gif_core.evaluation.groups import COMMON_FMR, common_threshold
from gif_core.protocols import read_groups
from gif_core.protocols.sets import describe_set
from schemas.evaluation import EvaluationConfig, SyntheticPairsSet

PAIRS = 4000
SAME = np.arange(PAIRS) % 2 == 0


def distances(overlap: float) -> NDArray[np.float64]:
    """Pairs of one identity from 0 to 1 apart, others from 1 - overlap on."""
    place = np.linspace(0, 1, PAIRS // 2, endpoint=False)
    found = np.empty(PAIRS)
    found[SAME], found[~SAME] = place, 1 - overlap + place
    return found


def group(title: str, overlap: float, accuracy: float, benchmark: str | None = "RFW") -> SetResult:
    result = SetResult(title, "bin", "pairs-1", {"folds": 10}, {"pairs": PAIRS, "same": PAIRS // 2})
    result.group, result.same_P = benchmark, SAME
    kept = distances(overlap) if benchmark else None
    result.systems["model"] = SystemResult({"accuracy": accuracy}, distance_P=kept)
    return result


def test_the_worst_group_the_spread_and_rates_at_one_threshold_are_found() -> None:
    results = [group("African", 0.4, 0.8), group("Asian", 0.0, 0.9), group("LFW", 0.5, 0.5, None)]
    found = compare_groups(results)
    assert list(found) == ["RFW"]
    model = found["RFW"]["systems"]["model"]
    assert (model["worst_group"], model["worst_accuracy"]) == ("African", 0.8)
    assert model["accuracy_spread"] == pytest.approx(0.1)
    assert model["mean_accuracy"] == pytest.approx(0.85)
    african, asian = model["groups"]["African"], model["groups"]["Asian"]
    both = (african["fmr"] + asian["fmr"]) / 2
    assert both == pytest.approx(COMMON_FMR, abs=1 / PAIRS), "over the pairs of all groups"
    assert asian["fmr"] == 0, "the threshold is one for all, so the harder group has all false matches"
    assert african["fmr"] == model["worst_fmr"] > COMMON_FMR
    assert african["fnmr"] == asian["fnmr"] == pytest.approx(1 - model["common_threshold"], abs=1e-3)


def test_the_threshold_is_a_number_however_few_the_pairs() -> None:
    few = (np.array([0.5, 0.2]), np.array([True, False]))
    assert np.isfinite(common_threshold({"a": few}))


def test_groups_are_in_the_json_of_scores_and_only_there_when_asked_for(tmp_path: Path) -> None:
    results = [group("African", 0.4, 0.8), group("Asian", 0.0, 0.9)]
    write_scores(tmp_path, results, "0" * 64, groups=compare_groups(results))
    assert read_groups(tmp_path / "scores.json")["RFW"]["systems"]["model"]["worst_group"] == "African"
    write_scores(tmp_path, results, "0" * 64)
    assert "groups" not in json.loads((tmp_path / "scores.json").read_text())
    assert read_groups(tmp_path / "scores.json") == {}


def test_a_group_is_in_the_key_of_scores_only_where_it_is_set() -> None:
    assert "group" not in describe_set(SyntheticPairsSet())
    assert describe_set(SyntheticPairsSet(group="RFW"))["group"] == "RFW"


def test_several_sets_may_name_the_same_benchmark() -> None:
    sets = [
        {"kind": "synthetic_bin", "label": label, "group": "drawn", "seed": seed} for seed, label in enumerate("ab")
    ]
    assert [each.title for each in EvaluationConfig.model_validate({"sets": sets}).sets] == ["a", "b"]
