import base64
import json
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from gif_core.evaluation import SetResult, SystemResult, write_scores
from gif_core.protocols.scores import FORMAT
from gif_core.reporting.head_cost import memory_curves
from gif_core.reporting.page import SECTIONS, figure_json
from gif_core.reporting.plots import (
    Curve,
    draw_curves,
    draw_distances,
    draw_together,
    draw_trade_off,
    draw_tree,
    smooth,
    thin,
)
from gif_core.reporting.published import INSIGHTFACE, NUM_IDENTITIES, PAPER, PUBLISHED, benchmark_of, training_set_of
from gif_core.reporting.sections.codes import FACE_SIZE, LARGEST_SHEET, MOST_FACES, _draw_tree, _encode_sheet
from gif_core.runtime import decimal, duration, percent, size, thousands
from gif_core.tokenization import CodeShape, unpack_codes, write_code_table
from schemas.files import CODE_VECTORS_FILE
from schemas.run import RunConfig
from schemas.stages import STAGES
from schemas.tokenization import TokenizationConfig
from schemas.training import TrainingConfig

HOSTILE = "<script>alert(1)</script>"
LOADING = {"src", "href", "data", "action", "poster", "srcset"}
MakeRun = Callable[..., Any]
ONE_TOKEN = CodeShape(1, 20)


