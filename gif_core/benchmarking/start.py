"""What every stage takes beside the work that grows with its data: imports, opening networks, publishing.

It is measured by a run of the pipeline on a few drawn images, in a process of its own.
"""

import subprocess
from pathlib import Path
from typing import Final

import torch
import yaml

from gif_core.artifacts import ArtifactStore, list_runs
from gif_core.benchmarking.memory import watched_memory
from gif_core.benchmarking.setting import Setting, without_weights
from schemas.benchmarks import BenchmarkResult
from schemas.errors import GifError
from schemas.evaluation import HeldOutSet, IdentificationConfig
from schemas.execution import ExecutionConfig
from schemas.ingestion import IngestionConfig, SyntheticSource
from schemas.run import TUNING, RunConfig
from schemas.stages import STAGES, StageName

FACES: Final = SyntheticSource(identities=16, smallest=2, largest=2)
HELD_OUT: Final = 0.25
BATCH: Final = 8
NOT_NEEDED: Final = ("batch_size_per_process", "start_from", *TUNING)
"""Settings of training that need several processes or earlier artifacts."""
FEW: Final = 4
"""Pairs and probe images."""


def bench_start(setting: Setting) -> BenchmarkResult:
    """Seconds of every stage of the smallest run."""
    config = smallest_run(setting)
    with watched_memory(torch.device("cpu")) as memory:
        seconds = _seconds_of_stages(config, setting)
    given, encoder = config.training, config.embedding
    return setting.result(
        "start",
        f"a run of {given.backbone} and {encoder.model}",
        settings={"backbone": given.backbone, "encoder": encoder.encoder, "model": encoder.model},
        items="runs",
        per_second=1 / sum(seconds.values()),
        peak_memory=memory.peak,
        phases={stage: seconds[stage] for stage in STAGES},
    )


def smallest_run(setting: Setting) -> RunConfig:
    """The networks, the head and the systems of the settings, with hardly any work for them."""
    given = setting.config
    few = IdentificationConfig(images=FEW) if given.evaluation.identification else None
    few_steps = {"epochs": 1, "warmup_steps": 0, "batch_size": BATCH, "accumulation": 1}
    changes = {
        "preset": None,
        "store": str(setting.folder / "store"),
        "execution": ExecutionConfig(device=setting.device.type, workers=given.execution.workers),
        "ingestion": IngestionConfig(sources=(FACES,), held_out=HELD_OUT),
        "embedding": without_weights(given.embedding),
        "separation": {"epochs": 1, "target_gap": None, "batch_size": BATCH, "extends": None},
        "tokenization": {"extends": None},
        "training": few_steps | dict.fromkeys(NOT_NEEDED),
        "evaluation": {"sets": (HeldOutSet(),), "pairs": FEW, "folds": 2, "identification": few},
    }
    parts = {
        name: getattr(given, name).model_copy(update=each) if isinstance(each, dict) else each
        for name, each in changes.items()
    }
    return given.model_copy(update=parts)


def _seconds_of_stages(config: RunConfig, setting: Setting) -> dict[StageName, float]:
    path = setting.folder / "run.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    _make_run(setting.command, path)
    stages = list_runs(ArtifactStore(config.store))[0].stages
    return {stage: done.seconds for stage, done in stages.items()}


def _make_run(command: tuple[str, ...], path: Path) -> None:
    done = subprocess.run([*command, "run", "--config", str(path)], capture_output=True, text=True)
    if done.returncode:
        raise GifError(f"the run of {FACES.identities} identities, which is measured, failed:\n{done.stderr[-2000:]}")
