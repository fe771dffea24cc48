"""What every benchmark is given, and what every result says about the machine."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch

from gif_core.embedding import encoders
from gif_core.embedding.encoders import build_encoder
from gif_core.runtime import describe_environment
from schemas.benchmarks import BenchmarkName, BenchmarkResult
from schemas.embedding import EmbeddingConfig
from schemas.errors import GifError
from schemas.run import RunConfig

CPU_BATCH: Final = 32
"""Largest batch of a training step on a CPU, unless another is asked for: larger ones only take longer."""
USUAL_DIMENSION: Final = 512


@dataclass(frozen=True)
class Setting:
    """A benchmark's settings: those of a run, and how to measure them."""

    config: RunConfig
    device: torch.device
    folder: Path
    """For temporary files."""
    seconds: float
    """How long the main part is measured."""
    identities: int
    batch: int | None = None
    """Images of a step; None: those of the configuration, on a CPU at most 32."""
    command: tuple[str, ...] = ()
    """The command `gif`, which `start` runs."""

    @property
    def batch_size(self) -> int:
        """Images of a training step."""
        usual = self.config.training.batch_size
        return self.batch or (min(usual, CPU_BATCH) if self.device.type == "cpu" else usual)

    def result(self, name: BenchmarkName, subject: str, **measured: Any) -> BenchmarkResult:
        """The result, with what it says about the machine."""
        return BenchmarkResult(
            name=name,
            subject=subject,
            device=self.device.type,
            hardware=describe_hardware(self.device),
            measured_at=datetime.now(UTC),
            **measured,
        )


def describe_hardware(device: torch.device) -> str:
    """The GPU's name, or the cores and the name of the processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    machine = describe_environment()
    return f"{machine.cores} cores, {machine.cpu}"


def code_dimension(config: RunConfig) -> int:
    """Dimensions of code vectors and features: those of the settings, or of the encoder."""
    return config.separation.dimension or encoder_dimension(config.embedding)


def encoder_dimension(config: EmbeddingConfig) -> int:
    """Dimensions of an encoder's features; its weights are not needed."""
    if config.encoder == "backbone":
        return USUAL_DIMENSION
    if config.encoder == "open_clip":
        return _dimension_of_clip(config.model)
    encoder = build_encoder(without_weights(config), torch.device("cpu"))
    size = encoder.preprocessing.size
    with torch.inference_mode():
        return int(encoder.tower(torch.zeros(1, 3, size, size)).shape[1])


def _dimension_of_clip(model: str) -> int:
    """From the file that describes the architecture: importing open_clip takes seconds."""
    library = find_spec("open_clip")
    places = [Path(folder, "model_configs") for folder in (library and library.submodule_search_locations) or ()]
    for folder in (Path(encoders.__path__[0]), *places):
        path = folder / f"{model.replace('/', '-')}.json"
        if path.is_file():
            return int(json.loads(path.read_text("utf-8"))["embed_dim"])
    raise GifError(f"embedding.model={model}: open_clip has no such architecture")


def without_weights(config: EmbeddingConfig) -> EmbeddingConfig:
    """The same architecture with random weights, which are as fast."""
    return config if config.encoder == "backbone" else config.model_copy(update={"pretrained": "random"})
