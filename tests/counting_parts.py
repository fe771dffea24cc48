"""Lets a worker of Dask say which parts it computes and which are stored: dask worker … --preload this file."""

from gif_core.artifacts import PartStore
from gif_core.embedding.part_jobs import EmbedPart


def count_parts() -> None:
    """Say so before a part is computed, and after it is stored."""
    compute, save = EmbedPart.compute, PartStore.save

    def say_and_compute(job: EmbedPart, threads: int) -> bytes:
        print(f"begun part {job.key[:12]}", flush=True)  # noqa: T201
        return compute(job, threads)

    def save_and_say(parts: PartStore, key: str, content: bytes) -> str:
        name = save(parts, key, content)
        print(f"stored part {key[:12]}", flush=True)  # noqa: T201
        return name

    EmbedPart.compute, PartStore.save = say_and_compute, save_and_say  # type: ignore[method-assign]


if EmbedPart.compute.__module__ != __name__:  # Dask loads this file twice
    count_parts()
