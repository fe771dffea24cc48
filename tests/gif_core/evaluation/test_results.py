"""Scores as files: what they may hold, and which are read."""

import json
from pathlib import Path
from typing import Any

import pytest

from gif_core.artifacts import ArtifactStore
from gif_core.evaluation import SetResult, SystemResult, write_scores
from gif_core.protocols import ScoresFormatError, flags_of, read_scores
from gif_core.protocols.scores import FORMAT
from gif_core.recognition import open_set_metrics, pair_thresholds, read_calibration
from gif_core.recognition.open_set import OpenSetMetrics


def refuse(constant: str) -> Any:
    raise AssertionError(f"{constant} is no JSON")


def measured(title: str = "mine", **metrics: float) -> SetResult:
    result = SetResult(title, "bin", "pairs-1", {"folds": 10}, {"pairs": 20})
    for system, flip in {"raw_pixels": False, "model": True}.items():
        result.systems[system] = SystemResult(dict(metrics), {"flip": flip})
    return result


def test_a_metric_that_is_undefined_is_left_out_and_the_file_is_json(tmp_path: Path) -> None:
    metrics = open_set_metrics(OpenSetMetrics({1: 0.5}, 0.3, 0.25, fpir_of_others=None), 0.01)
    found = SetResult("identification", "identification", "enrolled-1", {}, {}, {"codes": SystemResult(metrics)})
    write_scores(tmp_path, [], "model", found)
    about = json.loads((tmp_path / "identification.json").read_text(), parse_constant=refuse)
    assert about["systems"]["codes"] == {"rank_1": 0.5, "fnir_at_fpir_0.01": 0.25, "threshold": 0.3}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_scores(tmp_path, [measured(accuracy=float("nan"))], "model")


def test_every_system_has_its_own_flags_and_those_that_all_share(tmp_path: Path) -> None:
    write_scores(tmp_path, [measured(accuracy=0.5)], "model")
    found = read_scores(tmp_path / "scores.json")["mine"]
    assert flags_of(found, "model") == {"flip": True, "folds": 10}
    assert flags_of(found, "raw_pixels") == {"flip": False, "folds": 10}


def test_thresholds_of_another_format_are_refused_with_what_to_do(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    ref = store.ref("evaluation", "1" * 64)
    with store.draft(ref, {}, {}) as draft:
        for name in ("scores.json", "identification.json"):
            (draft.folder / name).write_text(json.dumps({"format": FORMAT - 1, "sets": {}, "systems": {}}))
        store.publish(draft)
    words = rf"has format {FORMAT - 1}, but this version of GIF reads {FORMAT}: .* 'gif run --from evaluation'"
    evaluation = store.open(ref)
    with pytest.raises(ScoresFormatError, match=rf"identification\.json {words}"):
        read_calibration(evaluation, "codes")
    with pytest.raises(ScoresFormatError, match=rf"scores\.json {words}"):
        pair_thresholds(evaluation.path("scores.json"))
