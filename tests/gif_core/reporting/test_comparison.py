import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gif_core.artifacts import ArtifactMissingError, ArtifactStore, find_evaluation, find_scores
from gif_core.evaluation import SetResult, SystemResult, write_scores
from gif_core.heads import build_head
from gif_core.protocols.scores import FORMAT
from gif_core.reporting import Scored, find_comparable, load_beside, load_run, tabulate, write_comparison
from gif_core.reporting.comparison import NOTHING, differing_settings
from gif_core.reporting.scored_runs import Measurement, ScoredRun
from schemas.artifacts import Manifest
from schemas.errors import GifError

MakeRun = Callable[..., Any]
HEADS = ("gif", "arcface", "cosface")


@pytest.fixture(scope="module")
def runs(small_run: MakeRun, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Three runs of one store that differ in their heads."""
    folder = tmp_path_factory.mktemp("store")
    return {head: small_run(folder, head=head) for head in HEADS}


@pytest.fixture
def store(runs: dict[str, Any]) -> ArtifactStore:
    return runs["gif"].store


def scored(run: Any) -> Scored:
    manifest: Manifest = run.inputs["evaluation"].manifest
    return Scored(manifest.key, manifest.inputs["ingestion"].key, manifest.settings)


def key_of(run: Any) -> str:
    return run.inputs["evaluation"].ref.key


def load(runs: dict[str, Any], *heads: str) -> list[ScoredRun]:
    return [load_run(runs[head].store, key_of(runs[head])) for head in heads]


def test_comparable_are_the_other_evaluations_of_the_same_faces_the_newest_first(
    runs: dict[str, Any], store: ArtifactStore
) -> None:
    assert list(find_comparable(store, scored(runs["gif"]))) == [key_of(runs["cosface"]), key_of(runs["arcface"])]
    assert list(find_comparable(store, scored(runs["gif"]), most=1)) == [key_of(runs["cosface"])]


def test_other_faces_or_another_way_of_measuring_cannot_be_compared(runs: dict[str, Any], store: ArtifactStore) -> None:
    own = scored(runs["gif"])
    assert find_comparable(store, Scored(own.key, "0" * 64, own.settings)) == {}
    assert find_comparable(store, Scored(own.key, own.ingestion, {**own.settings, "flip": False})) == {}


def test_scores_whose_model_is_gone_are_not_shown_beside_others(small_run: MakeRun, tmp_path: Path) -> None:
    first, second = small_run(tmp_path), small_run(tmp_path, head="arcface")
    assert len(find_comparable(first.store, scored(first))) == 1
    first.store.remove(second.inputs["training"].ref)
    assert find_comparable(first.store, scored(first)) == {}
    with pytest.raises(ArtifactMissingError, match="the model of evaluation/"):
        load_run(first.store, key_of(second))


def test_scores_that_were_made_again_and_came_out_different_count_as_others(small_run: MakeRun, tmp_path: Path) -> None:
    first, second = small_run(tmp_path), small_run(tmp_path, head="arcface")
    before = find_comparable(first.store, scored(first))
    evaluation = second.inputs["evaluation"]
    with first.store.draft(evaluation.ref, evaluation.manifest.settings, evaluation.manifest.inputs) as draft:
        (draft.folder / "scores.json").write_text("{}")
        first.store.publish(draft, replace=True)
    after = find_comparable(first.store, scored(first))
    assert list(after) == list(before)
    assert after != before


def test_damaged_scores_of_another_run_are_left_out(
    small_run: MakeRun, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = small_run(tmp_path), small_run(tmp_path, head="arcface")
    scores = second.inputs["evaluation"].path("scores.json")
    scores.write_bytes(scores.read_bytes().replace(b"1", b"2", 1))
    shown = load_beside(first.store, [key_of(second), key_of(first)])
    assert [run.evaluation.key for run in shown] == [key_of(first)]
    assert "a run is left out of the comparison" in caplog.text


def test_only_settings_that_differ_are_shown(runs: dict[str, Any]) -> None:
    assert differing_settings(load(runs, "gif", "arcface")) == ["training.head"]
    assert differing_settings(load(runs, "gif", "gif")) == []


def test_the_runs_seed_is_one_setting_whatever_stages_draw_from_it(small_run: MakeRun, tmp_path: Path) -> None:
    pair = [small_run(tmp_path, seed=seed) for seed in (0, 5)]
    assert differing_settings([load_run(run.store, key_of(run)) for run in pair]) == ["seed"]


def build_parameters(run: Any, dimension: int) -> int:
    """Count the parameters of a head that is built, on code vectors of `dimension` dimensions."""
    codes = run.inputs["tokenization"].manifest.metrics
    vectors, tokens = (codes["identities"], dimension), (codes["identities"], codes["length"])
    built = build_head(
        run.config.training, np.zeros(tokens, np.int64), np.zeros(vectors, np.float32), num_values=codes["vocab_size"]
    )
    return sum(parameter.numel() for parameter in built.parameters())


def test_parameters_of_the_head_are_those_that_are_built(runs: dict[str, Any]) -> None:
    for run, head in zip(load(runs, *HEADS), HEADS, strict=True):
        assert run.head_parameters == build_parameters(runs[head], 16)


@pytest.mark.parametrize("head", ["gif", "arcface"])
def test_the_head_has_the_dimensions_of_the_code_vectors_where_they_are_fewer_than_the_encoders(
    small_run: MakeRun, tmp_path: Path, head: str
) -> None:
    run = small_run(tmp_path / "store", head=head, dimension=8)
    assert load_run(run.store, key_of(run)).head_parameters == build_parameters(run, 8)
    html = run.report(tmp_path / "report.html")
    assert f"{build_parameters(run, 8):,} parameters" in html
    assert "images in 8 dimensions" in html


def test_parameters_of_the_head_are_unknown_when_the_code_vectors_are_gone(small_run: MakeRun, tmp_path: Path) -> None:
    run = small_run(tmp_path, dimension=8)
    run.store.remove(run.inputs["separation"].ref)
    assert load_run(run.store, key_of(run)).head_parameters is None


def test_a_table_has_a_column_for_each_run_and_marks_the_best(runs: dict[str, Any]) -> None:
    first, second = load(runs, "gif", "arcface")
    better = replace(second, scores={"held_out": {"accuracy": 0.99}}, head_parameters=None)
    table = tabulate([first, better], ["mine", "yours"])
    rows = {row.label: row for group in table.groups.values() for row in group}
    assert rows["training.head"].cells == ("gif", "arcface")
    assert rows["Held out: Accuracy"].cells == ("98.77% ± 1.00%", "99.00%")
    assert rows["Held out: Accuracy"].best == {1}
    assert rows["IJB-C: TAR at FAR 0.01%"].cells == ("54.32%", NOTHING)
    assert rows["IJB-C: TAR at FAR 0.01%"].best == frozenset(), "nothing surpasses nothing"
    assert rows["Parameters of the head"].cells[1] == NOTHING


@pytest.mark.parametrize(
    ("changed", "cells"),
    [
        ({"words": "pairs-1, no flip, 10 folds"}, ("pairs-1, flip, 10 folds", "pairs-1, no flip, 10 folds")),
        ({"words": "pairs-2, flip, 10 folds"}, ("pairs-1, flip, 10 folds", "pairs-2, flip, 10 folds")),
        ({"basis": "other images"}, ("pairs-1, flip, 10 folds; images ", "pairs-1, flip, 10 folds; images ")),
    ],
    ids=["flags", "protocol", "images"],
)
def test_figures_measured_in_different_ways_have_no_best_and_say_how_they_differ(
    runs: dict[str, Any], changed: dict[str, str], cells: tuple[str, str]
) -> None:
    first, second = load(runs, "gif", "arcface")
    other = {"held_out": replace(second.measurements["held_out"], **changed)}
    better = replace(second, scores={"held_out": {"accuracy": 0.99}}, measurements=other)
    rows = {row.label: row for row in tabulate([first, better], ["mine", "yours"]).groups["Scores"]}
    assert rows["Held out: Accuracy"].best == frozenset()
    shown = rows["Held out: measured by"].cells
    assert all(cell.startswith(begin) for cell, begin in zip(shown, cells, strict=True))
    assert shown[0] != shown[1]


def test_pairs_of_other_faces_are_not_the_same_set(small_run: MakeRun, tmp_path: Path) -> None:
    pair = [small_run(tmp_path, held_out=share) for share in (0.5, 0.6)]
    first, second = (load_run(run.store, key_of(run)).measurements for run in pair)
    assert first["held_out"].words == second["held_out"].words
    assert first["held_out"] != second["held_out"]
    assert first["lfw"] == second["lfw"] == Measurement("pairs-1, flip", first["lfw"].basis)


def test_identification_stands_beside_that_of_other_runs_and_the_lowest_fnir_is_best(
    small_run: MakeRun, tmp_path: Path
) -> None:
    shown = []
    for head, fnir in (("gif", 0.25), ("arcface", 0.5)):
        run = small_run(tmp_path, head=head)
        evaluation = run.inputs["evaluation"]
        found = SetResult("identification", "identification", "enrolled-1", {"beam": 64}, {})
        metrics = {"rank_1": 0.75, "rank_5": 0.9, "fnir_at_fpir_0.01": fnir, "threshold": 0.3}
        found.systems["reranked"] = SystemResult(metrics)
        with run.store.draft(evaluation.ref, evaluation.manifest.settings, evaluation.manifest.inputs) as draft:
            write_scores(draft.folder, [], "0" * 64, found)
            run.store.publish(draft, replace=True)
        shown.append(load_run(run.store, evaluation.ref.key))
    rows = {row.label: row for row in tabulate(shown, ["mine", "yours"]).groups["Scores"]}
    assert list(rows) == ["Identification by reranked: Rank 1", "Identification by reranked: FNIR at FPIR 1%"]
    assert rows["Identification by reranked: FNIR at FPIR 1%"].cells == ("25.00%", "50.00%")
    assert rows["Identification by reranked: FNIR at FPIR 1%"].best == {0}


def test_scores_of_another_format_say_so_and_do_not_spoil_a_report(
    small_run: MakeRun, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = small_run(tmp_path)
    evaluation = run.inputs["evaluation"]
    with run.store.draft(evaluation.ref, evaluation.manifest.settings, evaluation.manifest.inputs) as draft:
        (draft.folder / "scores.json").write_text(json.dumps({"format": FORMAT - 1, "sets": {}}))
        run.store.publish(draft, replace=True)
    with pytest.raises(GifError, match=rf"scores\.json has format {FORMAT - 1}, .* 'gif run --from evaluation'"):
        load_run(run.store, key_of(run))
    assert load_beside(run.store, [key_of(run)]) == []
    assert "a run is left out of the comparison" in caplog.text


def test_the_newest_scores_of_a_model_are_found(runs: dict[str, Any], store: ArtifactStore) -> None:
    model = runs["arcface"].inputs["training"]
    evaluation = find_evaluation(store, model)
    assert evaluation is not None
    assert evaluation.ref.key == key_of(runs["arcface"])
    assert find_scores(store, str(model.ref)).ref == evaluation.ref


def test_the_report_marks_this_run_beside_the_others(runs: dict[str, Any], tmp_path: Path) -> None:
    html = runs["gif"].report(tmp_path / "report.html", load(runs, "gif", "arcface"))
    beside = html.split('<section id="beside">')[1].split("</section>")[0]
    assert beside.index("This run") < beside.index(key_of(runs["arcface"])[:8])
    assert all(head in beside for head in ("gif", "arcface"))


def test_the_page_of_a_comparison_needs_nothing_else_and_shows_hostile_names_as_text(
    runs: dict[str, Any], tmp_path: Path
) -> None:
    write_comparison(tmp_path / "page.html", load(runs, "gif", "arcface"), ["<script>alert(1)</script>", "b"])
    html = (tmp_path / "page.html").read_text()
    assert "&lt;script&gt;" in html
    assert "<script" not in html
    assert "http" not in html
