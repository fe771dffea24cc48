"""Files that a key depends on are described once in a run, however many stages and tries ask."""

import os
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.pipeline import gif
from gif_core.embedding.encoders import weights_file
from gif_core.protocols.sets import write_synthetic_bin
from gif_core.synthetic import draw_jpeg
from gif_core.writers import ExportInfo, Face, write_recordio
from schemas.embedding import EmbeddingConfig
from schemas.loading import load_config
from schemas.run import RunConfig

pytestmark = pytest.mark.usefixtures("prefect")
DESCRIBING = {"describe", "describe_set", "describe_weights", "sha256_of"}
"""Functions below which a file is opened for a key; any other open is for the work itself."""
LONG_AGO = 1_700_000_000


@pytest.fixture
def opened() -> Iterator[Counter[str]]:
    """How often each file is opened to be described, by its name."""
    counts: Counter[str] = Counter()
    counting = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if counting and event == "open" and isinstance(arguments[0], str | Path):
            callers = [frame.f_code.co_name for frame, _ in traceback.walk_stack(sys._getframe())]
            what = "describe" if DESCRIBING.intersection(callers) else "work"
            counts[f"{what} {Path(arguments[0]).name}"] += 1

    sys.addaudithook(hook)
    yield counts
    counting = False


@pytest.fixture
def config(tiny: RunConfig, tmp_path: Path) -> RunConfig:
    """A run whose source, weights and set of evaluation are files, none of them just written."""
    faces = [Face(person, draw_jpeg(0, person, sample)) for person in range(30) for sample in range(4)]
    list(write_recordio(faces, ExportInfo([str(person) for person in range(30)], len(faces)), tmp_path))
    shipped = weights_file(EmbeddingConfig(model="tiny-clip", pretrained="synthetic"))
    assert shipped
    (tmp_path / "weights.safetensors").write_bytes(shipped.read_bytes())
    write_synthetic_bin(tmp_path, identities=10, pairs=40, seed=0).rename(tmp_path / "pairs.bin")
    for path in tmp_path.iterdir():
        os.utime(path, (LONG_AGO, LONG_AGO))
    return load_config(
        tiny,
        [
            f"ingestion.sources=[{{kind: recordio, path: {tmp_path}/train.rec}}]",
            f"embedding.pretrained={tmp_path}/weights.safetensors",
            f"evaluation.sets=[{{kind: held_out}}, {{kind: bin, path: {tmp_path}/pairs.bin}}]",
        ],
    )


FILES = ("train.rec", "train.idx", "weights.safetensors", "pairs.bin")


def test_a_run_describes_sources_weights_and_sets_once(config: RunConfig, opened: Counter[str]) -> None:
    record = gif(config)
    assert {done.action for done in record.stages.values()} == {"computed"}
    assert all(opened[f"work {name}"] for name in FILES), "the work reads what was described"
    assert {name: opened[f"describe {name}"] for name in FILES} == dict.fromkeys(FILES, 1)
