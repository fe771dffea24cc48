import logging
import math
import os
import shutil
import struct
import sys
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gif_core.readers import RecordIOReader, files, open_reader, packed, recordio_scan
from gif_core.readers.files import Blob, find_blobs
from schemas.ingestion import RecordIOSource

MAGIC = bytes.fromhex("0a23d7ce")
REAL = Path(__file__).parents[4] / "shared" / "data" / "recordio"
COUNTS = {
    "faceid_kz/testing.rec": 217,
    "faceid_kz/validation.rec": 229,
    "adaface_tiny/train.rec": 8,
    "facedet_mxnet/train.rec": 1632,
}
Read = Callable[[RecordIOSource], Any]
Keep = Callable[[dict[str, bytes]], str]


def pack(labels: float | list[float], image: bytes, key: int = 0) -> bytes:
    """A record's data, as mxnet's `recordio.pack` makes it: one label in the header, several after it."""
    if isinstance(labels, list):
        return struct.pack(f"<IfQQ{len(labels)}f", len(labels), 0, key, 0, *labels) + image
    return struct.pack("<IfQQ", 0, labels, key, 0) + image


def frame(data: bytes) -> bytes:
    """A record as dmlc writes it: word by word, and a new part wherever a word is the magic."""
    out, begin, kind = b"", 0, 0
    for at in range(0, len(data) - 3, 4):
        if data[at : at + 4] == MAGIC:
            kind = 1 if kind == 0 else 2
            out += MAGIC + struct.pack("<I", kind << 29 | at - begin) + data[begin:at]
            begin = at + 4
    out += MAGIC + struct.pack("<I", (3 if kind else 0) << 29 | len(data) - begin) + data[begin:]
    return out + bytes(-len(out) % 4)


def write(framed: list[bytes], keys: list[int] | None = None) -> dict[str, bytes]:
    """A `.rec`, and an `.idx` when there are keys."""
    found = {"train.rec": b"".join(framed)}
    if keys is not None:
        offsets = np.cumsum([0, *map(len, framed)]).tolist()
        found["train.idx"] = "".join(f"{key}\t{at}\n" for key, at in zip(keys, offsets, strict=False)).encode()
    return found


def numbered(count: int, first: int = 0) -> list[bytes]:
    """Whole records whose images say which they are."""
    return [frame(pack(first + i, b"image %d" % (first + i), first + i)) for i in range(count)]


pieces = st.one_of(st.binary(max_size=9), st.just(MAGIC), st.just(bytes(4)), st.just(b"\xff\xd8" + MAGIC))
images = st.lists(pieces, max_size=8).map(b"".join)
numbers = st.one_of(st.integers(0, 5), st.just(2**24))
labels = st.one_of(numbers, st.lists(numbers, min_size=1, max_size=5))
ids = st.one_of(st.integers(0, 9), st.just(0xCED7230A), st.just(0xCED7230A << 32))
streams = st.lists(st.tuples(labels, images, ids), max_size=12)
windows = st.sampled_from([32, 64, 100, 4096, 4 * 2**20])


def expected(stream: list[tuple[Any, bytes, int]], keys: list[int]) -> list[tuple[str, bytes]]:
    """What is to be read: where record 0 has labels alone, so have all that are no images (and none is split)."""
    bare = [isinstance(label, list) and len(label) > 1 and not image and key < 10 for label, image, key in stream]
    insightface = any(is_bare and key == 0 for is_bare, key in zip(bare, keys, strict=True))
    wanted = [row for row, is_bare in zip(stream, bare, strict=True) if not (insightface and is_bare)]
    return [(str(label[0] if isinstance(label, list) else label), image) for label, image, _ in wanted]


@settings(max_examples=200)
@given(stream=streams, window=windows, data=st.data())
def test_any_stream_is_read_back_with_and_without_an_index(
    read_source: Read, keep_in_memory: Keep, stream: list[tuple[Any, bytes, int]], window: int, data: st.DataObject
) -> None:
    framed = [frame(pack(label, image, key)) for label, image, key in stream]
    keys = data.draw(st.permutations(range(len(stream)))) if data.draw(st.booleans()) else None
    folder = keep_in_memory(write(framed, keys) if framed else {"train.rec": b""})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "WINDOW", window)
        found = read_source(RecordIOSource(path=folder))
    keys = list(range(len(stream))) if keys is None else keys
    assert found.faults == []
    assert found.faces == expected(stream, keys)


