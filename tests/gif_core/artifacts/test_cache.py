import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gif_core.artifacts import ArtifactDamagedError, ArtifactStore, cache, sha256_of
from gif_core.artifacts.cache import cached_files, clear, describe, fetch, make_room
from gif_core.runtime import parse_size
from schemas.artifacts import StoredFile

PROJECT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GIF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GIF_CACHE_SIZE", "1000")
    return tmp_path / "cache"


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    """Any storage does: the cache asks it for downloads alone."""
    return ArtifactStore(str(tmp_path / "store"))


def stored(store: ArtifactStore, name: str, size: int = 400) -> StoredFile:
    store.storage.replace(name, (name * size).encode()[:size])
    path = store.storage.local_path(name)
    assert path is not None
    return StoredFile(name=name, path=name, size=size, sha256=sha256_of(path))


def forget_uses() -> None:
    """As if the processes that used the files had ended."""
    for notes in cache.cache_folder().glob("uses/*"):
        notes.unlink()


def names() -> list[str]:
    return [file.path.name for file in cached_files()]


def test_the_least_recently_used_copies_go_first_and_the_bound_holds(store: ArtifactStore) -> None:
    files = {name: stored(store, name) for name in "abcd"}
    for name in "ab":
        fetch(store.storage, name, files[name])
    fetch(store.storage, "a", files["a"])
    forget_uses()
    fetch(store.storage, "c", files["c"])
    assert names() == ["a", "c"], "b was used longest ago"
    forget_uses()
    fetch(store.storage, "d", files["d"])
    assert names() == ["c", "d"]
    assert describe().size <= 1000


def test_files_in_use_stay_and_the_excess_is_reported(store: ArtifactStore, caplog: pytest.LogCaptureFixture) -> None:
    files = {name: stored(store, name) for name in "abc"}
    paths = [fetch(store.storage, name, files[name]) for name in "abc"]
    assert all(path.exists() for path in paths)
    assert "running processes use all of it" in caplog.text
    assert describe().in_use == 1200
    assert clear() == 0
    assert all(path.exists() for path in paths)


def test_what_a_process_used_that_has_died_may_go(store: ArtifactStore) -> None:
    file = stored(store, "a")
    script = (
        "import os, sys; from pathlib import Path; from gif_core.artifacts import ArtifactStore, cache;"
        "from schemas.artifacts import StoredFile;"
        "cache.fetch(ArtifactStore(sys.argv[1]).storage, 'a', StoredFile.model_validate_json(sys.argv[2]));"
        "(cache.cache_folder() / 'partial' / cache.attempt_name()).write_text('half');"
        "os.kill(os.getpid(), 9)"
    )
    given = [sys.executable, "-c", script, str(store.storage.url), file.model_dump_json()]
    assert subprocess.run(given, cwd=PROJECT, check=False).returncode == -9
    assert names() == ["a"]
    assert len(list(cache.cache_folder().glob("uses/*"))) == 1
    make_room(1000)
    assert names() == []
    assert [path for kind in ("uses", "partial") for path in cache.cache_folder().glob(f"{kind}/*")] == []


def test_a_locked_list_counts_whatever_its_name_and_an_unlocked_one_does_not(
    store: ArtifactStore,
) -> None:
    fetch(store.storage, "a", stored(store, "a"))
    (notes,) = cache.cache_folder().glob("uses/*")
    held = notes.rename(notes.with_name("otherhost-1-abc"))
    assert clear() == 0
    notes.write_text(held.read_text())
    held.unlink()
    assert clear() == 400
    assert not notes.exists()


def test_a_copy_that_was_damaged_is_fetched_again_and_a_damaged_original_is_refused(store: ArtifactStore) -> None:
    file = stored(store, "a")
    fetch(store.storage, "a", file).write_bytes(b"x" * 400)
    assert sha256_of(fetch(store.storage, "a", file)) == file.sha256
    clear()
    forget_uses()
    clear()
    store.storage.replace("a", b"x" * 400)
    with pytest.raises(ArtifactDamagedError, match="where its manifest says"):
        fetch(store.storage, "a", file)
    assert list(cache.cache_folder().glob("partial/*")) == []
    assert names() == []


def test_many_threads_that_fetch_and_evict_at_once_all_get_whole_files(store: ArtifactStore) -> None:
    files = {name: stored(store, name) for name in "abcdefgh"}
    faults: list[str] = []

    def work() -> None:
        for name, file in files.items():
            path = fetch(store.storage, name, file)
            if sha256_of(path) != file.sha256:
                faults.append(name)
            clear()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


def test_a_copy_from_the_future_is_whole_and_only_stays_longer(store: ArtifactStore) -> None:
    files = {name: stored(store, name) for name in "abc"}
    for name in "ab":
        path = fetch(store.storage, name, files[name])
        os.utime(path, (4e9, 4e9) if name == "a" else (1, 1))
    forget_uses()
    fetch(store.storage, "c", files["c"])
    assert sorted(names()) == ["a", "c"]
    assert sha256_of(fetch(store.storage, "b", files["b"])) == files["b"].sha256


@pytest.mark.parametrize(("text", "size"), [("50GB", 50e9), ("1.5 TB", 1.5e12), ("800 kB", 8e5), ("12", 12)])
def test_a_size_is_read_as_identities_write_it(text: str, size: float) -> None:
    assert parse_size(text, "x") == size


def test_an_error_about_a_size_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIF_CACHE_SIZE", "much")
    with pytest.raises(ValueError, match=r"GIF_CACHE_SIZE must be a size such as 50GB.*'much'"):
        make_room(1)


def test_without_a_given_size_the_disk_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GIF_CACHE_SIZE")
    assert 0 < cache.cache_limit() <= 50e9
