import io
import json
import os
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gif_core.readers import archives, files, open_reader
from gif_core.readers.base import is_label
from gif_core.readers.files import Blob
from schemas.ingestion import WebDatasetSource

IMAGE = b"\xff\xd8 an image"
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
Read = Callable[[WebDatasetSource], Any]
Keep = Callable[[dict[str, bytes]], str]


def tar(members: dict[str, bytes], kind: str = "ustar") -> bytes:
    """An archive of Python's own making."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=FORMATS[kind]) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def header(name: str, size: int = 0, kind: bytes = b"0", **fields: Any) -> bytes:
    """One member's header with whatever is asked for."""
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    for field, value in fields.items():
        setattr(info, field, value)
    return info.tobuf(tarfile.GNU_FORMAT)


def sealed(block: bytes) -> bytes:
    """The same header with a checksum that is right."""
    total = sum(block) - sum(block[148:156]) + 8 * 32
    return block[:148] + b"%06o\0 " % total + block[156:]


def numbered(count: int) -> list[bytes]:
    """Samples of an image and a class each, as blocks of an archive."""
    return [tar({f"{i:03d}.jpg": b"image %d" % i, f"{i:03d}.cls": b"%d" % i})[:2048] for i in range(count)]


def test_the_label_is_the_json_field_then_the_class_then_the_folder(read_source: Read, keep_in_memory: Keep) -> None:
    members = {
        "ann/1.jpg": b"1", "ann/1.cls": b"bob", "ann/1.json": b'{"label": "cy"}',
        "ann/2.jpg": b"2", "ann/2.cls": b" bob\n",
        "ann/3.jpg": b"3",
        "ann/4.json": b'{"label": 7, "other": 1}', "ann/4.jpg": b"4",
        "ann/5.json": b'{"other": 1}', "ann/5.jpg": b"5",
        "x/ann/6.jpg": b"6",
        "ann/7.json": b'{"label": 3.0}', "ann/7.jpg": b"7",
        "ann/8.json": b'{"label": ""}', "ann/8.cls": b"", "ann/8.jpg": b"8",
    }  # fmt: skip
    found = read_source(WebDatasetSource(path=keep_in_memory({"a.tar": tar(members)})))
    assert found.faults == []
    assert [label for label, _ in found.faces] == ["cy", "bob", "ann", "7", "ann", "ann", "3", "ann"]
    assert b"".join(image for _, image in found.faces) == b"12345678"
    assert found.rows[0].name == "a.tar#ann/1.jpg"


def test_another_field_can_be_the_label(read_source: Read, keep_in_memory: Keep) -> None:
    folder = keep_in_memory({"a.tar": tar({"1.jpg": b"1", "1.json": b'{"label": "x", "person": "y"}'})})
    assert read_source(WebDatasetSource(path=folder, label="person")).faces == [("y", b"1")]
    assert read_source(WebDatasetSource(path=folder)).faces == [("x", b"1")]
    one, other = (open_reader(WebDatasetSource(path=folder, label=name)).describe() for name in ("label", "person"))
    assert one != other


@pytest.mark.parametrize(
    "texts",
    [
        {},
        {"json": b"{}"},
        {"json": b"[1]"},
        {"json": b"nonsense"},
        {"json": b"\xff\xfe\xfd"},
        {"json": b"[" * 100_000},
        {"json": b'{"label": null}'},
        {"json": b'{"label": [1]}'},
        {"json": b'{"label": 1.5}'},
        {"json": b'{"label": NaN}'},
        {"json": b'{"label": 1e999}'},
        {"json": b'{"label": "\\ud800"}'},
        {"json": b'{"label": "' + b"x" * 1001 + b'"}'},
        {"json": b'{"label": ' + b"9" * 5000 + b"}"},
        {"json": b'{"label": "' + b" " * 2**20 + b'"}'},
        {"cls": b" \n"},
        {"cls": b"\xff"},
        {"cls": b"x" * 1001},
        {"cls": b"x" * (2**20 + 1)},
    ],
)
def test_an_image_without_a_label_is_a_fault(read_source: Read, keep_in_memory: Keep, texts: dict[str, bytes]) -> None:
    members = {"1.jpg": b"1", **{f"1.{ending}": text for ending, text in texts.items()}, "p/2.jpg": b"2"}
    found = read_source(WebDatasetSource(path=keep_in_memory({"a.tar": tar(members)})))
    assert found.faces == [("p", b"2")]
    assert found.faults == [("a.tar#1.jpg", "no label: neither label in .json, nor .cls, nor a folder")]