@settings(max_examples=100)
@given(stream=streams, span=st.sampled_from([1, 40, 200, 2**23]), gap=st.sampled_from([0, 36, 2**16]), data=st.data())
def test_a_block_holds_what_is_read_one_by_one(
    keep_in_memory: Keep, stream: list[tuple[Any, bytes, int]], span: int, gap: int, data: st.DataObject
) -> None:
    framed = [frame(pack(label, image, key)) for label, image, key in stream]
    reader = RecordIOReader(RecordIOSource(path=keep_in_memory({"train.rec": b"".join(framed)})))
    sound = [image for _, image in expected(stream, list(range(len(stream))))]
    records = data.draw(st.lists(st.integers(0, len(sound) - 1), max_size=15)) if sound else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "SPAN", span)
        patch.setattr(packed, "GAP", gap)
        block = reader.read_block(np.array(records, np.int64))
        assert list(reader.read(np.array(records, np.int64))) == [sound[record] for record in records]
    assert block.images() == [sound[record] for record in records]


@settings(max_examples=200)
@given(stream=streams, damage=st.lists(st.tuples(st.floats(0, 1), pieces), max_size=3), window=windows)
def test_pieces_of_a_file_are_scanned_at_once_with_the_result_of_one_scan(
    keep_in_memory: Keep, stream: list[tuple[Any, bytes, int]], damage: list[tuple[float, bytes]], window: int
) -> None:
    content = b"".join(frame(pack(label, image, key)) for label, image, key in stream)
    for place, bad in damage:
        at = int(place * len(content))
        content = content[:at] + bad + content[at + len(bad) :]
    (blob,) = find_blobs(keep_in_memory({"train.rec": content}), ".rec", "RecordIO files")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "WINDOW", window)
        found, damages = recordio_scan.find_records(blob)
        patch.setattr(recordio_scan, "SMALLEST_PIECE", 1)
        patch.setattr(os, "cpu_count", lambda: 4)
        in_pieces, damages_of_pieces = recordio_scan.find_records(blob)
    assert damages_of_pieces == damages
    for name, column in vars(found).items():
        assert np.array_equal(getattr(in_pieces, name), column, equal_nan=column.dtype.kind == "f"), name


@settings(max_examples=200)
@given(stream=st.lists(st.tuples(numbers, images, ids), min_size=1, max_size=8), data=st.data())
def test_a_damaged_magic_costs_the_damaged_record_alone(
    read_source: Read, keep_in_memory: Keep, stream: list[tuple[Any, bytes, int]], data: st.DataObject
) -> None:
    framed = [frame(pack(label, image, key)) for label, image, key in stream]
    broken = data.draw(st.integers(0, len(stream) - 1))
    heads = [at for at in range(0, len(framed[broken]), 4) if framed[broken][at : at + 4] == MAGIC]
    at = data.draw(st.sampled_from(heads)) + data.draw(st.integers(0, 3))
    damaged = bytearray(framed[broken])
    damaged[at] ^= 0x40
    keys = list(range(7, 7 + len(stream)))
    intact = write(framed, keys)
    content = b"".join([*framed[:broken], bytes(damaged), *framed[broken + 1 :]])
    left = [(str(label), image) for number, (label, image, _) in enumerate(stream) if number != broken]

    found = read_source(RecordIOSource(path=keep_in_memory({"train.rec": content})))
    assert found.faces == left
    assert [fault.record for fault in found.faults] == [f"train.rec@{len(b''.join(framed[:broken]))}"]
    found = read_source(RecordIOSource(path=keep_in_memory({**intact, "train.rec": content})))
    assert found.faces == left
    assert [fault.record for fault in found.faults] == [f"train.rec#{7 + broken}"]


@pytest.mark.parametrize("wrong", [0, 4, 23, 24, 60, 100, 2**26 + 1, 2**29 - 1])
def test_a_wrong_length_costs_the_damaged_record_alone(read_source: Read, keep_in_memory: Keep, wrong: int) -> None:
    framed = numbered(8)
    framed[3] = framed[3][:4] + struct.pack("<I", wrong) + framed[3][8:]
    found = read_source(RecordIOSource(path=keep_in_memory(write(framed))))
    others = [face for face in found.faces if face[0] != "3"]
    assert others == [(str(i), b"image %d" % i) for i in range(8) if i != 3]
    assert len(found.faults) == 1
    assert len(found.faces) == 7 + (wrong == 24)


