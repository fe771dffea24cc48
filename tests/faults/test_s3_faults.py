"""The S3 server goes away, is slow, errs, and loses answers: nothing is lost, and the message says what happened."""

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from flows.stages import Run
from gif_core.artifacts import (
    ArtifactStore,
    StoreAwayError,
    StoreError,
    cache_folder,
    check_artifacts,
    find_leftovers,
    list_runs,
    only_one,
    remove_leftovers,
)
from gif_core.artifacts import remote as remote_module
from gif_core.artifacts.errors import StoreRefusedError
from schemas.artifacts import ArtifactRef
from schemas.run import RunConfig
from schemas.stages import STAGES
from tests.conftest import bucket_exists, ports_of_weed, weed_server
from tests.faults.conftest import SMALL_PART, Act
from tests.faults.proxy import Fate, FaultyProxy

KEY = "a" * 64


def publish(store: ArtifactStore, content: bytes, key: str = KEY) -> ArtifactRef:
    with store.draft(store.ref("training", key), {}, {}) as draft:
        (draft.folder / "backbone").write_bytes(content)
        (draft.folder / "model.json").write_text("{}")
        return store.publish(draft)


def once(method: str, words: str, fate: Fate, *, number: int = 1) -> Callable[[str, str], Fate]:
    """That fate for the `number`-th request of this kind, and no other."""
    seen = 0

    def decide(asked: str, path: str) -> Fate:
        nonlocal seen
        seen += asked == method and words in path
        return fate if asked == method and words in path and seen == number else "pass"

    return decide


def forget_downloads() -> None:
    """Let the next read come from the store."""
    for copy in cache_folder().glob("files/*/*/*"):
        copy.unlink()


def nothing_stays() -> bool:
    return not [path for kind in ("drafts", "partial") for path in (cache_folder() / kind).glob("*")]


def survives_being_away(
    remote: ArtifactStore, proxy: FaultyProxy, large: bytes, caplog: pytest.LogCaptureFixture, seconds: float
) -> None:
    proxy.seconds_away = seconds
    proxy.decide = once("PUT", "partNumber=", "stop", number=3)
    ref = publish(remote, large)
    assert proxy.stops == 1
    assert "the store does not answer: trying again in" in caplog.text
    assert [check.fault for check in check_artifacts(remote, [ref])] == [None, None]

    forget_downloads()
    proxy.decide = once("GET", "/backbone", "stop", number=3)
    assert remote.open(ref).path("backbone").read_bytes() == large
    assert proxy.stops == 2
    assert nothing_stays()
    assert list(remote.storage.find_uploads()) == []


