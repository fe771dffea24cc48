"""Estimates: what they are made of, and how they grow."""

import math
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from gif_core.benchmarking import size_of_backbone
from gif_core.estimation import Machine, Scale, StageCost, describe_machine, estimate_run, find_scale, machine
from gif_core.estimation.machine import InstalledGpus
from gif_core.tokenization import code_shape
from schemas.benchmarks import BenchmarkFigures, BenchmarkResult
from schemas.errors import GifError
from schemas.loading import load_config
from schemas.stages import STAGES, StageName

EIGHT = Machine(8, "A100", 96)
SMALL_ENCODER = ("embedding.model=tiny-clip", "embedding.pretrained=synthetic", "separation.dimension=512")
DEMO = load_config("demo", ["store=nowhere"])


def costs(identities: int, machine: Machine = EIGHT, *overrides: str) -> dict[StageName, StageCost]:
    """Of the demo's small encoder and an IResNet-100 on files."""
    config = load_config("webface42m", [*SMALL_ENCODER, *overrides])
    found = estimate_run(config, Scale(identities, 20 * identities), machine)
    assert tuple(cost.stage for cost in found.stages) == STAGES
    return {cost.stage: cost for cost in found.stages}


def result(name: str, **changes: object) -> BenchmarkResult:
    given = {
        "name": name,
        "device": "cuda",
        "hardware": "NVIDIA A100-SXM4-80GB",
        "subject": "iresnet100 gif bf16",
        "settings": {"backbone": "iresnet100", "precision": "bf16", "head": "gif", "dimension": 512},
        "per_second": 1000.0,
        "figures": {"forward_per_second": 4000.0},
        "measured_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    return BenchmarkResult.model_validate(given | changes)


def measured(*results: BenchmarkResult, gpus: int = 8) -> Machine:
    return Machine(gpus, "A100", 96, BenchmarkFigures(results={str(n): each for n, each in enumerate(results)}))


def test_an_a100_trains_an_iresnet100_on_1500_images_a_second_by_the_reference() -> None:
    seconds = costs(2_000_000)["training"].seconds
    assert 20 * 40_000_000 / seconds / 8 == pytest.approx(1500, rel=0.05)


def test_the_machines_own_figures_count_and_the_newest_of_them() -> None:
    older = result("train", per_second=10.0, measured_at=datetime(2026, 1, 1, tzinfo=UTC) - timedelta(days=1))
    found = costs(2_000_000, measured(older, result("train")))["training"]
    assert found.source == "measured: iresnet100 gif bf16"
    assert 20 * 40_000_000 / found.seconds / 8 == pytest.approx(1000, rel=0.05)


def test_a_newer_figure_of_a_smaller_batch_does_not_count() -> None:
    sizes = {"backbone": "iresnet_tiny", "dimension": 512}
    good, small = (result("train", settings=sizes | {"batch": batch}) for batch in (128, 2))
    newer = small.model_copy(update={"measured_at": good.measured_at + timedelta(days=1)})
    assert measured(good, newer).find("train", "cuda") == good


def install(patch: pytest.MonkeyPatch, gpus: InstalledGpus, *results: BenchmarkResult) -> None:
    """Let the machine have 20 cores, these GPUs and these figures."""
    figures = BenchmarkFigures(results={str(number): each for number, each in enumerate(results)})
    patch.setattr(machine, "find_gpus", lambda: gpus)
    patch.setattr(machine, "read_figures", lambda: figures)
    patch.setattr(machine, "describe_hardware", lambda _: "20 cores, this processor")
    patch.setattr("os.cpu_count", lambda: 20)


def test_by_default_the_machine_is_the_one_here(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, InstalledGpus(2, "NVIDIA H100 NVL", 94e9), result("train"))
    here, other, more = describe_machine(), describe_machine(gpu="A100"), describe_machine(gpus=8)
    assert (here.gpus, here.gpu, here.cores) == (2, "NVIDIA H100 NVL", 20)
    assert here.sheet is not None
    assert here.sheet.memory == 94e9
    assert here.find("train", "cuda") is None, "measured on an A100"
    assert (other.gpus, other.cores) == (1, 12)
    assert other.find("train", "cuda") is not None
    assert (more.gpu, more.cores) == ("NVIDIA H100 NVL", 96)


def test_without_a_gpu_here_others_are_an_a100_with_its_usual_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    results = [result("decode", device="cpu", hardware=f"20 cores, {whose} processor") for whose in ("this", "another")]
    install(monkeypatch, InstalledGpus(), *results)
    assert (describe_machine().gpus, describe_machine().cores) == (0, 20)
    assert (describe_machine(gpus=8).gpu, describe_machine(gpus=8).cores) == ("A100", 96)
    assert [each.hardware for each in describe_machine().figures.results.values()] == ["20 cores, this processor"]


def test_an_installed_gpu_without_a_data_sheet_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, InstalledGpus(1, "Voodoo 2", 8e6))
    with pytest.raises(GifError, match=r"the GPU here, Voodoo 2: .* name one like it with --gpu"):
        describe_machine()
    assert describe_machine(gpus=0).cores == 20


