"""Ingestion of a folder of image files, and of faces that are drawn."""

from pathlib import Path
from typing import Final

import torch

from gif_core.benchmarking.clock import seconds_of
from gif_core.benchmarking.inputs import draw_images
from gif_core.benchmarking.memory import watched_memory
from gif_core.benchmarking.setting import Setting
from gif_core.ingestion import describe_readers, ingest
from gif_core.readers import open_reader
from schemas.benchmarks import BenchmarkResult
from schemas.ingestion import FolderSource, IngestionConfig, Source, SyntheticSource

FILES: Final = 2000
IN_A_FOLDER: Final = 10
DRAWN: Final = 40
"""Identities of the synthetic source, of ten images each."""


def bench_ingest(setting: Setting) -> BenchmarkResult:
    """Images per second from files to checked shards, and those of a synthetic source."""
    workers = setting.config.execution.workers
    photos, drawn = setting.folder / "photos", SyntheticSource(identities=DRAWN, smallest=10, largest=10)
    size = _write_files(photos)
    with watched_memory(torch.device("cpu")) as memory:
        seconds = _seconds_of(FolderSource(path=str(photos)), setting.folder / "files", workers)
        drawing = _seconds_of(drawn, setting.folder / "drawn", workers)
    return setting.result(
        "ingest",
        "a folder of JPEG files",
        settings={"images": FILES, "workers": workers},
        per_second=FILES / seconds,
        peak_memory=memory.peak,
        phases={"files to shards": seconds / FILES, "a drawn face": drawing / (IN_A_FOLDER * DRAWN)},
        figures={
            "bytes_per_second": size / seconds,
            "bytes_per_image": size / FILES,
            "drawn_per_second": IN_A_FOLDER * DRAWN / drawing,
        },
    )


def _write_files(folder: Path) -> int:
    images = draw_images(FILES)
    for number, image in enumerate(images):
        person = folder / f"{number // IN_A_FOLDER:05d}"
        person.mkdir(parents=True, exist_ok=True)
        (person / f"{number}.jpg").write_bytes(image)
    return sum(map(len, images))


def _seconds_of(source: Source, folder: Path, workers: int) -> float:
    folder.mkdir()

    def run() -> None:
        reader = open_reader(source)
        describe_readers([reader])
        for _ in ingest(IngestionConfig(sources=(source,)), [reader], folder, workers=workers):
            pass

    return seconds_of(run, torch.device("cpu"))