def test_a_server_that_stops_in_the_middle_of_an_upload_and_of_a_download_is_waited_for(
    remote: ArtifactStore, proxy: FaultyProxy, large: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    survives_being_away(remote, proxy, large, caplog, 3)


@pytest.mark.slow
def test_a_server_that_stops_for_half_a_minute_is_waited_for(
    remote: ArtifactStore, proxy: FaultyProxy, large: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    survives_being_away(remote, proxy, large, caplog, 30)


@pytest.mark.slow
def test_a_server_that_is_killed_in_the_middle_of_an_upload_and_started_again_has_lost_nothing(
    s3_server: str, tmp_path: Path, large: bytes, monkeypatch: pytest.MonkeyPatch, wait: Callable[..., None]
) -> None:
    monkeypatch.setattr(remote_module, "PART_BYTES", SMALL_PART)
    monkeypatch.setenv("GIF_CACHE", str(tmp_path / "cache"))
    data, ports = tmp_path / "s3", ports_of_weed()
    data.mkdir()
    endpoint = f"http://127.0.0.1:{ports['s3']}"
    with ExitStack() as servers, FaultyProxy(endpoint).running() as proxy:
        first = servers.enter_context(weed_server(data, ports))
        wait(lambda: bucket_exists(endpoint), seconds=60, what="the server's bucket", log=data / "weed.log")
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        store = ArtifactStore("s3://gif/x")
        before = publish(store, b"before", "b" * 64)

        def kill_at_the_third_part(method: str, path: str) -> Fate:
            if method == "PUT" and "partNumber=3" in path and first.poll() is None:
                os.killpg(first.pid, signal.SIGKILL)
                first.wait()
                servers.enter_context(weed_server(data, ports))
            return "pass"

        proxy.decide = kill_at_the_third_part
        refs = [before, publish(store, large)]
        assert first.poll() == -signal.SIGKILL
        forget_downloads()
        assert [check.fault for check in check_artifacts(store, refs) if check.fault] == []
        assert store.open(refs[1]).path("backbone").read_bytes() == large
        assert nothing_stays()
        assert list(store.storage.find_uploads()) == []


def test_errors_at_a_tenth_of_all_requests_cost_time_and_nothing_else(
    remote: ArtifactStore, proxy: FaultyProxy, large: bytes
) -> None:
    dice = random.Random(7)

    def decide(method: str, path: str) -> Fate:
        fates: list[Fate] = ["500", "503"]
        return dice.choice(fates) if dice.random() < 0.1 else "pass"

    proxy.decide = decide
    refs = [publish(remote, large if key == "0" else b"small", key * 64) for key in "0123456789abcdef"]
    forget_downloads()
    assert remote.open(refs[0]).path("backbone").read_bytes() == large
    assert remote.refs() == refs
    assert [check.fault for check in check_artifacts(remote, refs) if check.fault] == []
    assert len(proxy.seen) > 200
    proxy.decide = lambda method, path: "pass"
    assert nothing_stays()
    assert list(remote.storage.find_uploads()) == []
    assert len(list(remote.storage.find("training"))) == 3 * len(refs), "one attempt of each, and its manifest"


def test_connections_that_break_in_the_middle_of_an_answer_are_made_anew(
    remote: ArtifactStore, proxy: FaultyProxy, large: bytes
) -> None:
    dice = random.Random(3)
    ref = publish(remote, large)
    forget_downloads()
    proxy.decide = lambda method, path: "cut" if method == "GET" and dice.random() < 0.3 else "pass"
    assert remote.open(ref).path("backbone").read_bytes() == large
    assert nothing_stays()


def test_a_slow_server_is_no_error(
    s3_url: str, proxy: FaultyProxy, large: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A file takes longer to come than the longest silence that is borne: some of it comes all the time."""
    options = {**remote_module.S3_OPTIONS["config_kwargs"], "read_timeout": 4}
    monkeypatch.setitem(remote_module.S3_OPTIONS, "config_kwargs", options)
    store, content = ArtifactStore(s3_url), large[: 2**19]
    ref = publish(store, content)
    forget_downloads()
    proxy.delay, proxy.seconds_per_block = 0.05, 0.6
    assert store.open(ref).path("backbone").read_bytes() == content
    assert "trying again" not in caplog.text


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("PUT", "manifest.json"),
        ("PUT", "partNumber=2"),
        ("POST", "uploads"),
        ("POST", "uploadId"),
        ("PUT", "model.json"),
    ],
)
def test_a_request_that_was_carried_out_but_whose_answer_was_lost_is_not_taken_for_another_writers(
    remote: ArtifactStore, proxy: FaultyProxy, large: bytes, method: str, words: str
) -> None:
    proxy.decide = once(method, words, "lost")
    ref = publish(remote, large)
    proxy.decide = lambda method, path: "pass"
    assert remote.find("training", KEY) == ref
    assert [check.fault for check in check_artifacts(remote, [ref])] == [None, None]


def test_what_was_created_although_the_answer_was_lost_is_ours_and_what_others_created_is_theirs(
    remote: ArtifactStore, proxy: FaultyProxy
) -> None:
    proxy.decide = once("PUT", "mine", "lost")
    remote.storage.create("mine", b"one")
    assert remote.storage.read("mine") == b"one"
    remote.storage.replace("theirs", b"two")
    proxy.decide = once("PUT", "theirs", "503")
    with pytest.raises(FileExistsError):
        remote.storage.create("theirs", b"three")
    assert remote.storage.read("theirs") == b"two"


def test_a_server_that_stays_away_is_told_with_what_to_do_and_the_next_run_completes(
    s3_url: str, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch, large: bytes
) -> None:
    monkeypatch.setenv("GIF_STORE_PATIENCE", "1")
    impatient = ArtifactStore(s3_url)
    proxy.decide = once("PUT", "/backbone", "stop")
    proxy.seconds_away = 8
    with pytest.raises(StoreAwayError, match=r"has not answered for \d+ s.*run the same command again"):
        publish(impatient, large)
    assert nothing_stays()
    monkeypatch.delenv("GIF_STORE_PATIENCE")
    patient = ArtifactStore(s3_url)
    ref = publish(patient, large)
    assert [check.fault for check in check_artifacts(patient, [ref])] == [None, None]
    remove_leftovers(patient, find_leftovers(patient, older_than=-60))
    assert [check.fault for check in check_artifacts(patient, [ref])] == [None, None]


def test_credentials_in_the_servers_address_are_refused_and_neither_logged_nor_told_nor_stored(
    remote: ArtifactStore, tiny: RunConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    address = "http://me:s3cret-w0rd@127.0.0.1"

    def fail(*_: object, **__: object) -> None:
        raise ConnectionError(f"{address} does not answer")

    monkeypatch.setattr(remote.storage.patience, "seconds", 0.5)
    with pytest.raises(StoreAwayError, match=r"http://…@127\.0\.0\.1 does not answer"):
        remote.storage.patience(fail)
    assert "trying again in" in caplog.text
    assert "s3cret" not in caplog.text
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    with pytest.raises(StoreError, match="AWS_ENDPOINT_URL contains credentials: pass them in AWS_ACCESS_KEY_ID"):
        ArtifactStore(remote.storage.url)
    monkeypatch.setattr(Run, "run_stage", fail)
    with pytest.raises(ConnectionError):
        Run.begin(ArtifactStore(tiny.store), tiny).go_through(tiny, STAGES)
    assert list_runs(ArtifactStore(tiny.store))[0].error == "ConnectionError: http://…@127.0.0.1 does not answer"


def test_a_wrong_bucket_and_wrong_credentials_are_told_at_once(
    remote: ArtifactStore, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nowhere = ArtifactStore("s3://no-such-bucket/x")
    with pytest.raises(StoreRefusedError, match="there is no such bucket; create it"):
        nowhere.storage.read("runs/x.json")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"{proxy.url}/")
    refused = ArtifactStore(remote.storage.url)
    before = len(proxy.seen)
    with pytest.raises(StoreRefusedError, match=r"refuses access .*check AWS_ACCESS_KEY_ID"):
        refused.storage.read("runs/x.json")
    assert len(proxy.seen) == before + 1
    assert "trying again" not in caplog.text


def hold_part(number: int) -> Callable[[str, str], Fate]:
    return lambda method, path: "hold" if method == "PUT" and f"partNumber={number}" in path else "pass"


def test_uploads_that_a_killed_process_left_are_swept(remote: ArtifactStore, proxy: FaultyProxy, act: Act) -> None:
    proxy.decide = hold_part(2)
    uploading = act("publish", remote, 40_000_000)
    assert proxy.held.wait(60)
    assert find_leftovers(remote, older_than=-60) == [], "it is at it"
    uploading.kill()
    uploading.wait()
    leftovers = find_leftovers(remote)
    assert [leftover.path.rpartition("/")[2] for leftover in leftovers] == ["model"]
    remove_leftovers(remote, leftovers)
    assert list(remote.storage.find_uploads()) == []
    assert nothing_stays()


def test_the_upload_of_a_checkpoint_is_swept_when_its_process_is_killed_and_never_while_it_holds_a_lease(
    remote: ArtifactStore, proxy: FaultyProxy, act: Act, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    proxy.decide = hold_part(2)
    uploading = act("checkpoint", remote, 40_000_000)
    assert proxy.held.wait(60)
    with only_one(remote.storage, remote.ref("training", KEY)):
        assert find_leftovers(remote, older_than=-60) == []
    uploading.kill()
    uploading.wait()
    assert not nothing_stays()
    assert list(tmp_path.glob("gif-*")) == []
    ref = publish(remote, b"next")
    assert nothing_stays(), "the next file on its way takes the place of what the dead left"
    leftovers = find_leftovers(remote, older_than=-60)
    assert [leftover.path.split("/")[0] for leftover in leftovers] == ["checkpoints"]
    remove_leftovers(remote, leftovers)
    assert list(remote.storage.find_uploads()) == []
    assert remote.find("training", KEY) == ref


def test_uploads_of_another_machine_are_swept_when_they_are_old(remote: ArtifactStore) -> None:
    from gif_core.artifacts.remote import RemoteStorage

    assert isinstance(remote.storage, RemoteStorage)
    bucket, _, key = f"{remote.storage.root}/training/{KEY}/otherhost-1-abc/backbone".partition("/")
    remote.storage.fs.call_s3("create_multipart_upload", Bucket=bucket, Key=key)
    assert find_leftovers(remote) == [], "another machine may be at it"
    leftovers = find_leftovers(remote, older_than=-60)
    assert [leftover.path for leftover in leftovers] == [f"training/{KEY}/otherhost-1-abc/backbone"]
    remove_leftovers(remote, leftovers)
    assert list(remote.storage.find_uploads()) == []


def test_interrupting_while_the_server_is_away_does_not_take_minutes(remote: ArtifactStore, proxy: FaultyProxy) -> None:
    proxy.seconds_away = 60
    with suppress(KeyboardInterrupt), remote.draft(remote.ref("training", KEY), {}, {}) as draft:
        (draft.folder / "backbone").write_bytes(b"x")
        proxy.decide = once("PUT", "/backbone", "stop")
        remote.begin_storing(draft, "*")
        while not proxy.stops:
            time.sleep(0.01)
        raise KeyboardInterrupt
    assert proxy.is_away, "nobody waited for it"
    assert nothing_stays()
