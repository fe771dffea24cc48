"""The figures of `gif bench`: how they are shown, kept and derived."""

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

from gif_core.backbones import build_backbone
from gif_core.benchmarking import describe_result, draw_svg, find_data_sheet, keep_result, peaks, read_figures
from gif_core.benchmarking.embed import encoder_flops
from gif_core.benchmarking.host_waits import count_synchronising, counted_waits
from gif_core.benchmarking.inputs import draw_vectors
from gif_core.benchmarking.peaks import size_of_backbone
from gif_core.benchmarking.tokenize import clustering_flops
from gif_core.embedding.encoders import ImageEncoder
from gif_core.embedding.encoders.preprocessing import Preprocessing
from schemas.benchmarks import BenchmarkResult
from schemas.errors import GifError
from schemas.tokenization import TokenizationConfig

CPU = torch.device("cpu")


def make_result(**changes: object) -> BenchmarkResult:
    given = {
        "name": "train",
        "device": "cpu",
        "hardware": "2 cores, a processor",
        "subject": "iresnet_tiny gif fp32",
        "settings": {"batch": 32},
        "per_second": 320.0,
        "share": 0.96,
        "reference": "the bare iresnet_tiny",
        "flops_per_second": 30e9,
        "peak_flops": 100e9,
        "peak_source": "measured: product of two matrices in fp32",
        "peak_memory": 700_000_000,
        "host_syncs": 1,
        "phases": {"wait": 0.01, "forward": 0.04, "backward": 0.08},
        "beside": {"decode": 0.02},
        "measured_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    return BenchmarkResult.model_validate(given | changes)


def test_the_bars_have_the_lengths_of_their_phases_and_fit_80_columns() -> None:
    lines = describe_result(make_result(hardware="8 cores, a processor with a very long name " * 3))
    assert max(map(len, lines)) <= 80
    bars = {line.split()[0]: line.count("█") for line in lines if "█" in line}
    assert bars == {"decode": 9, "wait": 4, "forward": 18, "backward": 36}
    assert any(line.endswith("61.5%") for line in lines if "backward" in line)
    assert any(line.endswith("beside") for line in lines if "decode" in line)


def test_the_text_says_rate_share_utilisation_and_its_source_memory_and_waits() -> None:
    text = " ".join(" ".join(describe_result(make_result())).split())
    for part in (
        "320 images/s",
        "0.96 of the speed of the bare iresnet_tiny",
        "utilisation 30.0% of 0.10 TFLOP/s (measured: product of two matrices in fp32)",
        "peak memory 700.0 MB",
        "in a steady step: 1",
    ):
        assert part in text


def test_the_image_is_svg_with_a_bar_for_every_phase() -> None:
    root = ElementTree.fromstring(draw_svg(make_result(subject="<a & b>")))
    assert root.tag.endswith("svg")
    widths = [float(bar.attrib["width"]) for bar in root if bar.tag.endswith("rect")]
    assert widths == pytest.approx([95.0, 47.5, 190.0, 380.0])


def test_a_newer_figure_of_the_same_subject_replaces_the_older(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "bench.json"
    for rate in (1.0, 2.0):
        keep_result(make_result(per_second=rate), path)
    keep_result(make_result(device="cuda"), path)
    results = read_figures(path).results
    assert {result.device: result.per_second for result in results.values()} == {"cpu": 2.0, "cuda": 320.0}


def test_a_figure_of_other_sizes_is_kept_beside(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    for sizes in ({"batch": 32}, {"batch": 2}, {"batch": 2, "identities": 10}):
        keep_result(make_result(settings=sizes), path)
    assert len(read_figures(path).results) == 3


def test_benchmarks_at_once_forget_nothing(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: keep_result(make_result(subject=str(number)), path), range(40)))
    assert len(read_figures(path).results) == 40


def test_vectors_that_do_not_fit_the_disk_are_refused_before_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10**6))
    with pytest.raises(GifError, match=r"64,000,000 code vectors .* take 131.* TMPDIR .* --identities"):
        draw_vectors(tmp_path, 64_000_000, 512)
    assert not list(tmp_path.iterdir())


