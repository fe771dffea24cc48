"""Whether there is room for a stage is told before it begins."""

from pathlib import Path

import pytest

from gif_core.artifacts import ArtifactStore
from gif_core.planning import available_memory, check_room, needs_of
from gif_core.planning.preflight import RESERVE, Need, NoRoomError


def publish(store: ArtifactStore, size: int) -> None:
    with store.draft(store.ref("embedding", "a" * 64), {}, {}) as draft:
        (draft.folder / "vectors.parquet").write_bytes(bytes(size))
        store.publish(draft)


def test_needs_follow_from_the_sizes_of_the_inputs(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    publish(store, 1000)
    inputs = {"embedding": store.open(store.ref("embedding", "a" * 64))}
    assert needs_of("separation", inputs) == Need(RESERVE + 6000, 4000)  # type: ignore[arg-type]
    assert needs_of("ingestion", {}) == Need(RESERVE, 0)


def test_inputs_of_a_remote_store_need_room_on_this_machine_until_they_are_in_its_cache(
    s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ArtifactStore(s3_url)
    publish(store, 1000)
    monkeypatch.setenv("GIF_CACHE", str(tmp_path / "another"))
    inputs = {"embedding": store.open(store.ref("embedding", "a" * 64))}
    assert needs_of("separation", inputs).disk == RESERVE + 7000  # type: ignore[arg-type]
    inputs["embedding"].path("vectors.parquet")
    assert needs_of("separation", inputs).disk == RESERVE + 6000  # type: ignore[arg-type]
    assert needs_of("reporting", inputs).disk == RESERVE  # type: ignore[arg-type]


def test_a_full_disk_and_too_little_memory_are_told_with_what_to_do(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there" / "yet"
    check_room("separation", Need(1, 1), folder)
    with pytest.raises(NoRoomError, match=r"separation needs about 1,000,000\.0 GB of disk at .*gif artifacts gc"):
        check_room("separation", Need(10**15, 0), folder)
    with pytest.raises(NoRoomError, match=r"1,000,000\.0 GB of memory, of which .* larger machine"):
        check_room("separation", Need(0, 10**15), folder)


def test_available_memory_is_that_of_this_machine() -> None:
    available = available_memory()
    if available is None:
        pytest.skip("this system does not tell")
    assert 2**20 < available < 2**50
