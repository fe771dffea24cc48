"""The machine of an estimate: how fast it does what, from `gif bench` or from stated reference figures."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import torch

from gif_core.benchmarking import PEAKS, DataSheet, find_data_sheet, read_figures
from gif_core.benchmarking.setting import describe_hardware
from gif_core.estimation.networks import size_of_backbone
from schemas.benchmarks import BenchmarkFigures, BenchmarkName, BenchmarkResult
from schemas.errors import GifError
from schemas.stages import StageName

UTILISATION: Final = 0.35
"""Share of a GPU's peak that networks reach in training, where nothing was measured."""
PRODUCT_SHARE: Final = 0.6
"""The same for large matrix products (separation)."""
CORE_FLOPS: Final = 40e9
"""Operations per second of one core in large products, where nothing was measured."""
CORE_SHARE: Final = 0.5
"""Share of that which networks reach on a CPU."""
DECODED: Final = 5000.0
"""Photographs of 112 × 112 pixels and some 8 kB that one core decodes per second."""
INGESTED: Final = 4000.0
"""Image files per second and core that ingestion checks and copies."""
DRAWN: Final = 300.0
"""Faces per second and core of a synthetic source."""
CODED: Final = 20_000.0
"""Identities per second that are aligned, written and measured after clustering."""
CLUSTER_SHARE: Final = 0.25
"""Share of the cores' products that clustering reaches."""
DISK: Final = 1e9
"""Bytes per second of one disk or of the connection to object storage."""
START: Final[Mapping[StageName, float]] = {
    "ingestion": 0.5,
    "embedding": 5.0,
    "separation": 0.5,
    "tokenization": 1.0,
    "training": 2.0,
    "evaluation": 1.0,
    "reporting": 1.0,
}
"""Seconds that a stage takes beside the work that grows with its data, where nothing was measured."""
DISTANCES: Final = {"cpu": 1e8, "cuda": 1e10}
"""Pairs of vectors per second whose distances are counted, where nothing was measured."""
PIXELS: Final = 2000.0
"""Pairs of images whose pixels one thread compares per second."""
CORES_PER_GPU: Final = 12
USUAL_GPU: Final = "A100"
"""Where none is installed and none is named."""
GPUS_PER_MACHINE: Final = 8


@dataclass(frozen=True)
class Rate:
    """How many per second, and how that is known."""

    per_second: float
    source: str


