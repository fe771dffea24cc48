"""Every benchmark divides the time of the real trainer, loader, head, encoder and separation as it was spent.

Known seconds are put into known places, on a clock that only these move; each is another power of two, so that the
figures show where all of them went.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from multiprocessing import active_children
from pathlib import Path
from types import SimpleNamespace

import cv2
import pytest
import torch

from gif_core.backbones import Backbone
from gif_core.benchmarking import decode, embed, evaluate, ingest, run, run_benchmark, separate, start, tokenize, train
from gif_core.benchmarking.clock import Clock
from gif_core.benchmarking.inputs import draw_faces, draw_vectors, number_codes
from gif_core.benchmarking.peaks import size_of_backbone
from gif_core.benchmarking.setting import Setting
from gif_core.benchmarking.timed_step import TimedStepper
from gif_core.embedding.encoders import ImageEncoder
from gif_core.embedding.encoders.preprocessing import Preprocessing
from gif_core.heads import Head
from gif_core.heads.gif import GifHead
from gif_core.images import Faces
from gif_core.runtime import ProcessGroup
from gif_core.separation import descent
from gif_core.training import begin_training, trainer
from gif_core.training.trainer import Training
from schemas.benchmarks import BenchmarkResult
from schemas.errors import GifError
from schemas.loading import load_config
from schemas.presets import PRESETS
from schemas.run import RunConfig
from schemas.stages import STAGES
from schemas.training import TrainingConfig
from tests.gif_core.benchmarking.hand_clock import HandClock

pytestmark = pytest.mark.usefixtures("one_thread")
SECONDS, IDENTITIES = 0.3, 500
PEAK = 1e9
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return load_config("demo", ["execution.workers=1", "execution.device=cpu"])


@pytest.fixture
def measured(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], BenchmarkResult]:
    for module in (train, embed, separate):
        monkeypatch.setattr(module, "find_peak", lambda *_: (PEAK, "known"))

    def measure(name: str) -> BenchmarkResult:
        return run_benchmark(name, config, device="cpu", seconds=SECONDS, identities=IDENTITIES, batch=4)

    return measure


@pytest.fixture
def hand_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[HandClock]:
    with ExitStack() as hooks:
        yield HandClock(monkeypatch, hooks)


@pytest.fixture
def slow_training(hand_clock: HandClock) -> None:
    """Known seconds for all that a step does; the head has an optimizer of its own for its rows."""
    hand_clock.slow_modules(Backbone, forward=2, backward=16)
    hand_clock.slow_modules(Head, forward=4, backward=8)
    hand_clock.slow_optimizers(32)
    hand_clock.slow(GifHead, "begin_step", 64)


@pytest.mark.usefixtures("slow_training")
def test_the_seconds_of_a_training_step_are_found_in_their_phases(
    measured: Callable[[str], BenchmarkResult], hand_clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = trainer.load_batches

    def load_slowly(*given: object, **settings: object) -> Iterator[object]:
        with closing(load(*given, **settings)) as batches:
            for batch in batches:
                hand_clock.advance(1)
                yield batch

    monkeypatch.setattr(trainer, "load_batches", load_slowly)
    result = measured("train")
    spent = {phase: seconds for phase, seconds in result.phases.items() if seconds}
    assert spent == {"wait": 1, "forward": 2, "head": 4 + 64, "backward": 8 + 16, "optimizer": 2 * 32}
    assert result.per_second == 4 / 159
    assert result.share == (2 + 16 + 32) / 159
    assert result.figures["forward_per_second"] == 4 / 2
    assert result.utilisation == pytest.approx(3 * size_of_backbone("iresnet_tiny", 128).flops * 4 / 159 / PEAK)
    assert result.host_syncs is None, "a CPU has no queue"
    assert result.settings["dimension"] == 128, "of tiny-clip"


def test_the_timed_trainer_trains_as_the_trainer_does(tmp_path: Path) -> None:
    faces, (codes, shape) = draw_faces(tmp_path, 16, 8, 1), number_codes(8, load_config("demo").tokenization)
    settings = TrainingConfig(backbone="iresnet_tiny", batch_size=8, epochs=2, learning_rate=0.01)
    alone = ProcessGroup(torch.device("cpu"))

    def losses(change: Callable[[Training], None]) -> list[float]:
        given = {"seed": 0, "group": alone, "num_values": shape.vocab_size}
        training = begin_training(faces, codes, draw_vectors(tmp_path, 8, 16), settings, **given)
        change(training)
        with closing(training.run()) as reports:
            return [report.metrics["loss"] for report in reports]

    def timed(training: Training) -> None:
        training.stepper = lambda *given, **more: TimedStepper(*given, clock=Clock(alone.device), **more)

    assert losses(timed) == losses(lambda _: None)


@pytest.mark.usefixtures("slow_training")
def test_the_seconds_of_the_head_alone_are_compared_with_the_backbone(
    measured: Callable[[str], BenchmarkResult],
) -> None:
    result = measured("head")
    assert result.phases == {"rows": 64, "forward": 4, "backward": 8, "optimizer": 2 * 32}
    assert result.per_second == 4 / 140
    assert result.share == 50 / (50 + 140)


def test_embedding_is_compared_with_the_bare_forward_pass(
    measured: Callable[[str], BenchmarkResult], hand_clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = embed.build_encoder

    def build_slowly(*given: object) -> ImageEncoder:
        encoder = build(*given)
        encoder.tower = hand_clock.slowed(encoder.tower, 4)
        return encoder

    monkeypatch.setattr(embed, "build_encoder", build_slowly)
    hand_clock.slow(Faces, "fill", 1)
    result = measured("embed")
    assert result.phases == {"decode": 1, "copy": 0, "forward": 4, "wait": 0}
    assert result.share == pytest.approx(4 / 5)
    assert result.figures["bare_per_second"] == pytest.approx(embed.CPU_BATCH / 4)


def test_separation_is_compared_with_its_products(
    measured: Callable[[str], BenchmarkResult], hand_clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(separate.SIZES, "cpu", 256)
    for module in (descent, separate):
        hand_clock.slow(module, "batch_gradient", 4)
    hand_clock.slow(separate, "_bare_products", 1)
    hand_clock.slow(descent, "mean_cosine", 16)
    result = measured("separate")
    assert result.settings["batch"] == 256, "one batch is an epoch"
    assert result.phases == {"products": 1, "potential": 3, "pull, measures": 16}
    assert result.share == 1 / 20
    assert result.per_second == 256 / 20


def test_the_seconds_of_files_and_of_drawn_faces_are_told_apart(
    measured: Callable[[str], BenchmarkResult], hand_clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "FILES", 20)
    monkeypatch.setattr(ingest, "DRAWN", 1)
    hand_clock.slow(ingest, "ingest", 4)
    result = measured("ingest")
    assert result.per_second == 20 / 4
    assert result.figures["bytes_per_second"] == result.figures["bytes_per_image"] * 20 / 4
    assert result.figures["drawn_per_second"] == 10 / 4


def test_the_seconds_of_tokenization_are_found_in_its_steps(
    measured: Callable[[str], BenchmarkResult], hand_clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenize, "IDENTITIES", 300)
    for name, seconds in {"tokenize": 1, "align_tokens": 2, "write_code_table": 4, "code_quality": 8}.items():
        hand_clock.slow(tokenize, name, seconds)
    result = measured("tokenize")
    assert result.phases == {"cluster": 1, "align": 2, "write": 4, "quality": 8}
    assert result.per_second == 300 / 15
    assert result.figures["rest_per_second"] == pytest.approx(300 / 14)


@pytest.mark.parametrize("start_gap", ["null", "0.05"])
def test_separation_is_measured_also_with_settings_that_would_end_it_early(
    start_gap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(separate.SIZES, "cpu", 256)
    config = load_config("demo", ["separation.least_kept=0.999", f"separation.start_gap={start_gap}"])
    found = run_benchmark("separate", config, device="cpu", seconds=SECONDS).figures
    assert found["epoch_seconds"] > 0
    assert (found["closed_form_seconds"] > 0) == (start_gap != "null")


def test_the_seconds_of_evaluation_are_found_in_its_parts(
    measured: Callable[[str], BenchmarkResult],
    config: RunConfig,
    hand_clock: HandClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluate, "IMAGES", 32)
    monkeypatch.setattr(evaluate, "IDENTITIES", 8)
    monkeypatch.setattr(evaluate, "PAIRS", 16)
    hand_clock.slow_modules(Backbone, forward=8, backward=0)
    hand_clock.slow(ImageEncoder, "_features", 16)
    hand_clock.slow(evaluate, "pixel_distances", 32)
    hand_clock.slow(evaluate.DrawnFaces, "load", 64)
    hand_clock.slow(evaluate.Gallery, "find", 256)
    result = measured("evaluate")
    batch = result.figures["batch"]
    assert result.phases["model"] == 2 * 8 / batch, "image and mirror, one batch after another"
    assert result.figures["forward_per_second"] == batch / 8
    assert result.figures["encoder_per_second"] == batch / 16
    assert result.phases["a pair's pixels"] == 32 / 16
    assert result.phases["a drawn face"] == 64 / 64
    assert {result.phases[f"search {way}"] for way in ("codes", "reranked", "exhaustive")} == {1}
    longer = run_benchmark("evaluate", config, device="cpu", seconds=100, identities=IDENTITIES)
    assert longer.figures["batch"] != batch
    assert longer.key == result.key, "it replaces an older figure, of however many images at once"


SECONDS_OF_STAGES = {
    "ingestion": 1,
    "embedding": 2,
    "separation": 4,
    "tokenization": 8,
    "training": 16,
    "evaluation": 32,
    "reporting": 64,
}


def test_what_a_stage_takes_to_start_is_that_of_a_run(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[tuple[str, ...]] = []
    record = SimpleNamespace(stages={name: SimpleNamespace(seconds=n) for name, n in SECONDS_OF_STAGES.items()})
    monkeypatch.setattr(start, "list_runs", lambda _: [record])
    monkeypatch.setattr(start, "_make_run", lambda command, _: commands.append(command))
    result = run_benchmark("start", config, device="cpu", command=("gif",))
    assert result.phases == SECONDS_OF_STAGES
    assert commands == [("gif",)]


def test_a_run_that_fails_is_reported_with_its_last_lines(config: RunConfig) -> None:
    failing = (sys.executable, "-c", "raise SystemExit('no room')")
    with pytest.raises(GifError, match="no room"):
        run_benchmark("start", config, device="cpu", command=failing)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_smallest_run_has_valid_settings_and_the_networks_of_any_preset(preset: str, tmp_path: Path) -> None:
    given = load_config(preset)
    smallest = start.smallest_run(Setting(given, CPU, tmp_path, 1.0, 1))
    read = RunConfig.model_validate(json.loads(smallest.model_dump_json()))
    assert read == smallest
    assert (read.training.backbone, read.embedding.model) == (given.training.backbone, given.embedding.model)
    assert (read.embedding.pretrained, read.training.epochs) == ("random", 1)


def test_the_smallest_run_does_not_divide_its_few_images_into_parts(tmp_path: Path) -> None:
    given = load_config("demo", ["training.batch_size=512", "training.accumulation=16"])
    training = start.smallest_run(Setting(given, CPU, tmp_path, 1.0, 1)).training
    assert training.batch_size // training.accumulation >= 2, "batch normalisation needs two images"


@pytest.mark.slow  # a run of the pipeline
def test_every_stage_of_the_smallest_run_takes_its_time(config: RunConfig) -> None:
    result = run_benchmark("start", config, device="cpu", command=(sys.executable, "-P", "-m", "flows.cli"))
    assert tuple(result.phases) == STAGES
    assert all(seconds > 0 for seconds in result.phases.values())


def test_the_cores_that_a_gpu_needs_follow_from_what_the_loader_keeps_of_bare_decoding(
    measured: Callable[[str], BenchmarkResult], hand_clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def rate(per_second: float) -> Iterator[Callable[[float], float]]:
        yield lambda _: per_second

    monkeypatch.setattr(decode, "bare_decoding", lambda _: rate(8000))
    monkeypatch.setattr(decode, "loading", lambda *_: rate(6000))
    hand_clock.slow(cv2, "imdecode", 1 / 1024)
    hand_clock.slow(Faces, "fill", 256 / 2048)
    hand_clock.slow(decode, "augment", 256 / 4096)
    result = measured("decode")
    known = {"decode": 1 / 1024, "read and mirror": 1 / 2048, "all augmentations": 1 / 4096}
    assert result.phases == known | {"decode, half size": 1 / 1024}
    assert (result.per_second, result.share) == (6000, 0.75)
    assert result.figures["per_core"] == 768
    assert result.figures["cores_for_gpu"] == 1500 / 768


@pytest.mark.slow  # processes that import PyTorch
def test_decoding_is_measured_in_processes(config: RunConfig) -> None:
    result = run_benchmark("decode", config, device="cpu", seconds=SECONDS)
    assert result.settings["workers"] == 1
    assert result.share is not None


@pytest.mark.slow  # processes that import PyTorch
def test_decoding_is_measured_for_longer_than_an_answer_may_take_and_lost_processes_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with decode.bare_decoding(2) as measure:
        monkeypatch.setattr(decode, "PATIENCE", 3.0)
        assert measure(4.0) > 0
        lost, other = active_children()
        lost.kill()
        lost.join()
        with pytest.raises(GifError, match="a process that decodes has ended"):
            measure(0.1)
    assert not other.is_alive()
    assert not active_children()


def test_the_bare_forward_pass_has_the_precision_of_the_encoder() -> None:
    halved = []

    def tower(images_BCHW: torch.Tensor) -> torch.Tensor:
        halved.append(torch.is_autocast_enabled("cpu"))
        return images_BCHW

    for precision in ("fp32", "bf16"):
        encoder = ImageEncoder(tower, Preprocessing(8, 8, [0.5] * 3, [0.5] * 3), CPU, precision)
        embed._bare_rate(encoder, torch.zeros(2, 3, 8, 8), 2, 1, CPU)
    assert halved == [False, False, True, True], "once to warm up, once measured"


def test_the_gpu_that_was_asked_for_is_measured(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = []

    def keep(setting: Setting) -> None:
        devices.append(str(setting.device))

    monkeypatch.setattr(run, "find_benchmark", lambda _: keep)
    monkeypatch.setattr(run, "pick_device", torch.device)
    for name in ("cuda", "cuda:3", "cpu"):
        run_benchmark("train", config, device=name)
    assert devices == ["cuda:0", "cuda:3", "cpu"]
    with pytest.raises(GifError, match="--device cpu"):
        run_benchmark("train", config, device="mps")


def test_an_unknown_benchmark_is_refused_with_the_known_ones(config: RunConfig) -> None:
    with pytest.raises(GifError, match="no benchmark 'fly'; there are: train, head"):
        run_benchmark("fly", config)


def test_heads_that_compare_two_networks_are_measured_by_training(config: RunConfig) -> None:
    changed = config.model_copy(update={"training": config.training.model_copy(update={"head": "dcq"})})
    with pytest.raises(GifError, match="gif bench train"):
        run_benchmark("head", changed, device="cpu", seconds=SECONDS, identities=IDENTITIES, batch=4)
