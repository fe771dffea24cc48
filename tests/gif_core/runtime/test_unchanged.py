import os
from pathlib import Path

import pytest

from gif_core.runtime import once_per_file

LONG_AGO = 1_700_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "weights").write_bytes(b"one")
    os.utime(tmp_path / "weights", (LONG_AGO, LONG_AGO))
    return tmp_path / "weights"


def test_a_file_is_read_again_only_when_it_has_changed(path: Path) -> None:
    reads = []

    @once_per_file
    def read(path: Path) -> bytes:
        reads.append(path)
        return path.read_bytes()

    assert [read(path), read(path)] == [b"one", b"one"]
    assert len(reads) == 1
    path.write_bytes(b"two")
    os.utime(path, (LONG_AGO, LONG_AGO))
    assert read(path) == b"two", "of the same size and with the same time of modification"


def test_a_file_that_was_just_written_is_not_remembered(path: Path) -> None:
    read = once_per_file(Path.read_bytes)
    path.write_bytes(b"one")
    assert read(path) == b"one"
    before = path.stat()
    path.write_bytes(b"two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert read(path) == b"two"


def test_answers_to_different_questions_are_kept_apart(path: Path) -> None:
    ends = once_per_file(lambda path, size: path.read_bytes()[-size:])
    assert [ends(path, 1), ends(path, 2), ends(path, 1)] == [b"e", b"ne", b"e"]
