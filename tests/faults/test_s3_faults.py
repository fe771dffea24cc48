"""The S3 server goes away, is slow, errs, and loses answers: nothing is lost, and the message says what happened."""

import random
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from gif_core.artifacts import ArtifactStore
from gif_core.artifacts.cache import cache_folder
from gif_core.artifacts.errors import StoreAwayError, StoreRefusedError
from gif_core.artifacts.upkeep import find_leftovers, remove_leftovers, verify_artifacts
from schemas.artifacts import ArtifactRef
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
    assert [check.fault for check in verify_artifacts(remote, [ref])] == [None, None]

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
    assert [check.fault for check in verify_artifacts(remote, refs) if check.fault] == []
    assert len(proxy.seen) > 200


def test_connections_that_break_in_the_middle_of_an_answer_are_made_anew(
    remote: ArtifactStore, proxy: FaultyProxy, large: bytes
) -> None:
    dice = random.Random(3)
    ref = publish(remote, large)
    forget_downloads()
    proxy.decide = lambda method, path: "cut" if method == "GET" and dice.random() < 0.3 else "pass"
    assert remote.open(ref).path("backbone").read_bytes() == large
    assert nothing_stays()


def test_a_slow_server_is_no_error(remote: ArtifactStore, proxy: FaultyProxy) -> None:
    proxy.delay = 0.3
    ref = publish(remote, b"slowly")
    forget_downloads()
    assert remote.open(ref).path("backbone").read_bytes() == b"slowly"


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
    assert [check.fault for check in verify_artifacts(remote, [ref])] == [None, None]


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
    assert [check.fault for check in verify_artifacts(patient, [ref])] == [None, None]
    remove_leftovers(patient, find_leftovers(patient, older_than=-60))
    assert [check.fault for check in verify_artifacts(patient, [ref])] == [None, None]


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


def test_uploads_that_a_killed_process_left_are_swept(remote: ArtifactStore) -> None:
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