LENGTHS = [10, 99, 100, 101, 154, 155, 156, 200, 254, 255, 256, 300, 1000, 4000]


@pytest.mark.parametrize(
    ("kind", "length"), [(kind, length) for kind in FORMATS for length in LENGTHS if kind != "ustar" or length <= 200]
)
def test_names_of_any_length_are_read_in_every_format(
    read_source: Read, keep_in_memory: Keep, kind: str, length: int
) -> None:
    folders = "".join("f" * 49 + "/" for _ in range(length // 50))
    name = f"{folders}person/{'n' * (length % 50)}é.jpg"
    found = read_source(WebDatasetSource(path=keep_in_memory({"a.tar": tar({name: IMAGE, "q/x.png": b"2"}, kind)})))
    assert found.faults == []
    assert [row.name for row in found.rows] == [f"a.tar#{name}", "a.tar#q/x.png"]
    assert found.faces == [("person", IMAGE), ("q", b"2")]


def test_a_pax_record_of_an_absurd_length_ends_at_its_header(read_source: Read, keep_in_memory: Keep) -> None:
    record = b"99999999999999999999 path=q/b.jpg\n"
    absurd = header("x", len(record), b"x") + record.ljust(512, b"\0")
    members = tar({"p/a.jpg": b"1"})[:1024]
    found = read_source(WebDatasetSource(path=keep_in_memory({"a.tar": absurd + members})))
    assert len(found.rows) == 1
    assert found.faults == []


def test_a_pax_header_may_hold_anything_else(read_source: Read, keep_in_memory: Keep) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("p/1.jpg")
        info.size = len(IMAGE)
        info.pax_headers = {"comment": "a\n22 path=../../../evil\n", "SCHILY.xattr.user.x": "=\n=", "path": "q/é.jpg"}
        archive.addfile(info, io.BytesIO(IMAGE))
        archive.addfile(tarfile.TarInfo("p/2.jpg"))
    found = read_source(WebDatasetSource(path=keep_in_memory({"a.tar": out.getvalue()})))
    assert [row.name for row in found.rows] == ["a.tar#q/é.jpg", "a.tar#p/2.jpg"]
    assert found.faces == [("q", IMAGE), ("p", b"")]


def test_the_times_in_a_gnu_header_are_no_part_of_the_name(read_source: Read, keep_in_memory: Keep) -> None:
    block = bytearray(header("p/1.jpg"))
    block[345:357] = b"14000000000\0"
    found = read_source(WebDatasetSource(path=keep_in_memory({"a.tar": sealed(bytes(block))})))
    assert [row.name for row in found.rows] == ["a.tar#p/1.jpg"]


@pytest.mark.parametrize("name", ["../1.jpg", "p/../../1.jpg", "..", "/etc/1.jpg", "/1.jpg", "p/..", "./../1.jpg"])
@pytest.mark.parametrize("kind", FORMATS)
def test_names_that_lead_out_are_refused(read_source: Read, keep_in_memory: Keep, name: str, kind: str) -> None:
    content = tar({name: IMAGE, "p/2.jpg": b"2"}, kind)
    found = read_source(WebDatasetSource(path=keep_in_memory({"a.tar": content})))
    assert found.faces == [("p", b"2")]
    assert found.reasons == ["refused: its name leads out of the archive"]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (tarfile.LNKTYPE, "a hard link"),
        (tarfile.SYMTYPE, "a symbolic link"),
        (tarfile.CHRTYPE, "a device"),
        (tarfile.BLKTYPE, "a device"),
        (tarfile.FIFOTYPE, "a pipe"),
        (b"S", "a member of type b'S'"),
        (b"\xff", "a member of type b'\\xff'"),
    ],
)
@pytest.mark.parametrize("link", ["/etc/passwd", "x" * 300])
def test_links_devices_and_pipes_are_refused(
    read_source: Read, keep_in_memory: Keep, kind: bytes, reason: str, link: str
) -> None:
    content = header("p/1.jpg", kind=kind, linkname=link) + tar({"p/2.jpg": b"2"})
    found = read_source(WebDatasetSource(path=keep_in_memory({"a.tar": content})))
    assert found.faces == [("p", b"2")]
    assert found.faults == [("a.tar#p/1.jpg", f"refused: {reason}")]


