import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gif_core.writers import ExportInfo, Face, write_recordio
from gif_core.writers.recordio import encode_record

MAGIC = bytes.fromhex("0a23d7ce")
IDENTITIES = [0, 0, 0, 1, 3, 3]
FACES = [Face(person, b"\xff\xd8\xff" + bytes([number]) * number) for number, person in enumerate(IDENTITIES)]
INFO = ExportInfo(["ann", "bob", "cy", "dee"], len(FACES))


def parse_records(content: bytes) -> dict[int, bytes]:
    """Payloads by offset: a plain reading of the format, word by word."""
    records, offset = {}, 0
    while offset < len(content):
        start, payload, kind = offset, b"", None
        while kind not in (0, 3):
            magic, word = struct.unpack_from("<4sI", content, offset)
            assert magic == MAGIC
            assert (word >> 29) in ((0, 1) if kind is None else (2, 3))
            payload += b"" if kind is None else MAGIC
            kind, length = word >> 29, word & (2**29 - 1)
            payload += content[offset + 8 : offset + 8 + length]
            offset += 8 + length + -length % 4
        records[start] = payload
    return records


def read_by_key(folder: Path) -> dict[int, bytes]:
    lines = [line.split("\t") for line in (folder / "train.idx").read_text().splitlines()]
    records = parse_records((folder / "train.rec").read_bytes())
    assert sorted(records) == [int(offset) for _, offset in lines]
    return {int(key): records[int(offset)] for key, offset in lines}


def write(folder: Path, faces: list[Face] = FACES, info: ExportInfo = INFO, **options: int) -> dict[int, bytes]:
    assert list(write_recordio(faces, info, folder, **options)) == list(range(1, len(faces) + 1))
    return read_by_key(folder)


def split_like_dmlc(payload: bytes) -> bytes:
    """The record word by word, as the C++ writer goes about it."""
    out, begin = b"", 0
    for at in range(0, len(payload) // 4 * 4, 4):
        if payload[at : at + 4] == MAGIC:
            out += MAGIC + struct.pack("<I", (1 if begin == 0 else 2) << 29 | at - begin) + payload[begin:at]
            begin = at + 4
    out += MAGIC + struct.pack("<I", (3 if begin else 0) << 29 | len(payload) - begin) + payload[begin:]
    return out + bytes(-len(payload) % 4)


def test_faces_have_the_keys_from_one_and_their_identity_as_label(tmp_path: Path) -> None:
    records = write(tmp_path)
    for key, face in enumerate(FACES, start=1):
        assert records[key] == struct.pack("<IfQQ", 0, face.identity_id, key, 0) + face.image


def test_record_zero_leads_to_the_table_of_identities(tmp_path: Path) -> None:
    records = write(tmp_path)
    assert records[0] == struct.pack("<IfQQff", 2, 0, 0, 0, 7, 11)
    ranges = [struct.unpack("<IfQQff", records[key]) for key in range(7, 11)]
    assert [(flag, key) for flag, _, key, *_ in ranges] == [(2, 7), (2, 8), (2, 9), (2, 10)]
    assert [(start, end) for *_, start, end in ranges] == [(1, 4), (4, 5), (5, 5), (5, 7)]
    assert sorted(records) == list(range(11))


def test_property_has_the_classes_and_the_size_without_a_line_end(tmp_path: Path) -> None:
    write(tmp_path)
    assert (tmp_path / "property").read_bytes() == b"4,112,112"


def test_without_the_table_keys_count_from_zero_when_floats_cannot_count_the_records(tmp_path: Path) -> None:
    records = write(tmp_path, exact=10)
    assert sorted(records) == list(range(6))
    assert [struct.unpack_from("<If", records[key]) for key in range(6)] == [(0, person) for person in IDENTITIES]


def test_more_identities_than_floats_can_tell_apart_are_refused(tmp_path: Path) -> None:
    all_rows = ExportInfo(range(2**24 + 1), 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"exact for 16,777,216 identities, not 16,777,217"):
        list(write_recordio([Face(2**24, b"")], all_rows, tmp_path))


def test_identities_that_are_not_neighbours_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ascending order; 0 comes after 1"):
        write(tmp_path, [FACES[0], FACES[3], FACES[1]], ExportInfo(["a", "b"], 3))


def test_a_miscount_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="7 faces were announced, but 6 were given"):
        write(tmp_path, FACES, ExportInfo(INFO.labels, 7))


pieces = st.lists(st.one_of(st.binary(max_size=9), st.just(MAGIC), st.just(bytes(4))), max_size=12)


@given(pieces.map(b"".join))
def test_a_payload_with_the_magic_in_it_is_split_as_dmlc_does(payload: bytes) -> None:
    record = encode_record(payload)
    assert record == split_like_dmlc(payload)
    assert parse_records(record) == {0: payload}
    assert len(record) % 4 == 0


def test_the_magic_in_an_image_is_never_at_a_multiple_of_four_in_the_file(tmp_path: Path) -> None:
    image = MAGIC * 3 + b"x" + MAGIC + b"yyy" + MAGIC
    records = write(tmp_path, [Face(0, image), Face(0, b"next")], ExportInfo(["ann"], 2))
    assert records[1][24:] == image
    content = (tmp_path / "train.rec").read_bytes()
    heads = [at for at in range(0, len(content), 4) if content[at : at + 4] == MAGIC]
    assert len(heads) == 4 + 4