def test_a_figure_of_another_network_is_scaled_by_operations() -> None:
    small = result("train", settings={"backbone": "iresnet_tiny", "precision": "bf16", "head": "gif", "dimension": 512})
    found = costs(2_000_000, measured(small))["training"]
    assert "scaled by operations" in found.source
    assert 20 * 40_000_000 / found.seconds / 8 == pytest.approx(
        1000 * size_of_backbone("iresnet_tiny", 512).flops / 24.2e9, rel=0.05
    )


def test_separation_grows_with_the_square_of_the_identities_and_training_with_the_images() -> None:
    small, large = costs(2_000_000), costs(64_000_000)
    assert large["separation"].seconds / small["separation"].seconds == pytest.approx(32**2, rel=0.05)
    assert large["training"].seconds / small["training"].seconds == pytest.approx(32, rel=0.05)


def test_separation_by_the_closed_form_alone_compares_no_pairs() -> None:
    closed = costs(64_000_000, EIGHT, "separation.start_gap=0.01", "separation.pull=0")["separation"]
    assert closed.limit == "disk"
    assert closed.seconds < costs(64_000_000)["separation"].seconds / 100


def test_more_gpus_take_less_time_until_decoding_limits_them() -> None:
    seconds = [costs(2_000_000, Machine(gpus, "A100", 2))["training"] for gpus in (1, 4, 8)]
    assert all(after.seconds <= before.seconds for before, after in pairwise(seconds))
    assert [cost.limit for cost in (seconds[0], seconds[-1])] == ["GPU", "decoding"]


def test_several_machines_share_training_but_one_of_them_separates() -> None:
    one, eight = (costs(64_000_000, Machine(gpus, "A100", 96)) for gpus in (8, 64))
    assert eight["training"].seconds == pytest.approx(one["training"].seconds / 8, rel=0.01)
    assert eight["separation"].seconds == one["separation"].seconds


def test_accumulation_and_checkpointing_need_less_memory_of_a_gpu() -> None:
    usual, parts, recomputed = (
        costs(2_000_000, EIGHT, *more)["training"].device_memory
        for more in ([], ["training.accumulation=4"], ["execution.gradient_checkpointing=true"])
    )
    assert parts < usual
    assert recomputed < usual


def test_a_row_per_identity_does_not_fit_where_codes_do() -> None:
    config = load_config("webface42m", [*SMALL_ENCODER])
    rows = load_config("webface42m", [*SMALL_ENCODER, "training.head=arcface"])
    scale, machine = Scale(64_000_000, 10**9), Machine(4, "A100", 96)
    assert any("training needs" in remark for remark in estimate_run(rows, scale, machine).remarks)
    assert not any("training needs" in remark for remark in estimate_run(config, scale, machine).remarks)


