"""The whole pipeline on a real S3 server: two runs at once, from another machine's cache, and what leaks of secrets."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from prefect.blocks.system import Secret
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import LogFilter
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.credentials import NAMES, CredentialsError, load_credentials
from gif_core.artifacts import ArtifactStore, check_artifacts, find_leftovers, list_runs
from gif_core.artifacts.leases import LEASES
from schemas.stages import STAGES

GIF = str(Path(sys.executable).with_name("gif"))
BLOCK = "gif-s3-of-the-tests"
pytestmark = pytest.mark.timeout(1200)  # three runs in processes of their own, on a machine that may be busy


class Finished(NamedTuple):
    """What three runs left: two at the same moment, then one with an empty cache."""

    store: ArtifactStore
    folder: Path
    printed: list[str]


def start(folder: Path, name: str, **environment: str) -> subprocess.Popen[bytes]:
    """A run that has its credentials from the block alone; what it prints goes to a file, for others run beside it."""
    inherited = {key: value for key, value in os.environ.items() if key not in NAMES}
    given = {"GIF_S3_BLOCK": BLOCK, "GIF_CACHE": str(folder / name), "GIF_LOG": str(folder / f"{name}.jsonl")}
    with terminal(folder, name).open("wb") as printed:
        return subprocess.Popen(
            [GIF, "run", "--config", str(folder / "run.yaml"), "--verbose"],
            env=inherited | given | environment | {"OMP_NUM_THREADS": "1"},
            stdout=printed,
            stderr=subprocess.STDOUT,
            cwd=folder,
        )


def terminal(folder: Path, name: str) -> Path:
    return folder / f"{name}.terminal"


@pytest.fixture(scope="module")
def finished(
    prefect_api: str, s3_server: str, tiny_settings: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> Finished:
    folder = tmp_path_factory.mktemp("runs")
    store = ArtifactStore(f"s3://gif/{folder.name}-{os.urandom(4).hex()}")
    settings = {**tiny_settings, "reporting": {"compare": False}, "store": store.storage.url}
    (folder / "run.yaml").write_text(yaml.safe_dump(settings))
    access = {name: os.environ[name] for name in NAMES if name in os.environ}
    with temporary_settings({PREFECT_API_URL: prefect_api}):
        Secret(value=json.dumps(access)).save(BLOCK, overwrite=True)
    runs = [start(folder, name, PREFECT_API_URL=prefect_api) for name in ("one", "two")]
    codes = [run.wait(600) for run in runs]
    codes.append(start(folder, "three", PREFECT_API_URL=prefect_api).wait(400))
    printed = [terminal(folder, name).read_text() for name in ("one", "two", "three")]
    assert codes == [0, 0, 0], printed
    return Finished(store, folder, printed)


def test_two_runs_of_one_configuration_at_once_compute_each_stage_once_and_both_succeed(finished: Finished) -> None:
    first, second = (record for record in list_runs(finished.store)[1:])
    assert {first.state, second.state} == {"completed"}
    for stage in STAGES:
        assert first.stages[stage].key == second.stages[stage].key
        actions = sorted(record.stages[stage].action for record in (first, second))
        assert actions == ["computed", "reused"], stage
    assert "is being computed by another run" in "".join(finished.printed[:2])
    assert list(finished.store.storage.find(LEASES)) == []
    assert [check.fault for check in check_artifacts(finished.store, finished.store.refs()) if check.fault] == []
    assert find_leftovers(finished.store, older_than=-60) == []


def test_a_run_with_an_empty_cache_reuses_every_stage(finished: Finished) -> None:
    third = list_runs(finished.store)[0]
    assert {done.action for done in third.stages.values()} == {"reused"}
    fetched = {path.name for path in (finished.folder / "three").glob("files/*/*/*")}
    assert "report.html" in fetched
    assert not [name for name in fetched if name.endswith(".arrow")], "a reused stage fetches nothing"


def test_runs_leave_no_draft_half_download_or_note_behind(finished: Finished) -> None:
    kinds = ("drafts", "partial", "uses")
    caches = [finished.folder / name for name in ("one", "two", "three")]
    assert [path for cache in caches for kind in kinds for path in (cache / kind).glob("*")] == []


def everything_written(finished: Finished, prefect_home: Path) -> Iterator[tuple[str, bytes]]:
    """All that a stranger may get to see of the runs, by name."""
    for file in finished.store.storage.find(""):
        yield file.path, finished.store.storage.read(file.path)
    for path in [*finished.folder.rglob("*"), *prefect_home.rglob("*")]:
        if path.is_file():
            yield str(path), path.read_bytes()
    for number, text in enumerate(finished.printed):
        yield f"terminal {number}", text.encode()
    with get_client(sync_client=True) as client:
        yield "flow runs", "".join(run.model_dump_json() for run in client.read_flow_runs()).encode()
        yield "task runs", "".join(run.model_dump_json() for run in client.read_task_runs()).encode()
        yield "artifacts", "".join(found.model_dump_json() for found in client.read_artifacts()).encode()
        yield "logs", "".join(line.model_dump_json() for line in client.read_logs(LogFilter())).encode()


def test_no_credential_is_in_anything_that_was_written(finished: Finished, prefect: str, prefect_home: Path) -> None:
    secrets = [os.environ[name].encode() for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")]
    written = dict(everything_written(finished, prefect_home))
    assert [name for name, content in written.items() if any(secret in content for secret in secrets)] == []
    kinds = ("manifest.json", "runs/", ".jsonl", "prefect.db", "server.log", "flow runs", "logs", "artifacts")
    assert [kind for kind in kinds if not any(kind in name for name in written)] == []
    assert all(written[name] for name in ("flow runs", "task runs", "artifacts", "logs"))


def test_a_block_that_is_missing_or_wrong_is_told_without_its_content(
    prefect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIF_S3_BLOCK", "no-such-block")
    with pytest.raises(CredentialsError, match="no Secret block 'no-such-block'"):
        load_credentials()
    load_credentials("artifacts")
    for content, words in (
        ("hush", "is not JSON"),
        ('{"AWS_SECRET": "hush"}', "has AWS_SECRET;"),
        ("[1]", "a JSON object"),
    ):
        Secret(value=content).save("wrong-block", overwrite=True)
        monkeypatch.setenv("GIF_S3_BLOCK", "wrong-block")
        with pytest.raises(CredentialsError, match=words) as told:
            load_credentials()
        assert "hush" not in str(told.value)


def test_the_cache_is_shown_and_cleared(
    finished: Finished, run_gif: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIF_CACHE", str(finished.folder / "three"))
    assert "files" in run_gif("artifacts", "cache")
    assert "0 files, 0 bytes of" in run_gif("artifacts", "cache", "--clear")
