"""The file in which the figures of this machine are kept, for `gif estimate`."""

import fcntl
import os
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from gif_core.artifacts import cache_folder
from schemas.benchmarks import BenchmarkFigures, BenchmarkResult
from schemas.errors import GifError

NAME: Final = "bench.json"


def figures_file() -> Path:
    """`bench.json` in the cache folder (`$GIF_CACHE`)."""
    return cache_folder() / NAME


def read_figures(path: Path | None = None) -> BenchmarkFigures:
    """The figures that were measured here; none before the first `gif bench`."""
    path = path or figures_file()
    if not path.is_file():
        return BenchmarkFigures()
    try:
        return BenchmarkFigures.model_validate_json(path.read_bytes())
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise GifError(f"{path} holds no figures of 'gif bench' ({problem}): delete it and measure again") from None


def keep_result(result: BenchmarkResult, path: Path | None = None) -> Path:
    """Add a result to the file, in place of an older one of the same subject, sizes and device."""
    path = path or figures_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of two benchmarks at once, neither forgets what the other has kept
        results = read_figures(path).results | {result.key: result}
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        partial.write_text(BenchmarkFigures(results=results).model_dump_json(indent=1), encoding="utf-8")
        partial.replace(path)
    return path