def test_the_scale_is_given_or_that_of_the_dataset_or_of_the_drawn_faces() -> None:
    assert find_scale(load_config("webface42m")).images == 42_474_557
    assert find_scale(load_config("paper/casia-vit-b")).identities == 10_572
    assert find_scale(load_config("insightface-r100")).identities == 360_232
    assert find_scale(DEMO).identities == 500
    assert find_scale(DEMO, 1000).images == pytest.approx(2 * find_scale(DEMO).images, abs=1)
    given = find_scale(load_config("webface42m"), 64_000_000, 10**9)
    assert (given.identities, given.images, given.drawn) == (64_000_000, 10**9, False)


def test_identities_that_are_left_out_cost_nothing() -> None:
    config = load_config("ms1mv2", ["ingestion.held_out=0.1", *SMALL_ENCODER])
    fewer = load_config("ms1mv2", ["ingestion.held_out=0.1", "ingestion.left_out=0.4", *SMALL_ENCODER])
    all_of_them, some = (find_scale(each, 100_000, 1_000_000) for each in (config, fewer))
    assert (all_of_them.trained_identities, some.trained_identities) == (90_000, 50_000)
    assert (all_of_them.stored_images, some.stored_images) == (1_000_000, 600_000)
    assert all_of_them.held_out_images == some.held_out_images == 100_000
    usual, cheaper = (
        {stage.stage: stage for stage in estimate_run(each, scale, EIGHT).stages}
        for each, scale in ((config, all_of_them), (fewer, some))
    )
    assert cheaper["ingestion"].writes == pytest.approx(0.6 * usual["ingestion"].writes)
    assert cheaper["embedding"].reads == pytest.approx(usual["embedding"].reads * 5 / 9)
    for stage in STAGES[: STAGES.index("evaluation")]:
        assert cheaper[stage].seconds < usual[stage].seconds, stage


@pytest.mark.parametrize("preset", ["demo", "ms1mv2", "paper/casia-vit-b"])
def test_own_sources_need_numbers_also_with_the_preset_of_a_dataset(preset: str) -> None:
    own = load_config(preset, ["ingestion.sources=[{kind: folder, path: a}]"])
    with pytest.raises(GifError, match="--identities and --images"):
        find_scale(own)
    assert find_scale(own, 1000, 9000).images == 9000


def test_a_dataset_may_lie_in_any_folder() -> None:
    moved = load_config("ms1mv2", ["data=s3://faces/all", "ingestion.held_out=0.1"])
    assert find_scale(moved).identities == 85_742


def test_the_price_is_that_of_all_hours() -> None:
    found = estimate_run(DEMO, find_scale(DEMO), Machine(0, "A100", 2))
    assert found.price(3600.0) == pytest.approx(sum(cost.seconds for cost in found.stages))
    assert all(cost.device_memory == 0 for cost in found.stages)


STARTS = {stage: 2.0**number for number, stage in enumerate(STAGES)}
SIZES = {"backbone": "iresnet_tiny", "encoder": "open_clip", "model": "tiny-clip", "dimension": 128}
EVALUATED = result(
    "evaluate",
    device="cpu",
    settings=SIZES | {"identities": 1000, "beam": 64, "length": 2, "values": 32},
    phases={
        "a pair's pixels": 1e-3,
        "a drawn face": 1e-2,
        "search codes": 1e-3,
        "search reranked": 2e-3,
        "search exhaustive": 4e-3,
    },
    figures={"forward_per_second": 100.0, "encoder_per_second": 400.0},
)


HELD_OUT, NO_SEARCH = ("evaluation.sets=[{kind: held_out}]",), "evaluation.identification=null"


