"""`gif export hf` and `gif pull`, with a hub that runs on this machine."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gif_core.synthetic import draw_jpeg
from tests.hub_server import COMMIT, TOKEN, Hub, running_hub
from tests.recognition_store import fill_store

Gif = Callable[..., str]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sharing")
    fill_store(folder / "store")
    for person in range(2):
        (folder / f"{person}.jpg").write_bytes(draw_jpeg(0, person, 0))
    return folder


@pytest.fixture
def gif(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_gif: Gif) -> Gif:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIF_STORE", str(work / "store"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    return run_gif


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as hub:
        yield hub


def test_a_model_goes_from_store_to_store_through_a_folder(gif: Gif, work: Path, tmp_path: Path) -> None:
    printed = gif("export", "hf", "--model", "latest", "--out", "my-model", "--license", "mit")
    assert "my-model: iresnet_tiny" in printed
    assert "digests match" in gif("pull", "my-model", "--store", "other")
    faces = (str(work / "0.jpg"), str(work / "1.jpg"), "--json")
    theirs = json.loads(gif("verify", *faces, "--store", "other", "--model", "my-model"))
    ours = json.loads(gif("verify", *faces, "--model", "latest"))
    assert {**theirs, "model": ""} == {**ours, "model": ""}
    assert theirs["model"] != ours["model"]
    assert "is the champion now" in gif("promote", "--store", "other", "--model", "my-model")
    assert "exists and is not an empty folder" in gif("export", "hf", "--model", "latest", "--out", "my-model", code=2)


def test_pushing_without_a_token_is_refused_before_anything_is_written(gif: Gif, tmp_path: Path) -> None:
    printed = gif("export", "hf", "--model", "latest", "--out", "my-model", "--push", "me/my-model", code=2)
    assert "--push needs a token of the Hugging Face hub with write access: set HF_TOKEN" in printed
    assert "give an identifier such as mit" in gif("export", "hf", "--license", "do what you like", code=2)
    assert not (tmp_path / "my-model").exists()


@pytest.mark.slow
def test_a_model_goes_through_the_hub(gif: Gif, work: Path, tmp_path: Path, hub: Hub) -> None:
    """In processes of their own: the client reads the hub's address when it is imported."""
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_PROGRESS_BARS": "1"}

    def run(*arguments: str, **changed: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "flows.cli", *arguments]
        return subprocess.run(
            command, env=environment | changed, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    export = ("export", "hf", "--model", "latest", "--out", "pushed", "--push", "me/my-model")
    refused = run(*export, HF_TOKEN="hf_wrong")
    assert refused.returncode == 2
    assert "me/my-model cannot be pushed: " in refused.stderr
    assert "the folder pushed is complete" in refused.stderr
    pushed = run(*export[:4], "--out", "again", *export[6:])
    assert pushed.returncode == 0, pushed.stderr
    assert f"{hub.url}/me/my-model" in pushed.stdout
    assert hub.private == {"me/my-model": True}
    folder = {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()}
    assert {name: hub.repositories["me/my-model"].get(name) for name in folder} == folder
    pulled = run("pull", "me/my-model", "--store", "other")
    assert pulled.returncode == 0, pulled.stderr
    assert "digests match" in pulled.stdout
    assert "--model my-model" in pulled.stdout
    assert f"From me/my-model, commit {COMMIT}" in pulled.stdout
    assert f"pulled from me/my-model, commit {COMMIT}" in gif(
        "artifacts", "show", "training@my-model", "--store", "other"
    )
    exported = gif("export", "hf", "--store", "other", "--model", "my-model", "--out", "third")
    assert "third: iresnet_tiny" in exported
    assert f"me/my-model, commit {COMMIT}" in (tmp_path / "third" / "README.md").read_text(), "in the lineage"
    hub.sent.clear()
    hub.said["model.safetensors"] = 2**40
    large = run("pull", "me/my-model", "--store", "other", HF_HOME=str(tmp_path / "hf-2"))
    assert large.returncode == 2
    assert "model.safetensors has 1,099,511,627,776 bytes, and the limit is 8,589,934,592" in large.stderr
    assert hub.sent == []
    assert "same" in gif("verify", str(work / "0.jpg"), str(work / "0.jpg"), "--store", "other", "--model", "my-model")
    missing = run("pull", "me/nothing", "--store", "other")
    assert missing.returncode == 2
    assert "me/nothing cannot be downloaded: " in missing.stderr
    assert "is the name right" in missing.stderr


def test_mistakes_are_told(gif: Gif, tmp_path: Path) -> None:
    assert "neither a folder nor a hub id such as owner/name" in gif("pull", "nowhere", code=2)
    (tmp_path / "empty").mkdir()
    assert "empty is not a shared model: it has no config.json" in gif("pull", "empty", code=2)
    assert "--revision is for the hub" in gif("pull", "empty", "--revision", "main", code=2)
