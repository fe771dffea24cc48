"""A fresh user with MS1MV2 in RecordIO and insightface's `.bin` files in one folder types two commands.

The files are written here as insightface writes them, not by the project's own writers.
"""

import pickle
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

from gif_core.artifacts import ArtifactStore, run_artifacts
from gif_core.protocols import read_scores
from gif_core.synthetic import draw_jpeg
from schemas.files import REPORT_FILE, SCORES_FILE

Gif = Callable[..., str]
IDENTITIES, IMAGES = 24, 4
BENCHMARKS = {"lfw": "LFW", "cfp_fp": "CFP-FP", "agedb_30": "AgeDB-30", "calfw": "CALFW", "cplfw": "CPLFW"}
SMALL = (
    "embedding.model=tiny-clip",
    "embedding.pretrained=synthetic",
    "separation.epochs=5",
    "training.backbone=iresnet_tiny",
    "training.epochs=1",
    "training.batch_size=16",
    "training.precision=fp32",
    "training.warmup_steps=0",
    "evaluation.systems=[model]",
)
"""What makes the preset small enough for a test; a user with a GPU types none of it."""


@cache
def draw(identity: int, number: int) -> bytes:
    return draw_jpeg(0, identity, number)


def write_rec(folder: Path) -> None:
    """`train.rec`, `train.idx` and `property` in the layout of MS1MV2: image records, then a table of identities."""
    folder.mkdir()
    end = 1 + IDENTITIES * IMAGES
    records = [ranged(0, end, end + IDENTITIES)]
    for identity in range(IDENTITIES):
        for number in range(IMAGES):
            header = struct.pack("<IfQQ", 2, 0.0, len(records), 0) + struct.pack("<2f", identity, 0)
            records.append(header + draw(identity, number))
    records += [ranged(end + place, 1 + place * IMAGES, 1 + (place + 1) * IMAGES) for place in range(IDENTITIES)]
    offset = 0
    with (folder / "train.rec").open("wb") as rec, (folder / "train.idx").open("w") as idx:
        for key, record in enumerate(records):
            idx.write(f"{key}\t{offset}\n")
            framed = struct.pack("<II", 0xCED7230A, len(record)) + record + b"\0" * (-len(record) % 4)
            offset += rec.write(framed)
    (folder / "property").write_text(f"{IDENTITIES},112,112\n")


def ranged(key: int, first: int, end: int) -> bytes:
    return struct.pack("<IfQQ", 2, 0.0, key, 0) + struct.pack("<2f", first, end)


def write_bin(path: Path, seed: int) -> None:
    """Pairs as insightface pickles them: a list of encoded images, two for each pair, and whether each is the same."""
    rng = np.random.default_rng(seed)
    images: list[bytes] = []
    same = [place % 2 == 0 for place in range(40)]
    for is_same in same:
        left, right = 1000 * (1 + seed) + rng.choice(8, size=2, replace=False)
        images += [draw(int(left), 0), draw(int(left if is_same else right), 1)]
    path.write_bytes(pickle.dumps((images, same), protocol=pickle.HIGHEST_PROTOCOL))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_rec(folder / "ms1mv2")
    for seed, name in enumerate(BENCHMARKS):
        write_bin(folder / f"{name}.bin", seed)
    return folder


@pytest.fixture
def command(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The first command is `export GIF_DATA=…`; this is the second."""
    monkeypatch.setenv("GIF_DATA", str(data))
    monkeypatch.setenv("GIF_STORE", str(tmp_path / "store"))
    changes = [word for setting in SMALL for word in ("--set", setting)]
    return ("run", "--preset", "ms1mv2", *changes)


def test_the_sets_that_would_be_scored_are_named_before_the_run(command: tuple[str, ...], run_gif: Gif) -> None:
    shown = run_gif(*command, "--dry-run")
    assert all(title in shown for title in BENCHMARKS.values())


@pytest.mark.slow
@pytest.mark.usefixtures("prefect")
def test_two_commands_lead_from_recordio_to_a_report_with_scores(
    command: tuple[str, ...], tmp_path: Path, run_gif: Gif
) -> None:
    run_gif(*command)
    found = run_artifacts(ArtifactStore(str(tmp_path / "store")))
    assert found["tokenization"].manifest.metrics["identities"] == IDENTITIES
    scores = read_scores(found["evaluation"].path(SCORES_FILE))
    assert set(scores) == set(BENCHMARKS.values()), "and not IJB-B and IJB-C, which are not there"
    page = found["reporting"].path(REPORT_FILE).read_text()
    accuracies = {title: each["systems"]["model"]["accuracy"] for title, each in scores.items()}
    assert mean(accuracies.values()) > 0.6, "drawn faces of one identity are alike even to a network of one epoch"
    for title, accuracy in accuracies.items():
        assert f"<b>{accuracy:.2%}</b><span>{title}: Accuracy" in page