def test_nothing_is_ever_written(read_source: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = {f"{way}/evil.jpg": IMAGE for way in ("..", "p/../..", str(tmp_path), "p")}
    links = header("p/l.jpg", kind=tarfile.SYMTYPE, linkname="../../evil") + header("p/f.jpg", kind=tarfile.FIFOTYPE)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.tar").write_bytes(links + tar(hostile))
    monkeypatch.chdir(tmp_path / "data")
    opened: list[tuple[Any, ...]] = []
    original = os.open
    monkeypatch.setattr(os, "open", lambda *arguments, **rest: opened.append(arguments) or original(*arguments, **rest))
    found = read_source(WebDatasetSource(path=str(tmp_path / "data")))
    assert len(found.faults) == 5
    assert found.faces == [("p", IMAGE)]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.tar", "data"]
    assert not any(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) for _, flags, *_ in opened)


def test_folders_hidden_files_and_other_files_than_images_are_skipped(read_source: Read, keep_in_memory: Keep) -> None:
    content = header("p", kind=tarfile.DIRTYPE) + header("./p/", kind=tarfile.DIRTYPE)
    members = {"./p/1.JPG": b"1", "p/._1.jpg": b"?", ".jpg": b"?", "p/1.txt": b"?", "p/notes": b"?", "./2.jpg": b"2"}
    members |= {"./2.cls": b"two", "old/": b"", "p/1.jpg.txt": b"?"}
    found = read_source(WebDatasetSource(path=keep_in_memory({"a.tar": content + tar(members)})))
    assert found.faults == []
    assert [row[:2] for row in found.rows] == [("a.tar#./p/1.JPG", "p"), ("a.tar#./2.jpg", "two")]


def test_an_image_beside_the_archives_root_has_no_folder(read_source: Read, keep_in_memory: Keep) -> None:
    members = {"./1.jpg": b"1", "./p/2.jpg": b"2", "././3.jpg": b"3", "p/./4.jpg": b"4", ".//5.jpg": b"5"}
    found = read_source(WebDatasetSource(path=keep_in_memory({"a.tar": tar(members)})))
    assert found.faces == [("p", b"2"), ("p", b"4")]
    assert [fault.record for fault in found.faults] == ["a.tar#./1.jpg", "a.tar#././3.jpg", "a.tar#.//5.jpg"]


def test_images_with_further_dots_are_not_lost_without_a_word(read_source: Read, keep_in_memory: Keep) -> None:
    members = {"p/1.jpg": b"1", "p/1.mask.png": b"?", "q/Jr._0001.jpg": b"2", "q/Jr._0002.jpg": b"3"}
    found = read_source(WebDatasetSource(path=keep_in_memory({"a.tar": tar(members)})))
    assert found.faces == [("p", b"1")]
    assert [fault.record for fault in found.faults] == ["a.tar#q/Jr._0001.jpg", "a.tar#q/Jr._0002.jpg"]
    assert "several dots" in found.reasons[0]