@pytest.mark.parametrize("cut", range(1, 48))
def test_a_truncated_file_loses_what_is_cut_off(read_source: Read, keep_in_memory: Keep, cut: int) -> None:
    framed = numbered(5)
    assert len(framed[4]) == 40
    kept = write(framed, list(range(5)))
    content = kept["train.rec"][:-cut]
    without = read_source(RecordIOSource(path=keep_in_memory({"train.rec": content})))
    whole = 5 if cut == 1 else 4 if cut <= 41 else 3  # one byte of padding is nothing to miss
    assert without.faces == [(str(i), b"image %d" % i) for i in range(whole)]
    assert len(without.faults) == (cut not in (1, 40, 41))
    assert all(reason.startswith("truncated") for reason in without.reasons)
    indexed = read_source(RecordIOSource(path=keep_in_memory({**kept, "train.rec": content})))
    assert indexed.faces == without.faces
    assert [fault.record for fault in indexed.faults] == [f"train.rec#{key}" for key in range(whole, 5)]


def test_a_damaged_stretch_is_one_fault_that_says_how_much_is_lost(read_source: Read, keep_in_memory: Keep) -> None:
    framed = numbered(6)
    garbage = MAGIC * 50 + frame(pack(1, MAGIC * 5))[8:]
    content = b"".join([*framed[:3], garbage, *framed[3:]])
    found = read_source(RecordIOSource(path=keep_in_memory({"train.rec": content})))
    assert [label for label, _ in found.faces] == list("012345")
    ((where, reason),) = found.faults
    assert where == "train.rec@120"
    assert reason.endswith(f"({len(garbage)} bytes are lost)")


def insightface(identities: list[int], image: Callable[[int], bytes] = lambda key: b"image %d" % key) -> list[bytes]:
    """Record 0, images person by person, and one record with the range of keys for each person."""
    ends = np.cumsum([1, *identities]).tolist()
    head = frame(pack([ends[-1], ends[-1] + len(identities)], b""))
    persons = np.repeat(np.arange(len(identities)), identities).tolist()
    faces = [frame(pack(float(person), image(key), key)) for key, person in enumerate(persons, start=1)]
    ranges = [frame(pack([float(first), float(last)], b"")) for first, last in pairwise(ends)]
    return [head, *faces, *ranges]


@pytest.mark.parametrize("indexed", [True, False])
def test_in_insightfaces_layout_images_alone_are_read(read_source: Read, keep_in_memory: Keep, indexed: bool) -> None:
    framed = insightface([3, 1, 2])
    keys = list(range(len(framed))) if indexed else None
    found = read_source(RecordIOSource(path=keep_in_memory(write(framed, keys))))
    assert found.faults == []
    assert found.faces == [(label, b"image %d" % key) for key, label in enumerate("000122", start=1)]
    assert [row.name for row in found.rows] == [f"train.rec#{key}" for key in range(1, 7)]


@pytest.mark.parametrize("number", range(1, 7))
def test_in_insightfaces_layout_damage_costs_no_other_image(
    read_source: Read, keep_in_memory: Keep, number: int
) -> None:
    framed = insightface([3, 1, 2], lambda key: MAGIC * 3 + b"%d" % key)
    framed[number] = b"\0\0\0\0" + framed[number][4:]
    found = read_source(RecordIOSource(path=keep_in_memory(write(framed))))
    assert len(found.faults) == 1
    assert [image[-1:] for _, image in found.faces] == [b"%d" % key for key in range(1, 7) if key != number]


def test_files_of_im2rec_begin_with_an_image(read_source: Read, keep_in_memory: Keep) -> None:
    found = read_source(RecordIOSource(path=keep_in_memory(write(numbered(3), [4, 0, 2]))))
    assert [row.name for row in found.rows] == ["train.rec#4", "train.rec#0", "train.rec#2"]
    assert found.faces == [("0", b"image 0"), ("1", b"image 1"), ("2", b"image 2")]


