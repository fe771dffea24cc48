"""Every benchmark runs on a CPU within seconds, on the real trainer, loader, head, encoder and separation."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import torch

from gif_core.benchmarking import run_benchmark
from gif_core.benchmarking.clock import Clock
from gif_core.benchmarking.inputs import draw_faces, draw_vectors, number_codes
from gif_core.benchmarking.timed_step import TimedStepper
from gif_core.runtime import ProcessGroup
from gif_core.training import begin_training
from gif_core.training.trainer import Training
from schemas.benchmarks import BenchmarkResult
from schemas.errors import GifError
from schemas.loading import load_config
from schemas.run import RunConfig
from schemas.training import TrainingConfig

pytestmark = pytest.mark.usefixtures("one_thread")
SECONDS, IDENTITIES = 0.3, 500


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return load_config("demo", ["execution.workers=1", "execution.device=cpu"])


@pytest.fixture(scope="module")
def measured(config: RunConfig) -> Callable[[str], BenchmarkResult]:
    def measure(name: str) -> BenchmarkResult:
        return run_benchmark(name, config, device="cpu", seconds=SECONDS, identities=IDENTITIES, batch=4)

    return measure


def test_a_step_of_training_is_divided_into_its_phases(measured: Callable[[str], BenchmarkResult]) -> None:
    result = measured("train")
    assert {"wait", "copy", "forward", "head", "backward", "optimizer"} <= set(result.phases)
    assert sum(result.phases.values()) == pytest.approx(4 / result.per_second)
    assert result.phases["forward"] + result.phases["backward"] > result.phases["copy"]
    assert result.share is not None
    assert 0.2 < result.share < 2
    assert result.utilisation is not None
    assert 0 < result.utilisation < 1.5
    assert result.beside["decode"] > 0
    assert result.host_syncs is None, "a CPU has no queue"
    assert result.peak_memory is None or result.peak_memory > 10**8
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


def test_the_head_is_measured_alone(measured: Callable[[str], BenchmarkResult]) -> None:
    result = measured("head")
    assert set(result.phases) == {"rows", "forward", "backward", "optimizer"}
    assert result.share is not None
    assert 0 < result.share < 1
    assert result.figures["seconds"] == pytest.approx(4 / result.per_second)


def test_embedding_is_measured_against_the_bare_forward_pass(measured: Callable[[str], BenchmarkResult]) -> None:
    result = measured("embed")
    assert set(result.phases) == {"decode", "copy", "forward", "wait"}
    assert result.share is not None
    assert 0.2 < result.share < 1.5
    assert result.figures["flops"] > 1e6


def test_separation_is_measured_against_its_products(measured: Callable[[str], BenchmarkResult]) -> None:
    result = measured("separate")
    assert result.items == "vectors"
    assert sum(result.phases.values()) >= 0.99 * result.figures["epoch_seconds"]
    assert result.share is not None
    assert 0 < result.share < 1.2


def test_ingestion_and_tokenization_have_rates(measured: Callable[[str], BenchmarkResult]) -> None:
    ingested = measured("ingest").figures
    assert ingested["bytes_per_second"] > 1e5
    assert ingested["drawn_per_second"] > 1
    assert measured("tokenize").figures["rest_per_second"] > 100


@pytest.mark.slow  # processes that import PyTorch
def test_decoding_says_how_many_cores_a_gpu_needs(measured: Callable[[str], BenchmarkResult]) -> None:
    figures = measured("decode").figures
    assert figures["cores_for_gpu"] == pytest.approx(1500 / figures["per_core"])
    assert figures["bare_per_core"] > 100


def test_an_unknown_benchmark_is_refused_with_the_known_ones(config: RunConfig) -> None:
    with pytest.raises(GifError, match="no benchmark 'fly'; there are: train, head"):
        run_benchmark("fly", config)


def test_heads_that_compare_two_networks_are_measured_by_training(config: RunConfig) -> None:
    changed = config.model_copy(update={"training": config.training.model_copy(update={"head": "dcq"})})
    with pytest.raises(GifError, match="gif bench train"):
        run_benchmark("head", changed, device="cpu", seconds=SECONDS, identities=IDENTITIES, batch=4)