def test_several_archives_are_read_in_the_order_of_their_names(read_source: Read, tmp_path: Path) -> None:
    for name in ("b.tar", "a.tar", "sub/c.tar", ".d.tar"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(tar({"p/1.jpg": name.encode(), "q/2.jpg": name.encode()}))
    found = read_source(WebDatasetSource(path=str(tmp_path)))
    names = [row.name for row in found.rows]
    assert names == [
        f"{name}#{member}" for name in ("a.tar", "b.tar", "sub/c.tar") for member in ("p/1.jpg", "q/2.jpg")
    ]
    assert [row.label for row in found.rows] == ["p", "q"] * 3
    found = read_source(WebDatasetSource(path=str(tmp_path / "[ab].tar")))
    assert [row.name for row in found.rows] == names[:4]
    reader = open_reader(WebDatasetSource(path=str(tmp_path)))
    assert list(reader.read(np.array([5, 0, 3]))) == [b"sub/c.tar", b"a.tar", b"b.tar"]


def test_the_error_about_a_compressed_archive_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match=r"holds no tar files \(decompress \.tar\.gz first"):
        open_reader(WebDatasetSource(path=str(tmp_path)))


@pytest.mark.parametrize("place", [0, 50, 100, 124, 130, 148, 156, 200, 257, 400, 511])
@pytest.mark.parametrize("number", range(4))
def test_a_damaged_header_costs_its_sample_alone(
    read_source: Read, keep_in_memory: Keep, number: int, place: int
) -> None:
    samples = numbered(4)
    damaged = bytearray(samples[number])
    damaged[place] ^= 0x15
    content = b"".join([*samples[:number], bytes(damaged), *samples[number + 1 :]])
    found = read_source(WebDatasetSource(path=keep_in_memory({"a.tar": content})))
    assert found.faces == [(str(i), b"image %d" % i) for i in range(4) if i != number]
    assert [fault.record for fault in found.faults] == [f"a.tar@{2048 * number}"]
    assert found.reasons[0].startswith("damaged")


@pytest.mark.parametrize("cut", range(1, 4096, 61))
def test_a_truncated_archive_loses_what_is_cut_off(read_source: Read, keep_in_memory: Keep, cut: int) -> None:
    content = b"".join(numbered(4))[:-cut]
    found = read_source(WebDatasetSource(path=keep_in_memory({"a.tar": content})))
    whole = [i for i in range(4) if 2048 * i + 1536 + 1 <= len(content)]
    assert found.faces == [(str(i), b"image %d" % i) for i in whole]
    assert all(reason.startswith(("truncated", "no label")) for reason in found.reasons)


@pytest.mark.parametrize(
    "size",
    [b"77777777777\0", b"\x80" + b"\xff" * 11, b"\xff" * 12, b"\x80\0\0\0\0\0\0\0\x7f\xff\xff\xff", b"-0000000001\0",
     b"0000000zz00\0", b"00000001000 ", b"\x80\0\0\0\0\1" + bytes(6)],
)  # fmt: skip
def test_sizes_beyond_the_file_are_faults(read_source: Read, keep_in_memory: Keep, size: bytes) -> None:
    block = bytearray(header("p/1.jpg"))
    block[124:136] = size
    content = sealed(bytes(block)) + b"".join(numbered(1))[:400]
    found = read_source(WebDatasetSource(path=keep_in_memory({"a.tar": content})))
    assert found.faces == []
    assert len(found.faults) == 1
    assert found.reasons[0].startswith(("truncated: a member of", "damaged: a header with a number that is none"))