class Page(HTMLParser):
    """Ids, loaded addresses, scripts, styles and text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.loaded: list[str] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.quoted: list[str] = []
        self.text = ""
        self.inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.loaded += [value or "" for name, value in attrs if name in LOADING]
        self.styles += [given["style"] or ""] if "style" in given else []
        self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            self.scripts.append(data)
        elif self.inside == "style":
            self.styles.append(data)
        elif self.inside == "pre":
            self.quoted.append(data)
        else:
            self.text += data


def count_points(column: list[float] | dict[str, str]) -> int:
    """Length of a column of a plotly figure: a list, or an array in base64."""
    if isinstance(column, list):
        return len(column)
    return len(np.frombuffer(base64.b64decode(column["bdata"]), column["dtype"]))


@pytest.fixture(scope="module")
def run(small_run: MakeRun, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return small_run(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def page(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Page:
    return Page(run.report(tmp_path_factory.mktemp("report") / "report.html"))


@pytest.fixture(scope="module")
def page_without_scores(small_run: MakeRun, tmp_path_factory: pytest.TempPathFactory) -> Page:
    folder = tmp_path_factory.mktemp("no_held_out")
    return Page(small_run(folder / "store", held_out=0, title=HOSTILE).report(folder / "report.html"))


def test_every_section_is_there(page: Page) -> None:
    linked = [link.removeprefix("#") for link in page.loaded if link.startswith("#")]
    assert set(linked) == {*SECTIONS, "beside"}
    assert [name for name in page.ids if name in linked] == linked


def test_the_separation_of_what_was_learned_is_shown(page: Page, run: Any) -> None:
    shown = " ".join(page.text.split())
    count = len(run.identities)
    assert f"Code vectors H {count} 0.7100 1.0500 1.3000" in shown
    assert f"H after training {count} " in shown
    assert f"H after training, where the learned map puts it {count} " in shown


def test_groups_of_a_benchmark_are_compared(small_run: MakeRun, tmp_path: Path) -> None:
    run = small_run(tmp_path / "store")
    rates = {"fmr": 0.002, "fnmr": 0.25}
    model = {"mean_accuracy": 0.85, "worst_group": HOSTILE, "accuracy_spread": 0.125, "worst_fmr": 0.002}
    model |= {"worst_fnmr": 0.25, "groups": {HOSTILE: {"accuracy": 0.8, **rates}, "Asian": {"accuracy": 0.9, **rates}}}
    groups = {"RFW": {"flags": {"common_fmr": 0.001}, "systems": {"model": model}}}
    evaluation = run.config.evaluation.model_copy(update={"pairs": 7})
    run.config = run.config.model_copy(update={"evaluation": evaluation})
    with run.publish("evaluation") as draft:
        write_scores(draft.folder, [], "0" * 64, groups=groups)
    shown = " ".join(Page(run.report(tmp_path / "report.html")).text.split())
    assert "Groups of RFW" in shown
    assert f"{HOSTILE} (worst) 80.00% 0.20% 25.00%" in shown
    assert "85.00%, 12.50%" in shown


def test_ids_are_unique(page: Page) -> None:
    assert len(page.ids) == len(set(page.ids))


def test_page_loads_nothing_from_a_network(page: Page) -> None:
    assert all(address.startswith(("#", "data:")) for address in page.loaded)
    assert not any("url(" in style or "@import" in style for style in page.styles)


def test_hostile_label_is_shown_as_text(page: Page) -> None:
    assert HOSTILE in page.text
    assert "alert(1)" not in "".join(page.scripts)


def test_hostile_title_is_shown_as_text(page_without_scores: Page) -> None:
    assert page_without_scores.text.count(HOSTILE) >= 2
    assert "alert(1)" not in "".join(page_without_scores.scripts)


def test_hostile_name_in_a_figure_cannot_end_its_script() -> None:
    curve = Curve(np.arange(3), np.arange(3.0))
    text = figure_json(draw_curves({HOSTILE: curve, "other": curve}, "Loss"))
    assert "<" not in text
    assert json.loads(text)["data"][0]["name"] == HOSTILE


def test_same_artifacts_give_the_same_bytes(run: Any, tmp_path: Path) -> None:
    assert run.report(tmp_path / "first.html") == run.report(tmp_path / "second.html")


def test_report_without_held_out_identities_says_what_to_set(page_without_scores: Page) -> None:
    assert "No metrics: no identity was held out" in page_without_scores.text
    assert "set ingestion.held_out above 0" in page_without_scores.text
    assert "plot-roc-1" not in page_without_scores.ids


@pytest.mark.parametrize("shown", ["98.77%", "61.25% ± 1.00%", "TAR at FAR 0.1%", "1,500 pairs", "1,200 steps"])
def test_numbers_are_formatted_for_readers(page: Page, shown: str) -> None:
    assert shown in " ".join(page.text.split())


def test_the_cone_and_the_least_cohesive_identities_are_shown(page: Page) -> None:
    assert "0.912" in page.text
    assert "0.876" in page.text
    assert "0.123" in page.text
    assert "gif faces show --identities 3,5" in " ".join(page.text.split())


def section(html: str, name: str) -> str:
    return html.split(f'<section id="{name}"')[1].split("</section>")[0]


def plain(html: str) -> str:
    return " ".join(Page(html).text.split())


def test_every_set_stands_with_its_protocol_and_flags(run: Any, tmp_path: Path) -> None:
    shown = plain(section(run.report(tmp_path / "report.html"), "scores"))
    assert "1,500 pairs, 750 of them of one identity. Protocol pairs-1; 10 folds." in shown
    assert "Raw pixelsno flip" in shown, "whatever the model's features are made of"
    assert "head gif, flip" in shown
    assert "Protocol ijb-1; flip, no detector score, norm." in shown
    assert "TAR at FAR 0.01%" in shown
    assert "54.32%" in shown
    assert "Rank 1" in shown
    assert "No metrics: all pairs are of one identity, so FAR is undefined." in shown


def test_metrics_on_public_sets_stand_above_published_ones_with_a_note_that_the_data_differ(
    run: Any, tmp_path: Path
) -> None:
    html = section(run.report(tmp_path / "report.html"), "published")
    own, gif = (plain(row) for row in html.split("<tbody>")[1].split("</tr>")[:2])
    assert own == "This rungif, iresnet100 11 identities 91.23% – – – – – 54.32% here"
    assert gif == "GIFR100 MS1MV2 99.85% 98.80% 98.58% 96.94% 94.45% 95.05% 96.77% the GIF paper"
    assert "The training data differ: this run was trained on 11 identities" in plain(html)


@pytest.mark.parametrize(
    ("kind", "title", "benchmark"),
    [
        ("bin", "agedb_30", "AgeDB"),
        ("bin", "cfp_fp", "CFP-FP"),
        ("lfw", "LFW", "LFW"),
        ("ijb", "IJB-B", "IJB-B"),
        ("bin", "mine", None),
        ("ijb", "IJB-C plain", None),
        ("synthetic_bin", "LFW", None),
        ("synthetic_ijb", "IJB-C", None),
    ],
)
def test_drawn_synthetic_set_and_other_variants_never_stand_for_a_public_benchmark(
    kind: str, title: str, benchmark: str | None
) -> None:
    assert benchmark_of(kind, title) == benchmark


def test_published_metrics_have_those_of_the_paper_on_both_backbones_and_of_insightface_on_webface() -> None:
    found = {(row.method, row.backbone, row.trained_on, row.source): row.by_benchmark() for row in PUBLISHED}
    assert len(found) == len(PUBLISHED)
    assert found["GIF", "ViT-B", "WebFace4M", PAPER]["CPLFW"] == pytest.approx(0.9597)
    assert found["GIF", "ViT-B", "WebFace42M", PAPER]["IJB-C"] == pytest.approx(0.9799)
    of_insightface = [found["CosFace", "R100", name, INSIGHTFACE] for name in ("WebFace4M", "WebFace12M")]
    assert of_insightface == [{"IJB-C": pytest.approx(0.9719)}, {"IJB-C": pytest.approx(0.9759)}]
    assert {row.trained_on for row in PUBLISHED} <= set(NUM_IDENTITIES)


def test_training_sets_are_known_by_how_many_identities_they_have() -> None:
    assert training_set_of(85_742) == "MS1MV2"
    assert training_set_of(85_741) is None


def test_worst_errors_stand_side_by_side_with_their_distance(run: Any, tmp_path: Path) -> None:
    html = section(run.report(tmp_path / "report.html"), "errors")
    matches, misses = html.split("False matches")[1].split("Misses")
    assert [part.count("data:image/jpeg;base64,") for part in (matches, misses)] == [2, 2]
    assert "0.11" in matches
    assert "3.33" in misses


def test_the_report_says_when_no_pairs_were_verified_and_why_templates_have_no_errors(
    small_run: MakeRun, tmp_path: Path
) -> None:
    run = small_run(tmp_path / "store", seed=4)
    evaluation = run.inputs["evaluation"]
    templates = SetResult("IJB-C", "ijb", "ijb-1", {"flip": True}, {"pairs": 9})
    templates.systems = {"model": SystemResult({"tar_at_far_0.0001": 0.5})}
    with run.store.draft(evaluation.ref, evaluation.manifest.settings, evaluation.manifest.inputs) as draft:
        write_scores(draft.folder, [templates], "0" * 64)
        run.store.publish(draft, replace=True)
    run.inputs["evaluation"] = run.store.open(evaluation.ref)
    shown = plain(section(run.report(tmp_path / "report.html"), "errors"))
    assert "No errors to show: no pairs of images were verified with the model." in shown
    assert "Errors of templates are not shown: the protocol chooses no threshold for them" in shown


def test_a_head_without_codes_shows_its_own_curves(small_run: MakeRun, tmp_path: Path) -> None:
    page = Page(small_run(tmp_path / "store", head="arcface").report(tmp_path / "report.html"))
    figures = [json.loads(script) for script in page.scripts if script.startswith("{")]
    names = {trace.get("name") for figure in figures for trace in figure["data"]}
    assert "Token 1" not in names
    assert {"plot-losses", "plot-accuracies", "plot-alignment", "plot-validation", "plot-gradient"} <= set(page.ids)
    assert "31.25%" in page.text
    assert "identities predicted correctly" in page.text


def test_a_report_says_which_network_was_evaluated_where_there_are_two(small_run: MakeRun, tmp_path: Path) -> None:
    html = small_run(tmp_path / "store", head="dcq").report(tmp_path / "report.html")
    assert "Evaluated is the moving average of the network" in plain(section(html, "training"))


@pytest.mark.parametrize(
    ("skipped", "said"), [({40: 2, 80: 1, 1200: 4}, "7 steps were skipped"), ({40: 1}, "1 step was skipped")]
)
def test_steps_that_were_skipped_are_summed_over_all_reports(
    small_run: MakeRun, tmp_path: Path, skipped: dict[int, int], said: str
) -> None:
    html = small_run(tmp_path / "store", skipped=skipped).report(tmp_path / "report.html")
    assert said in plain(section(html, "training"))


def test_where_no_step_was_skipped_nothing_is_said_of_it(page: Page) -> None:
    assert "skipped" not in page.text


def report_with_identification(small_run: MakeRun, folder: Path, found: dict[str, Any]) -> str:
    """What the report says of identification when evaluation found this."""
    run = small_run(folder / "store", seed=3)
    evaluation = run.inputs["evaluation"]
    with run.store.draft(evaluation.ref, evaluation.manifest.settings, evaluation.manifest.inputs) as draft:
        draft.carry(evaluation, evaluation.names())
        (draft.folder / "identification.json").write_text(json.dumps({"format": FORMAT, **found}))
        run.store.publish(draft, replace=True)
    run.inputs["evaluation"] = run.store.open(evaluation.ref)
    return plain(section(run.report(folder / "report.html"), "scores")).split("Identification by codes")[1]


def test_identification_is_shown_when_the_artifact_has_it(run: Any, small_run: MakeRun, tmp_path: Path) -> None:
    assert "Identification by codes" not in run.report(tmp_path / "without.html")
    figures = {"rank_1": 0.8765, "fnir_at_fpir_0.01": 0.25, "threshold": 0.7}
    counts = {"identities": 300, "enrolled_images": 1200, "unknown_images": 80, "flags": {"enrolled_images": "new"}}
    shown = report_with_identification(small_run, tmp_path, counts | {"systems": {"codes": figures}})
    assert "among 300 enrolled identities" in shown
    assert "1,200 images of enrolled identities" in shown
    assert all(figure in shown for figure in ("87.65%", "25.00%", "Rank 1", "FNIR at FPIR 1%"))


def test_identification_that_could_not_be_measured_says_why(small_run: MakeRun, tmp_path: Path) -> None:
    shown = report_with_identification(small_run, tmp_path, {"systems": {}, "undefined": "arcface reads no codes"})
    assert "No metrics: arcface reads no codes." in shown


def test_head_cost_grows_with_the_identities_only_where_each_has_a_row() -> None:
    config = TrainingConfig(batch_size=512)
    curves = memory_curves(config, TokenizationConfig(), 512, [1_000_000, 64_000_000])
    rows, sampled, codes = curves.values()
    assert rows[0] == 4 * (3 * 512 + 512) * 1_000_000, "weights, momenta, gradient and logits"
    assert sampled[0] == 4 * (2 * 512 + 0.1 * (3 * 512 + 512)) * 1_000_000, "the rows of a step are copies"
    assert rows[1] / rows[0] == 64
    assert sampled[1] / sampled[0] == pytest.approx(64)
    assert codes[1] / codes[0] < 1.5


def test_untrained_encoder_is_stated_plainly(page: Page) -> None:
    assert "encoder with untrained weights" in page.text


def test_gpu_hours_and_memory_are_shown_where_gpus_were_used(run: Any, small_run: MakeRun, tmp_path: Path) -> None:
    assert "GPU hours" not in run.report(tmp_path / "cpu.html")
    used = small_run(tmp_path / "store", gpu_seconds=45_000.0)
    text = used.report(tmp_path / "gpu.html")
    assert "12.5" in text
    assert "GPU hours of all stages" in text
    assert "21.0 GB" in text


def test_the_settings_shown_give_the_same_artifacts_anywhere(page: Page, run: Any) -> None:
    command, settings = page.quoted
    assert command == "gif run --config run.yaml"
    shown = RunConfig.model_validate(yaml.safe_load(settings))
    assert all(shown.settings(stage) == run.config.settings(stage) for stage in STAGES)
    assert run.config.store not in settings


def test_figures_have_at_most_500_points(page: Page) -> None:
    figures = [json.loads(script) for script in page.scripts if script.startswith("{")]
    assert len(figures) == 17
    lengths = [count_points(trace["x"]) for figure in figures for trace in figure["data"] if "x" in trace]
    assert max(lengths) == 500


def test_thinning_keeps_both_ends() -> None:
    thinned = thin(Curve(np.arange(10_000), np.arange(10_000.0)), 500)
    assert len(thinned.x) == 500
    assert (thinned.x[0], thinned.x[-1]) == (0, 9_999)


@pytest.mark.parametrize("window", [1, 4, 5, 50])
def test_smoothing_leaves_a_constant_alone(window: int) -> None:
    assert smooth(np.full(20, 3.0), window) == pytest.approx(np.full(20, 3.0))


def test_trade_off_is_drawn_when_the_gap_is_negative() -> None:
    figure = draw_trade_off(np.array([1.0, -0.01]), np.array([1.0, 0.4]), [0, 8])
    assert figure.layout.xaxis.type != "log"


def test_trade_off_of_vectors_that_never_moved_has_one_point() -> None:
    figure = draw_trade_off(np.array([0.005]), np.array([1.0]), [0])
    assert figure.data[0].text == ("start",)


def test_trade_off_labels_epochs_and_marks_where_it_stopped() -> None:
    figure = draw_trade_off(np.array([1.0, 0.1, 0.09, 0.01]), np.array([1.0, 0.5, 0.5, 0.2]), [0, 8, 9, 40])
    assert figure.data[0].text == ("start", "epoch 8", "", "epoch 40"), "labels that would overlap are left away"
    assert (figure.data[1].x.tolist(), figure.data[1].y.tolist()) == ([0.01], [0.2])


def test_distances_are_shares_of_all_pairs_and_empty_ends_are_cut() -> None:
    before, after = np.zeros(200), np.zeros(200)
    before[10:20], after[100] = 3, 30
    figure = draw_distances(np.arange(200) / 100, before, after)
    assert [trace.y.sum() for trace in figure.data] == pytest.approx([1, 1])
    assert (figure.data[0].x[0], figure.data[0].x[-1]) == pytest.approx((0.095, 1.015))


def test_tree_has_a_box_for_each_node_below_that_of_its_prefix() -> None:
    tree = draw_tree([[], [0], [3], [3, 1]], [5, 3, 2, 2], [64, 16, 16, 4]).data[0]
    assert tree.ids == ("all", "0", "3", "3.1")
    assert tree.parents == ("", "all", "all", "3")
    assert tree.values == (5, 3, 2, 2)


def test_neighbours_together_are_drawn_beside_chance() -> None:
    figure = draw_together([1, 2], [0.5, 0.1], [0.05, 0.0001])
    assert [trace.text for trace in figure.data] == [("50.0%", "10.0%"), ("5.0%", "0.0001")]


def test_every_face_of_the_tree_knows_its_code_and_all_fit_one_small_sheet(run: Any, tmp_path: Path) -> None:
    html = run.report(tmp_path / "report.html")
    shown = re.findall(r'data-code="([\d.]+)" data-place="(\d+)"', html)
    assert [int(place) for _, place in shown] == list(range(len(shown)))
    codes = pq.read_table(run.inputs["tokenization"].path("codes.parquet"))["code"].to_pylist()
    assert sorted(code for code, _ in shown) == sorted(".".join(map(str, code)) for code in codes)
    noise = np.random.default_rng(0).integers(0, 255, (MOST_FACES, FACE_SIZE, FACE_SIZE, 3)).astype(np.uint8)
    assert len(_encode_sheet(list(noise))) <= LARGEST_SHEET, "even faces that cannot be compressed"


def test_a_tree_too_large_to_draw_is_cut_at_a_level(tmp_path: Path) -> None:
    shape = CodeShape(4, 9)
    codes = unpack_codes(np.random.default_rng(0).permutation(9**4)[:5000], shape)
    ids = np.arange(5000)
    identities = pa.table({"identity_id": ids, "label": ids.astype(str), "num_samples": ids})
    write_code_table(tmp_path, codes, shape, identities)
    with duckdb.connect(tmp_path / "codes.duckdb", read_only=True) as table:
        tree = _draw_tree(table).data[0]
    assert len(tree.ids) == 1 + 9 + 81 + 729
    assert sum(size for parent, size in zip(tree.parents, tree.values, strict=True) if parent == "all") == 5000


def test_artifacts_without_the_newer_tables_make_a_report_without_their_figures(
    small_run: MakeRun, tmp_path: Path
) -> None:
    run = small_run(tmp_path / "store", held_out=0)
    run.config = run.config.model_copy(update={"seed": 5})
    with run.publish("tokenization") as draft:
        write_code_table(
            draft.folder, np.arange(len(run.identities), dtype=np.int32)[:, None], ONE_TOKEN, run.identities
        )
        draft.metrics |= {
            "identities": len(run.identities),
            "length": 1,
            "vocab_size": ONE_TOKEN.vocab_size,
            "occupancy": 0.5,
        }
    with run.publish("separation") as draft:
        curve = {"epoch": [0], "loss": [1.0], "gap": [1.0], "mean_cosine": [0.0], "neighbours_kept": [1.0]}
        pq.write_table(pa.table(curve), draft.folder / "curve.parquet")
        shutil.copyfile(run.inputs["separation"].path(CODE_VECTORS_FILE), draft.folder / CODE_VECTORS_FILE)
        names = [f"{name}_distance{when}" for name in ("min", "mean", "max") for when in ("", "_before")]
        draft.metrics |= dict.fromkeys(names, 1.0) | {"gap": 1.0, "epochs": 0, "neighbours_kept": 1.0}
    page = Page(run.report(tmp_path / "report.html"))
    assert not {"plot-distances", "plot-together", "plot-tree"} & set(page.ids)
    assert {"plot-trade-off", "plot-separation"} <= set(page.ids)


def test_measures_of_structure_are_drawn_where_they_were_made(page: Page) -> None:
    figures = [json.loads(script) for script in page.scripts if script.startswith("{")]
    traces = {trace["name"]: trace for figure in figures for trace in figure["data"] if "name" in trace}
    assert count_points(traces["Gap (left)"]["x"]) == 7
    assert count_points(traces["Neighbours kept (right)"]["x"]) == 5
    assert count_points(traces["Rank correlation (right)"]["x"]) == 5


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (thousands, 1234567, "1,234,567"),
        (percent, 0.98765, "98.77%"),
        (decimal, -0.0001, "0.000"),
        (duration, 3.21, "3.2 s"),
        (duration, 59.8, "1 min 00 s"),
        (duration, 7500, "2 h 05 min"),
        (size, 999, "999 bytes"),
        (size, 4_200_000, "4.2 MB"),
        (size, 5e15, "5.0 PB"),
    ],
)
def test_formats(function: Callable[[float], str], value: float, text: str) -> None:
    assert function(value) == text
