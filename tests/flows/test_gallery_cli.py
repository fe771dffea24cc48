"""`gif enroll`, `gif identify --gallery` and `gif gallery` on a small store that is written by hand."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gif_core.synthetic import draw_jpeg
from tests.recognition_store import fill_store

Gif = Callable[..., str]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gallery")
    fill_store(folder / "store")
    for person, label in enumerate(("ANNA", "BEN")):
        (folder / "photos" / label).mkdir(parents=True)
        (folder / "photos" / label / "0.jpg").write_bytes(draw_jpeg(0, 500 + person, 0))
    return folder


@pytest.fixture
def gif(work: Path, monkeypatch: pytest.MonkeyPatch, run_gif: Gif) -> Gif:
    monkeypatch.chdir(work)
    monkeypatch.setenv("GIF_STORE", str(work / "store"))
    return run_gif


def test_people_are_enrolled_identified_listed_exported_and_removed(gif: Gif, work: Path) -> None:
    assert "there are no galleries yet" in gif("gallery", "ls")
    printed = gif("enroll", "photos", "--gallery", "staff", "--model", "latest")
    assert "staff, version 1: 2 people, 2 images; 2 new" in printed
    assert "which at most 1.0% of 18 images of 3 unknown people reach (FPIR; held-out identities" in printed
    again = gif("enroll", "photos", "--gallery", "staff")
    assert "staff, version 1: 2 people, 2 images; 0 new, 2 were enrolled before" in again
    answer = json.loads(gif("identify", "photos/ANNA/0.jpg", "--gallery", "staff", "--json"))
    assert answer["known"]
    assert [each["label"] for each in answer["candidates"]] == ["ANNA", "BEN"]
    printed = gif("identify", "photos/BEN/0.jpg", "--gallery", "staff")
    assert "BEN" in printed
    assert "unknown people reach" in printed
    assert "staff" in gif("gallery", "ls")
    shown = gif("gallery", "show", "staff")
    assert "ANNA" in shown
    assert "enrolled 2 images of 2 identities" in shown
    gif("gallery", "export", "staff", "--out", "staff.parquet")
    assert pq.read_table(work / "staff.parquet")["label"].to_pylist() == ["ANNA", "BEN"]
    removed = gif("gallery", "remove", "staff", "ANNA")
    assert "ANNA is removed, and the template of 1 image\n" in removed
    assert "versions of objects that S3 may keep" in removed
    assert "ANNA" not in gif("identify", "photos/ANNA/0.jpg", "--gallery", "staff", "--json").partition("candidates")[2]


def test_mistakes_are_told(gif: Gif) -> None:
    assert "there is no gallery 'nobody'" in gif("identify", "photos/ANNA/0.jpg", "--gallery", "nobody", code=2)
    assert "--model is not for --gallery" in gif(
        "identify", "photos/ANNA/0.jpg", "--gallery", "staff", "--model", "latest", code=2
    )
    assert "a lower-case word" in gif("enroll", "photos", "--gallery", "My Staff", code=2)
    assert "there is no folder nowhere" in gif("enroll", "nowhere", "--gallery", "staff", "--model", "latest", code=2)