@dataclass(frozen=True)
class Machine:
    """GPUs, cores, and what was measured on them."""

    gpus: int
    """0: everything is computed on the cores."""
    gpu: str
    """Name in the table of data sheets."""
    cores: int
    """Of one machine."""
    figures: BenchmarkFigures = field(default_factory=BenchmarkFigures)
    gpu_memory: float | None = None
    """Bytes of a GPU that is here; None: those of the data sheet."""

    @property
    def device(self) -> str:
        """Where networks and products are computed."""
        return "cuda" if self.gpus else "cpu"

    @property
    def name(self) -> str:
        """What limits a stage that computes on the device."""
        return "GPU" if self.gpus else "cores"

    @property
    def devices(self) -> int:
        """GPUs, or the CPU as one device."""
        return max(self.gpus, 1)

    @property
    def machines(self) -> int:
        """Machines of eight GPUs each."""
        return max(math.ceil(self.gpus / GPUS_PER_MACHINE), 1)

    @property
    def devices_of_one(self) -> int:
        """GPUs of one machine, or its CPU as one device."""
        return min(self.devices, GPUS_PER_MACHINE)

    @property
    def disks(self) -> float:
        """Bytes per second that all machines read together."""
        return DISK * self.machines

    @property
    def sheet(self) -> DataSheet | None:
        """The data sheet of the GPU; None on a CPU."""
        sheet = find_data_sheet(self.gpu) if self.gpus else None
        return replace(sheet, memory=self.gpu_memory) if sheet and self.gpu_memory else sheet

    def find(self, name: BenchmarkName, device: str, **settings: object) -> BenchmarkResult | None:
        """The result of a benchmark on a device with these settings: of the largest batch, and the newest of those."""
        found = [
            result
            for result in self.figures.results.values()
            if result.name == name
            and result.device == device
            and all(result.settings.get(key) == value for key, value in settings.items())
        ]
        return max(found, key=lambda each: (float(each.settings.get("batch", 0)), each.measured_at), default=None)

    def network(self, flops: float, precision: str) -> Rate:
        """Images per second of one device by the operations of an image, where nothing was measured."""
        if self.sheet is None:
            return Rate(self.cores * CORE_FLOPS * CORE_SHARE / flops, "reference: 20 GFLOP/s per core")
        peak = self.sheet.single if precision == "fp32" else self.sheet.half
        return Rate(
            UTILISATION * peak / flops, f"reference: {UTILISATION:.0%} of {self.gpu}'s {peak / 1e12:.0f} TFLOP/s"
        )

    def training(self, backbone: str, precision: str, head: str, dim: int) -> Rate:
        """Images per second of one device in training."""
        exact = self.find("train", self.device, backbone=backbone, precision=precision, head=head)
        near = exact or self.find("train", self.device, precision=precision) or self.find("train", self.device)
        flops = size_of_backbone(backbone, dim).flops
        if near is None:
            return self.network(3 * flops, precision)
        return _scaled(near, near.per_second, backbone, flops)

    def forward(self, backbone: str, precision: str, dim: int) -> Rate:
        """Images per second of one device through a trained network."""
        names: tuple[BenchmarkName, ...] = ("evaluate", "train")
        exact = [self.find(name, self.device, backbone=backbone) for name in names]
        near = next(filter(None, (*exact, *(self.find(name, self.device) for name in names))), None)
        flops = size_of_backbone(backbone, dim).flops
        if near is None:
            return self.network(flops, precision)
        return _scaled(near, near.figures["forward_per_second"], backbone, flops)

    def encoding(self, encoder: str, model: str, flops: float) -> Rate:
        """Images per second of one device through the encoder, with decoding."""
        exact = self.find("embed", self.device, encoder=encoder, model=model)
        near = exact or self.find("embed", self.device)
        if near is None:
            return self.network(flops, "bf16" if self.gpus else "fp32")
        if exact:
            return Rate(near.per_second, f"measured: {near.subject}")
        rate = near.per_second * near.figures["flops"] / flops
        return Rate(rate, f"scaled by operations from {near.subject}")

    def encoding_alone(self, encoder: str, model: str, flops: float) -> Rate:
        """Images per second of one device through the encoder in evaluation, which gives it one batch at a time."""
        found = self.find("evaluate", self.device, encoder=encoder, model=model)
        if found is None:
            return self.encoding(encoder, model, flops)
        return Rate(found.figures["encoder_per_second"], f"measured: {found.subject}")

    def comparing(self) -> float:
        """Pairs of images per second whose pixels are compared."""
        found = self.find("evaluate", self.device)
        return PIXELS if found is None else 1 / found.phases["a pair's pixels"]

    def drawing(self) -> float:
        """Faces per second that one thread draws."""
        found = self.find("evaluate", self.device)
        return DRAWN if found is None else 1 / found.phases["a drawn face"]

    def products(self) -> Rate:
        """Operations per second of one device in separation."""
        found = self.find("separate", self.device)
        if found is not None:
            work = 4.0 * found.figures["vectors"] ** 2 * float(found.settings["dimension"])
            return Rate(work / (found.phases["products"] + found.phases["potential"]), f"measured: {found.subject}")
        if self.sheet is not None:
            peak = self.sheet.single
            return Rate(
                PRODUCT_SHARE * peak, f"reference: {PRODUCT_SHARE:.0%} of {self.gpu}'s {peak / 1e12:.0f} TFLOP/s"
            )
        return Rate(self.cores * CORE_FLOPS, "reference: 40 GFLOP/s per core")

    def distances(self) -> float:
        """Pairs of vectors per second whose distances are counted."""
        found = self.find("separate", self.device)
        usual = DISTANCES[self.device]
        return usual if found is None else found.figures.get("distances_per_second", usual)

    def decoding(self) -> Rate:
        """Images per second that the cores of all machines decode."""
        found, cores = self.find("decode", "cpu"), self.cores * self.machines
        if found is None:
            return Rate(cores * DECODED, f"reference: {DECODED:,.0f} images/s per core")
        return Rate(cores * found.figures["per_core"], "measured: decode")

    def ingestion(self, drawn: bool) -> Rate:
        """Images per second of a source."""
        found = self.find("ingest", "cpu")
        if found is None:
            per_core = DRAWN if drawn else INGESTED
            return Rate(self.cores * per_core, f"reference: {per_core:,.0f} images/s per core")
        rate = found.figures["drawn_per_second"] if drawn else found.per_second
        return Rate(rate * self.cores / float(found.settings["workers"]), "measured: ingest")

    def clustering(self) -> Rate:
        """Operations per second of hierarchical k-means."""
        found = self.find("tokenize", "cpu")
        if found is None:
            return Rate(self.cores * CORE_FLOPS * CLUSTER_SHARE, "reference: 10 GFLOP/s per core")
        rate = found.figures["cluster_flops_per_second"] * self.cores / float(found.settings["workers"])
        return Rate(rate, f"measured: {found.subject}")

    def starting(self, stage: StageName) -> Rate:
        """How often per second a stage could do what does not grow with its data."""
        found = self.find("start", self.device)
        if found is None:
            return Rate(1 / START[stage], f"reference: {START[stage]:g} s")
        return Rate(1 / found.phases[stage], f"measured: {found.subject}")

    def coding(self) -> float:
        """Identities per second of what follows clustering."""
        found = self.find("tokenize", "cpu")
        return CODED if found is None else found.figures["rest_per_second"]