def evaluation(*overrides: str, scale: Scale | None = None) -> float:
    """Seconds of the demo's evaluation of held-out identities by `EVALUATED`, without its start."""
    figures = (EVALUATED, result("start", device="cpu", phases=STARTS))
    given = load_config("demo", ["evaluation.sets=[{kind: held_out}]", *overrides])
    found = estimate_run(given, scale or Scale(2000, 20_000, drawn=True, held_out=0.5), measured(*figures, gpus=0))
    return found.stages[STAGES.index("evaluation")].seconds - STARTS["evaluation"]


def test_a_stage_takes_at_least_as_long_as_it_takes_to_start() -> None:
    started = result("start", device="cpu", phases=STARTS, subject="a run")
    found, slower = (
        estimate_run(DEMO, Scale(500, 5000, drawn=True), measured(*figures, gpus=0)).stages
        for figures in ([started], [started.model_copy(update={"phases": {s: n + 8 for s, n in STARTS.items()}})])
    )
    assert [after.seconds - before.seconds for before, after in zip(found, slower, strict=True)] == pytest.approx(
        [8] * 7
    )
    assert (found[-1].stage, found[-1].source) == ("reporting", "measured: a run")
    assert found[-1].seconds == pytest.approx(64 + 500**2 / 1e8, abs=1e-6)


def test_a_report_measures_what_training_made_of_at_most_32768_vectors() -> None:
    living, frozen, rows = (
        [costs(identities, Machine(0, "", 2), *more)["reporting"].seconds - 1 for identities in (10_000, 10**6, 10**7)]
        for more in (
            [],
            ["training.code_vectors=frozen"],
            ["training.head=cosface"],
        )
    )
    assert frozen == [0, 0, 0]
    assert rows == pytest.approx([10_000**2 / 1e8, 32_768**2 / 1e8, 32_768**2 / 1e8])
    assert living == pytest.approx([2 * each for each in rows])


def test_evaluation_adds_up_features_pixels_and_search() -> None:
    nothing = ["evaluation.identification=null"]
    pairs, images = 2 * 1500, 10_000 * -math.expm1(-2 * 3000 / 10_000)
    model, encoder, pixels = (
        evaluation(f"evaluation.systems=[{system}]", *nothing) for system in ("model", "encoder", "raw_pixels")
    )
    assert model == pytest.approx(2 * images / 100, rel=1e-3)
    assert encoder == pytest.approx(2 * images / 400, rel=1e-3)
    assert pixels == pytest.approx(pairs * 1e-3)
    assert evaluation(*nothing) == pytest.approx(model + encoder + pixels)
    assert evaluation(*nothing, "evaluation.flip=false", "evaluation.systems=[model]") == pytest.approx(model / 2)


def test_identification_draws_new_images_and_searches_each_three_times() -> None:
    system = "evaluation.systems=[raw_pixels]"
    added = evaluation(system, "evaluation.identification.images=100") - evaluation(
        system, "evaluation.identification=null"
    )
    length, values = (code_shape(1000, DEMO.tokenization).length, code_shape(1000, DEMO.tokenization).vocab_size)
    beams = 3e-3 * length * values / (2 * 32)
    assert added == pytest.approx(100 * 1e-2 + 200 * 2 / 100 + 200 * (beams + 4e-3))


def test_an_exhaustive_search_grows_with_the_identities() -> None:
    given = ["evaluation.systems=[raw_pixels]", "evaluation.identification.images=1000"]
    small, large = (
        evaluation(*given, scale=Scale(identities, 200_000, drawn=True, held_out=0.5))
        for identities in (20_000, 2_000_000)
    )
    assert large > small + 2000 * 4e-3 * 900


def test_without_held_out_identities_nothing_is_evaluated() -> None:
    assert evaluation(scale=Scale(2000, 20_000, drawn=True)) == 0
    read = [costs(2000, Machine(0, "", 2), *more)["evaluation"].reads for more in (HELD_OUT, (*HELD_OUT, NO_SEARCH))]
    assert read[0] == read[1], "nor are new images of the enrolled read"