def test_the_first_of_several_labels_counts(read_source: Read, keep_in_memory: Keep) -> None:
    framed = [frame(pack([7.0, *range(count)], b"x")) for count in range(5)]
    found = read_source(RecordIOSource(path=keep_in_memory(write(framed))))
    assert found.faces == [("7", b"x")] * 5


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        (2**24 + 2, "its label 16777218 is beyond 16777216, up to which the format tells all identities apart"),
        (3e38, "is beyond 16777216"),
        (-1, "its label -1 is not the number of a person"),
        (0.5, "its label 0.5 is not the number of a person"),
        (math.nan, "its label nan is not the number of a person"),
        (math.inf, "its label inf is not the number of a person"),
        (-math.inf, "its label -inf is not the number of a person"),
    ],
)
def test_labels_that_are_no_persons_number_are_faults(
    read_source: Read, keep_in_memory: Keep, label: float, reason: str
) -> None:
    framed = [frame(pack(1, b"x")), frame(pack(label, b"y")), frame(pack([label, 1], MAGIC)), frame(pack(2**24, b"z"))]
    found = read_source(RecordIOSource(path=keep_in_memory(write(framed, [5, 6, 7, 8]))))
    assert found.faces == [("1", b"x"), ("16777216", b"z")]
    assert [fault.record for fault in found.faults] == ["train.rec#6", "train.rec#7"]
    assert all(reason in found_reason for found_reason in found.reasons)


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\n\n", b"\0" * 50, b"no index at all", b"0\t0\n1\t\n", b"0\t0\n1\tx\n", b"0 0\n1 40\n", b"1\t2\t3\n",
     b"0\t99999999999999999999\n", b"\xff\xfe\t\xff", b"0\t0\n1\t1.5\n", b'"0\t0\n'],
)  # fmt: skip
def test_an_index_that_is_none_is_left_aside(
    read_source: Read, keep_in_memory: Keep, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    folder = keep_in_memory({**write(numbered(3)), "train.idx": garbage})
    found = read_source(RecordIOSource(path=folder))
    assert [label for label, _ in found.faces] == ["0", "1", "2"]
    assert found.faults == []
    if garbage.strip():
        assert "ignoring train.idx, which cannot be read" in caplog.text or "its offsets do not match" in caplog.text


@pytest.mark.parametrize(
    "index",
    [b"0\t0\n1\t44\n", b"0\t4\n1\t44\n2\t84\n", b"7\t-40\n8\t40\n", b"0\t0\n1\t40\n1\t40\n2\t83\n", b"5\t1\n"],
)
def test_the_index_of_another_file_is_left_aside(
    read_source: Read, keep_in_memory: Keep, index: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    folder = keep_in_memory({**write(numbered(3)), "train.idx": index})
    found = read_source(RecordIOSource(path=folder))
    assert [row.name for row in found.rows] == ["train.rec#0", "train.rec#1", "train.rec#2"]
    assert "ignoring the .idx of train.rec: its offsets do not match" in caplog.text


def test_an_index_of_some_records_chooses_them_and_says_so(
    read_source: Read, keep_in_memory: Keep, caplog: pytest.LogCaptureFixture
) -> None:
    folder = keep_in_memory({**write(numbered(4)), "train.idx": b"3\t120\r\n1\t40\r\n"})
    found = read_source(RecordIOSource(path=folder))
    assert [row.name for row in found.rows] == ["train.rec#1", "train.rec#3"]
    assert "2 records of train.rec are left out" in caplog.text


def test_the_description_changes_with_the_index_and_not_with_the_place(tmp_path: Path) -> None:
    for name, content in write(numbered(4), [0, 1, 2, 3]).items():
        (tmp_path / name).write_bytes(content)
    described = open_reader(RecordIOSource(path=str(tmp_path))).describe()
    assert described == open_reader(RecordIOSource(path=str(tmp_path / "train.rec"))).describe()
    (tmp_path / "train.idx").write_bytes(b"0\t0\n")
    assert described != open_reader(RecordIOSource(path=str(tmp_path))).describe()


@pytest.mark.parametrize("text", [b"3,112,112", b"x,112,112", b"", b"4"])
def test_a_different_count_of_identities_is_logged(
    read_source: Read, keep_in_memory: Keep, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    read_source(RecordIOSource(path=keep_in_memory({**write(numbered(4)), "property": text})))
    assert ("train.rec has 4" in caplog.text) == (text != b"4")


def test_files_of_one_folder_share_their_identities(read_source: Read, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "a.rec").write_bytes(b"".join(numbered(2)))
    (tmp_path / "b" / "c.rec").write_bytes(b"".join(numbered(3)))
    (tmp_path / ".hidden" / "d.rec").write_bytes(b"".join(numbered(3)))
    (tmp_path / "._a.rec").write_bytes(b"what another system left")
    (tmp_path / "e.rec").symlink_to(tmp_path / "a.rec")
    (tmp_path / "f.rec").symlink_to(tmp_path / "nowhere")
    found = read_source(RecordIOSource(path=str(tmp_path)))
    assert [row.name for row in found.rows] == [
        "a.rec#0", "a.rec#1", "b/c.rec#0", "b/c.rec#1", "b/c.rec#2", "e.rec#0", "e.rec#1"
    ]  # fmt: skip
    assert [row.label for row in found.rows] == ["0", "1", "0", "1", "2", "0", "1"]


def test_a_file_whose_name_looks_like_a_pattern_is_found(read_source: Read, tmp_path: Path) -> None:
    (tmp_path / "a[1]").mkdir()
    (tmp_path / "a[1]" / "b?.rec").write_bytes(b"".join(numbered(1)))
    for path in (tmp_path / "a[1]", tmp_path / "a[1]" / "b?.rec"):
        assert [row.name for row in read_source(RecordIOSource(path=str(path))).rows] == ["b?.rec#0"]


def test_names_that_are_not_utf_8_are_escaped_in_messages(read_source: Read, tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xe9.rec")).write_bytes(b"".join(numbered(1)))
    assert [row.name for row in read_source(RecordIOSource(path=str(tmp_path))).rows] == ["\\udce9.rec#0"]


@pytest.mark.parametrize("path", ["nowhere", "nowhere/*.rec", ".", "other.txt"])
def test_the_error_about_a_missing_source_names_its_address(tmp_path: Path, path: str) -> None:
    (tmp_path / "other.txt").write_text("x")
    with pytest.raises(FileNotFoundError, match=r"ingestion\.sources: .*(there is no file or folder|RecordIO files)"):
        open_reader(RecordIOSource(path=str(tmp_path / path)))


def test_records_are_read_in_any_order_and_in_bounded_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gif_core.readers.packed.SPAN", 4096)
    images = {str(i): bytes([i]) * 1000 for i in range(100)}
    (tmp_path / "train.rec").write_bytes(b"".join(frame(pack(i, image)) for i, image in enumerate(images.values())))
    reader = open_reader(RecordIOSource(path=str(tmp_path)))
    assert reader.in_any_order
    assert list(reader.read(np.arange(100))) == list(images.values())
    pieces: list[int] = []
    fetch = Blob._fetch
    monkeypatch.setattr(Blob, "_fetch", lambda self, start, end: pieces.append(end - start) or fetch(self, start, end))
    order = np.random.default_rng(0).permutation(100)
    assert list(reader.read(order)) == [images[str(i)] for i in order.tolist()]
    assert list(reader.read(np.array([5, 5, 6, 5]))) == [images[i] for i in "5565"]
    pieces.clear()
    assert len(list(reader.read(np.arange(100)))) == 100
    assert max(pieces) <= 4096 + 1032
    assert len(pieces) < 30


def test_a_file_that_has_become_shorter_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "train.rec").write_bytes(b"".join(numbered(4)))
    reader = open_reader(RecordIOSource(path=str(tmp_path)))
    assert len(reader.listing.person_R) == 4
    (tmp_path / "train.rec").write_bytes(b"".join(numbered(3)))
    with pytest.raises(OSError, match=r"train\.rec: .* the file has changed"):
        list(reader.read(np.arange(4)))


def test_thousands_of_files_are_not_open_at_once(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    for number in range(200):
        (tmp_path / f"{number:03d}.rec").write_bytes(numbered(1)[0])
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, limits[1]))
    try:
        reader = open_reader(RecordIOSource(path=str(tmp_path)))
        assert len(reader.files) == 200
        assert len(list(reader.read(np.arange(200)))) == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("parts", [[(0, 2**26 + 4)], [(1, 2**25), (2, 2**25), (3, 8)]])
def test_records_larger_than_any_image_are_faults(
    read_source: Read, tmp_path: Path, parts: list[tuple[int, int]]
) -> None:
    with (tmp_path / "train.rec").open("wb") as file:
        for kind, size in parts:
            file.write(MAGIC + struct.pack("<I", kind << 29 | size))
            file.seek(size, 1)
        file.write(numbered(1)[0])
    found = read_source(RecordIOSource(path=str(tmp_path)))
    assert found.faces == [("0", b"image 0")]
    assert len(found.faults) == 1
    assert found.reasons[0].startswith("too large: a record of")


def hostile_files() -> dict[str, bytes]:
    """Files that a scan without care would go over again and again."""
    first, middle = (MAGIC + struct.pack("<I", kind << 29) for kind in (1, 2))
    chain = middle * 20_000
    heads = b"".join(MAGIC + struct.pack("<I", 1 << 29 | 8 * left) for left in range(20_000 - 1, -1, -1))
    half = 2**18
    return {
        "magic alone": MAGIC * 100_000,
        "parts without an end": first + chain,
        "many beginnings of one chain": heads + chain,
        "many beginnings of one bad record": heads + MAGIC + struct.pack("<I", 3 << 29),
        "beginnings that lead far": (MAGIC + struct.pack("<I", 1 << 29 | half)) * 25_000 + bytes(half),
        "lengths to the end": (MAGIC + struct.pack("<I", half) + bytes(24)) * 8_000 + bytes(half),
        "every other record split": (frame(pack(0, b"")) + frame(pack(0, MAGIC))) * 3_000,
    }


@pytest.mark.parametrize("name", hostile_files())
def test_the_work_grows_with_the_file_and_no_faster(
    read_source: Read, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = hostile_files()[name]
    (tmp_path / "train.rec").write_bytes(content)
    pieces: list[int] = []
    fetch = Blob._fetch
    monkeypatch.setattr(Blob, "_fetch", lambda self, start, end: pieces.append(end - start) or fetch(self, start, end))
    monkeypatch.setattr(files, "WINDOW", 2**16)
    found = read_source(RecordIOSource(path=str(tmp_path)))
    assert sum(pieces) < 5 * len(content)
    assert len(pieces) < len(content) / 8 + 100
    assert len(found.faults) < 3


@pytest.mark.parametrize("word", [b"", bytes(4), struct.pack("<I", 12) + bytes(12), struct.pack("<I", 3 << 29)])
def test_repeated_magics_are_scanned_many_at_a_time(read_source: Read, keep_in_memory: Keep, word: bytes) -> None:
    content = (MAGIC + word) * (2**20 // (4 + len(word)))
    folder = keep_in_memory({"train.rec": content})
    calls: Counter[str] = Counter()
    sys.setprofile(lambda frame, event, _: calls.update([event]))
    try:
        found = read_source(RecordIOSource(path=folder))
    finally:
        sys.setprofile(None)
    assert calls.total() < 0.05 * len(content) / (4 + len(word))
    assert len(found.rows) == 0
    assert len(found.faults) == 1


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the RecordIO files of other projects")
class TestRealFiles:
    @pytest.mark.parametrize("name", COUNTS)
    def test_all_records_are_read(self, read_source: Read, name: str) -> None:
        found = read_source(RecordIOSource(path=str(REAL / name)))
        assert len(found.rows) == COUNTS[name]
        assert found.faults == []
        assert all(image[:3] in (b"\xff\xd8\xff", b"\x89PN") for _, image in found.faces)

    @pytest.mark.parametrize("name", [name for name in COUNTS if "facedet" not in name])
    def test_without_the_index_as_well(self, read_source: Read, name: str, tmp_path: Path) -> None:
        copy = shutil.copy(REAL / name, tmp_path / "copy.rec")
        assert not copy.with_suffix(".idx").exists()
        with_index, without = (read_source(RecordIOSource(path=str(path))) for path in (REAL / name, copy))
        assert with_index.faces == without.faces

    def test_keys_are_those_of_the_index(self, read_source: Read) -> None:
        found = read_source(RecordIOSource(path=str(REAL / "adaface_tiny" / "train.rec")))
        assert [row.name for row in found.rows] == [f"train.rec#{key}" for key in (0, 4, 7, 5, 1, 6, 3, 2)]

    def test_labels_are_those_of_the_list(self, read_source: Read) -> None:
        lines = (REAL / "faceid_kz" / "testing.lst").read_text().splitlines()
        listed = {int(line.split("\t")[0]): int(float(line.split("\t")[1])) for line in lines}
        found = read_source(RecordIOSource(path=str(REAL / "faceid_kz" / "testing.rec")))
        assert {int(row.name.partition("#")[2]): int(row.label) for row in found.rows} == listed