def describe_machine(gpus: int | None = None, gpu: str | None = None, cores: int | None = None) -> Machine:
    """This machine unless another is described: its GPUs, its cores, and the figures of `gif bench`.

    Figures count for the kind of GPU and the processor on which they were measured.
    """
    here = find_gpus()
    number = gpus if gpus is not None else (here.count if gpu is None else 1)
    name = gpu or here.name or USUAL_GPU
    if number and find_data_sheet(name) is None:
        whose = f"--gpu {name}" if gpu else f"the GPU here, {name}"
        raise GifError(f"{whose}: its data sheet is not known; name one like it with --gpu: {', '.join(PEAKS)}")
    is_this = not number or (name == here.name and number == here.count)
    usual = os.cpu_count() or 1 if is_this else min(number, GPUS_PER_MACHINE) * CORES_PER_GPU
    memory = here.memory if name == here.name else None
    return Machine(number, name, cores or usual, _figures_of(name), memory)


@dataclass(frozen=True)
class InstalledGpus:
    """The GPUs that PyTorch sees; all are taken to be like the first."""

    count: int = 0
    name: str | None = None
    memory: float | None = None


def find_gpus() -> InstalledGpus:
    """The GPUs of this machine."""
    count = torch.cuda.device_count()
    if not count:
        return InstalledGpus()
    return InstalledGpus(count, torch.cuda.get_device_name(0), torch.cuda.get_device_properties(0).total_memory)


def _figures_of(gpu: str) -> BenchmarkFigures:
    """What was measured on this kind of GPU and on the processor of this machine."""
    sheet, processor = find_data_sheet(gpu), describe_hardware(torch.device("cpu"))

    def counts(result: BenchmarkResult) -> bool:
        if result.device == "cpu":
            return result.hardware == processor
        return sheet is not None and find_data_sheet(result.hardware) == sheet

    return BenchmarkFigures(results={key: each for key, each in read_figures().results.items() if counts(each)})


def _scaled(near: BenchmarkResult, per_second: float, backbone: str, flops: float) -> Rate:
    """The measured rate, by the operations of the network if another was measured."""
    if near.settings["backbone"] == backbone:
        return Rate(per_second, f"measured: {near.subject}")
    measured = size_of_backbone(str(near.settings["backbone"]), int(near.settings["dimension"])).flops
    return Rate(per_second * measured / flops, f"scaled by operations from {near.subject}")