def test_members_larger_than_any_image_are_not_read(
    read_source: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 2**26 + 1
    with (tmp_path / "a.tar").open("wb") as file:
        file.write(header("p/1.jpg", size))
        file.seek(512 + 2**26 + 512)
        file.write(tar({"p/2.jpg": b"2"}))
    fetched: list[int] = []
    fetch = Blob._fetch
    monkeypatch.setattr(Blob, "_fetch", lambda self, *span: fetched.append(span[1] - span[0]) or fetch(self, *span))
    found = read_source(WebDatasetSource(path=str(tmp_path)))
    assert found.faults == [("a.tar#p/1.jpg", f"too large: a member of {size} bytes")]
    assert found.faces == [("p", b"2")]
    assert sum(fetched) < 2**23


def test_long_names_and_texts_have_an_end(read_source: Read, keep_in_memory: Keep) -> None:
    name = ("n" * 2**21).encode()
    content = header("././@LongLink", len(name), b"L") + name + header("p/1.jpg", kind=b"0") + tar({"p/2.jpg": b"2"})
    found = read_source(WebDatasetSource(path=keep_in_memory({"a.tar": content})))
    assert found.faces == [("p", b"2")]
    ((record, reason),) = found.faults
    assert reason == "refused: a name of 1048576 characters"
    assert len(record) < 5000


def hostile_files() -> dict[str, bytes]:
    """Archives that are slow to scan without care."""
    good, bad = header("p/1.jpg"), header("p/1.jpg")[:-1] + b"x"
    pax = b"".join(b"9999999 %d" % i for i in range(10_000))
    return {
        "zeros": bytes(2**20),
        "garbage": b"x" * 2**20,
        "every other header damaged": (good + bad) * 500,
        "long names alone": header("x", 100, b"L") * 2000,
        "a pax header of numbers": (header("x", len(pax), b"x") + pax + bytes(-len(pax) % 512)) * 3,
        "one key for all": tar({f"p/1.{i}.json": b"{}" for i in range(500)}),
    }


@pytest.mark.parametrize("name", hostile_files())
def test_the_work_grows_with_the_file_and_no_faster(
    read_source: Read, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = hostile_files()[name]
    (tmp_path / "a.tar").write_bytes(content)
    fetched: list[int] = []
    fetch = Blob._fetch
    monkeypatch.setattr(Blob, "_fetch", lambda self, *span: fetched.append(span[1] - span[0]) or fetch(self, *span))
    monkeypatch.setattr(files, "WINDOW", 2**16)
    read_source(WebDatasetSource(path=str(tmp_path)))
    assert sum(fetched) < 3 * len(content)


names = st.lists(
    st.text(st.characters(exclude_characters="/\0.", exclude_categories=["Cs"]), min_size=1, max_size=60),
    min_size=1, max_size=6,
).map("/".join)  # fmt: skip
samples = st.lists(st.tuples(names, st.binary(max_size=600), st.text(max_size=5)), max_size=6, unique_by=lambda s: s[0])


@settings(max_examples=200)
@given(samples, st.sampled_from(["gnu", "pax"]), st.sampled_from([512, 1000, 4 * 2**20]))
def test_any_samples_are_read_back(
    read_source: Read, keep_in_memory: Keep, samples: list[tuple[str, bytes, str]], kind: str, window: int
) -> None:
    members = {}
    for key, image, label in samples:
        members |= {f"{key}.jpg": image, f"{key}.json": json.dumps({"label": label}).encode()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "WINDOW", window)
        found = read_source(WebDatasetSource(path=keep_in_memory({"a.tar": tar(members, kind)})))
    labels = [label or key.rpartition("/")[0].rpartition("/")[2] for key, _, label in samples]
    rows = [(f"a.tar#{key}.jpg", label, image) for (key, image, _), label in zip(samples, labels, strict=True)]
    assert found.rows == [row for row in rows if is_label(row[1])]
    assert [fault.record for fault in found.faults] == [name for name, label, _ in rows if not label]


def test_tables_of_header_fields_are_those_of_the_format() -> None:
    block = header("p/1.jpg", 1234, b"0")
    assert archives._check_header(block, 2000) == (1234, b"0")
    assert archives._number(struct.pack(">BxxxxxxxI", 0x80, 2**31)) == 2**31