def test_a_file_that_holds_no_figures_is_named(tmp_path: Path) -> None:
    (tmp_path / "bench.json").write_text('{"results": {"a": 1}}')
    with pytest.raises(GifError, match=r"bench\.json .*delete it and measure again"):
        read_figures(tmp_path / "bench.json")
    assert read_figures(tmp_path / "none.json").results == {}


@pytest.mark.parametrize(
    ("name", "teraflops", "gigabytes"),
    [
        ("NVIDIA A100-SXM4-80GB", 312, 80),
        ("NVIDIA A100-SXM4-40GB", 312, 40),
        ("NVIDIA H100 80GB HBM3", 989, 80),
        ("NVIDIA H100 PCIe", 756, 80),
        ("Tesla V100-SXM2-32GB", 125, 32),
        ("NVIDIA GeForce RTX 4090", 165, 24),
        ("NVIDIA A10G", 70, 24),
        ("NVIDIA L4", 121, 24),
    ],
)
def test_data_sheets_are_found_by_the_names_that_pytorch_reports(name: str, teraflops: int, gigabytes: int) -> None:
    sheet = find_data_sheet(name)
    assert sheet is not None
    assert (sheet.half, sheet.memory) == (teraflops * 1e12, gigabytes * 1e9)
    assert find_data_sheet("Voodoo 2") is None


def test_flops_and_parameters_are_those_of_the_network() -> None:
    found = size_of_backbone("iresnet100", 512)
    assert found.flops == pytest.approx(24.2e9, rel=0.01), "12.1 G multiply-adds"
    assert found.parameters == pytest.approx(65.2e6, rel=0.01)


def test_operations_are_counted_on_the_networks_device() -> None:
    found, network = [], nn.Conv2d(3, 5, 1, bias=False, device="meta")

    def tower(images_BCHW: torch.Tensor) -> torch.Tensor:
        found.append(images_BCHW.device.type)
        return network(images_BCHW)

    encoder = ImageEncoder(tower, Preprocessing(8, 8, [0.5] * 3, [0.5] * 3), torch.device("meta"), "fp32")
    assert encoder_flops(encoder) == 2 * 3 * 5 * 8 * 8
    assert found == ["meta"]


def test_activations_are_what_a_real_forward_pass_keeps() -> None:
    network, kept = build_backbone("iresnet_tiny", 64).train(), {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, nn.Parameter):
            kept[tensor.untyped_storage().data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        network(torch.zeros(2, 3, 112, 112))
    assert size_of_backbone("iresnet_tiny", 64).activations == pytest.approx(sum(kept.values()) / 2, rel=0.02)


def test_a_measured_peak_is_that_of_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    def two_seconds(work: Callable[[], torch.Tensor], device: torch.device, *, at_least: float) -> float:
        assert work().shape == (64, 64)
        return 2.0

    monkeypatch.setitem(peaks.GEMM, "cpu", 64)
    monkeypatch.setattr(peaks, "seconds_per_call", two_seconds)
    assert peaks.measure_products(CPU, "fp32") == 2 * 64**3 / 2


def test_warnings_of_synchronising_calls_are_counted_and_others_are_not() -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for text in ("called a synchronizing CUDA operation (Triggered internally at …)", "something else"):
            warnings.warn(text, stacklevel=1)
    assert count_synchronising(found) == 1
    with counted_waits(CPU) as waits:
        torch.ones(1).item()
    assert waits.count is None


def test_the_operations_of_clustering_grow_little_faster_than_the_identities() -> None:
    config = TokenizationConfig()
    one, ten = (clustering_flops(count, 512, config) for count in (100_000, 1_000_000))
    assert 5 < ten / one < 20
