"""Checks before a stage starts that disk and memory suffice, instead of failing hours later."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gif_core.artifacts import Artifact, cache
from schemas.errors import GifError
from schemas.stages import StageName

RESERVE: Final = 256 * 2**20
"""Bytes of disk reserved for every stage's logs, plots and small tables."""
DISK: Final[Mapping[StageName, Mapping[StageName, float]]] = {
    "separation": {"embedding": 6.0},
    "tokenization": {"separation": 0.5},
    "training": {"ingestion": 0.1},
}
"""Bytes that a stage writes per byte of an input: code vectors and checkpoints with two optimizer moments each, codes
as DuckDB and as Parquet, checkpoints of a network whose size suits the number of faces."""
MEMORY: Final[Mapping[StageName, Mapping[StageName, float]]] = {
    "separation": {"embedding": 4.0},
    "tokenization": {"separation": 2.0},
}
"""The same for memory: vectors with optimizer moments; vectors and a shuffled copy. Other stages stream inputs."""


FETCHED: Final[Mapping[StageName, tuple[StageName, ...]]] = {
    "embedding": ("ingestion",),
    "separation": ("embedding",),
    "tokenization": ("separation",),
    "training": ("ingestion", "separation", "tokenization"),
}
"""Inputs that a stage reads (almost) entirely."""


class NoRoomError(GifError):
    """A stage would run out of disk space or memory."""


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that a stage needs at least."""

    disk: int
    memory: int


def needs_of(stage: StageName, inputs: Mapping[StageName, Artifact]) -> Need:
    """Estimate from the sizes of the inputs, plus the download of remote inputs that are not cached yet."""
    sizes = {name: artifact.manifest.size for name, artifact in inputs.items()}
    fetched = sum(_still_to_fetch(inputs[name]) for name in FETCHED.get(stage, ()) if name in inputs)
    disk, memory = (
        sum(times * sizes.get(name, 0) for name, times in factors.get(stage, {}).items()) for factors in (DISK, MEMORY)
    )
    return Need(RESERVE + fetched + int(disk), int(memory))


def _still_to_fetch(artifact: Artifact) -> int:
    if artifact.storage.local_path("") is not None:
        return 0
    return sum(file.size for file in artifact.manifest.files if not cache.has(file))


def check_room(stage: StageName, need: Need, folder: Path) -> None:
    """Raise NoRoomError if the disk of `folder` or this machine's memory is too small for the stage."""
    free = shutil.disk_usage(existing_folder(folder)).free
    if free < need.disk:
        raise NoRoomError(
            f"{stage} needs about {_gigabytes(need.disk)} of disk at {folder}, where {_gigabytes(free)} are free: make "
            "room ('gif artifacts gc' removes leftovers), or set GIF_STORE or GIF_CACHE to a larger disk"
        )
    available = available_memory()
    if available is not None and available < need.memory:
        raise NoRoomError(
            f"{stage} needs about {_gigabytes(need.memory)} of memory, of which {_gigabytes(available)} are available: "
            "end other programs, or run this stage on a larger machine ('gif run --only')"
        )


def available_memory() -> int | None:
    """Bytes that a new process could get without swapping, within this container's limit; None if unknown."""
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        return None
    limit = _number(Path("/sys/fs/cgroup/memory.max"))
    used = _number(Path("/sys/fs/cgroup/memory.current"))
    if limit is None or used is None:
        return free
    return min(free, max(0, limit - used + _reclaimable(Path("/sys/fs/cgroup/memory.stat"))))


def _reclaimable(statistics: Path) -> int:
    """Bytes of page cache, which the kernel frees when memory is needed."""
    try:
        lines = dict(line.split() for line in statistics.read_text().splitlines())
    except OSError:
        return 0
    return int(lines.get("inactive_file", 0)) + int(lines.get("active_file", 0))


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def existing_folder(folder: Path) -> Path:
    """The folder itself, or its nearest existing parent, which is on the same disk."""
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return folder


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
