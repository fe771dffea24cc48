"""`gif doctor` finds what is wrong: each kind of failure with a real part that fails so."""

import os
from collections.abc import Callable
from pathlib import Path

import fsspec
import httpx
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.cli.checks import Check, check_gpu, check_memory, check_room, check_store, check_weights
from flows.cli.machine_checks import check_machines
from flows.cli.server_checks import check_server
from flows.cli.version_checks import check_versions
from gif_core.artifacts import ArtifactStore
from schemas.embedding import EmbeddingConfig
from schemas.execution import ExecutionConfig

Gif = Callable[..., str]


class CarelessFileSystem(MemoryFileSystem):
    """Object storage that ignores `If-None-Match`."""

    protocol = "careless"
    store: dict[str, object] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: object) -> None:
        super().pipe_file(path, value, mode="overwrite")


def one(checks: list[Check], name: str) -> Check:
    return next(check for check in checks if check.name == name)


def test_a_sound_machine_passes_and_nothing_stays_in_the_store(
    run_gif: Gif, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    printed = run_gif("doctor", "demo", "--set", f"store={tmp_path / 'store'}")
    assert "create only once" in printed
    assert "fail" not in printed
    assert list(ArtifactStore(str(tmp_path / "store")).storage.find("")) == []


def test_a_store_that_cannot_be_written_to_fails_with_exit_code_1(run_gif: Gif, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file where a folder should be")
    printed = run_gif("doctor", "demo", "--set", f"store={tmp_path / 'store'}", code=1)
    assert "worked: nothing; then" in printed
    assert "GIF_STORE" in printed


def test_a_store_that_overwrites_what_must_be_created_once_is_found_out() -> None:
    fsspec.register_implementation("careless", CarelessFileSystem, clobber=True)
    [check] = check_store("careless://bucket/place")
    assert check.state == "fail"
    assert "If-None-Match" in check.found
    assert CarelessFileSystem.store == {}, "nothing is left"
    assert [check.state for check in check_store("memory://bucket/place")] == ["ok"], "the same without that fault"


def test_a_real_s3_server_passes_and_a_wrong_user_or_a_missing_server_fails(
    s3_url: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    [check] = check_store(s3_url)
    assert check.state == "ok", check.found
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody-else")
    fsspec.filesystem("s3").clear_instance_cache()
    [check] = check_store(s3_url)
    assert check.state == "fail"
    assert "AWS_ACCESS_KEY_ID" in check.advice
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    fsspec.filesystem("s3").clear_instance_cache()
    [check] = check_store(s3_url)
    assert check.state == "fail"
    assert "whether the server runs" in check.advice


def test_packages_that_are_missing_broken_or_others_than_tested_are_told(tmp_path: Path) -> None:
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("duckdb==0.1\n# others are not named\n")
    checks = list(check_versions(constraints))
    assert one(checks, "duckdb").state == "warn"
    assert "tested with 0.1" in one(checks, "duckdb").found
    assert one(checks, "Python").state == "ok"
    assert [check.state for check in check_versions()] == ["ok", "ok"], "the versions of the tests themselves"


def test_weights_that_do_not_exist_or_are_damaged_fail(tmp_path: Path) -> None:
    damaged = tmp_path / "weights.safetensors"
    damaged.write_bytes(b"no weights")
    shipped = EmbeddingConfig(model="tiny-clip", pretrained="synthetic")
    assert check_weights(shipped).state == "ok"
    for pretrained in (str(damaged), "a-tag-that-nobody-made"):
        assert check_weights(shipped.model_copy(update={"pretrained": pretrained})).state == "fail"


def test_a_disk_or_a_memory_with_too_little_room_is_told(tmp_path: Path) -> None:
    assert check_room("store", tmp_path / "not" / "yet", least=0, good=0).state == "ok"
    assert check_room("store", tmp_path, least=0, good=1e18).state == "warn"
    assert check_room("store", tmp_path, least=1e18, good=1e18).state == "fail"
    assert check_memory(least=0, good=0).state == "ok"
    assert check_memory(least=1e18, good=1e18).state == "fail"


@pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="there is a GPU")  # noqa: PTH110
def test_a_gpu_that_is_asked_for_and_not_there_fails() -> None:
    assert check_gpu("cuda").state == "fail"
    assert check_gpu("auto").state == "warn"
    assert check_gpu("cpu").state == "ok"


def test_a_server_that_does_not_answer_fails(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{port}/api"
    monkeypatch.setenv("PREFECT_API_URL", url)
    monkeypatch.setenv("PREFECT_CLIENT_MAX_RETRIES", "0")
    with temporary_settings({PREFECT_API_URL: url}):
        [check] = check_server()
    assert check.state == "fail"
    assert "does not answer" in check.found


def test_a_server_without_worker_is_told_from_one_with_everything(
    deployed: str, start_worker: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", deployed)
    with temporary_settings({PREFECT_API_URL: deployed}):
        forget_workers(deployed)
        checks = list(check_server())
        assert one(checks, "worker").state == "warn"
        assert one(checks, "scheduler").state == "ok"
        assert {one(checks, name).state for name in ("trainings", "dead runs", "deployments")} == {"ok"}
        with start_worker(tmp_path):  # type: ignore[attr-defined]
            assert one(list(check_server()), "worker").state == "ok"


def forget_workers(api: str) -> None:
    """The server takes workers of earlier tests for online until their heartbeats are overdue."""
    workers = f"{api}/work_pools/gif/workers"
    for worker in httpx.post(f"{workers}/filter", json={}).json():
        httpx.delete(f"{workers}/{worker['name']}").raise_for_status()


@pytest.mark.parametrize(
    ("execution", "state", "found"),
    [
        ({}, "fail", "execution.rendezvous is not set"),
        ({"rendezvous": "first"}, "fail", "must be host:port"),
        ({"rendezvous": f"{'x' * 64}:29500"}, "fail", "cannot be reached from this machine"),
        ({"rendezvous": "127.0.0.1:29500"}, "warn", "is a loopback address"),
    ],
)
def test_machines_that_could_not_meet_are_found_out(execution: dict[str, str], state: str, found: str) -> None:
    [check] = check_machines(ExecutionConfig(nodes="2", **execution))
    assert check.state == state
    assert found in check.found
    assert check.advice


def test_one_machine_has_nobody_to_meet() -> None:
    assert list(check_machines(ExecutionConfig())) == []
