import builtins
import codecs
import os
import pickle
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gif_core.protocols.sets import bin as pair_files
from gif_core.protocols.sets import open_pairs
from gif_core.protocols.sets.bin import PairFileError
from gif_core.protocols.sets.describe import describe_pairs
from gif_core.protocols.sets.files import EvaluationFileError
from gif_core.writers import ExportInfo, Face, write_pair_file
from schemas.errors import GifError
from schemas.evaluation import PairFileSet

IMAGES = [b"\xff\xd8\xff one", b"\x89PNG two", b"BM\0\xfe three", "four é".encode()]
SAME = [True, False]
REAL_FILES = sorted((Path(__file__).parents[4] / "shared/data/recordio/faceid_kz").glob("*.bin"))


def read(folder: Path, content: bytes) -> tuple[list[bytes], list[bool]]:
    path = folder / "some.bin"
    path.write_bytes(content)
    return read_file(path)


def read_file(path: Path) -> tuple[list[bytes], list[bool]]:
    """As evaluation reads it: the images of all pairs in their order, and whether each pair is of one identity."""
    found = open_pairs(PairFileSet(path=str(path)))
    rows = np.stack([found.pairs.left, found.pairs.right], axis=1).ravel()
    contents = found.images.contents  # type: ignore[attr-defined]
    return [contents[row] for row in rows], found.pairs.same.tolist()


class Call:
    """Pickles as a call of any function."""

    def __init__(self, function: Any, *arguments: object) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        return self.function, self.arguments


def python2_string(content: bytes) -> bytes:
    return b"T" + struct.pack("<i", len(content)) + content


def python2_array(content: bytes) -> bytes:
    """An array of uint8 in the opcodes that Python 2 writes."""
    size = b"M" + struct.pack("<H", len(content))
    kind = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    state = b"(K\x01" + size + b"\x85" + kind + b"\x89" + python2_string(content) + b"tb"
    return b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R" + state


def python2_file(images: list[bytes]) -> bytes:
    return b"\x80\x02](" + b"".join(images) + b"e](\x88\x89e\x86."


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", ["bytes", "arrays", "columns"])
def test_every_protocol_of_python_3_is_read(tmp_path: Path, protocol: int, kind: str) -> None:
    shapes = {"arrays": -1, "columns": (-1, 1)}
    images = IMAGES if kind == "bytes" else [np.frombuffer(each, np.uint8).reshape(shapes[kind]) for each in IMAGES]
    images = [images[0], *(each if kind == "bytes" else each.copy() for each in images[1:])]
    truths = SAME if kind == "bytes" else [np.bool_(same) for same in SAME]
    assert read(tmp_path, pickle.dumps((images, truths), protocol)) == (IMAGES, SAME)


@pytest.mark.parametrize("encode", [python2_string, python2_array])
def test_files_of_python_2_are_read(tmp_path: Path, encode: Any) -> None:
    assert read(tmp_path, python2_file([encode(image) for image in IMAGES])) == (IMAGES, SAME)


def test_text_pickles_of_python_2_are_read(tmp_path: Path) -> None:
    content = b"((lp0\nS'\\xff\\xd8 one'\np1\naS'two'\np2\na(lp3\nI01\natp4\n."
    assert read(tmp_path, content) == ([b"\xff\xd8 one", b"two"], [True])


def test_what_numpy_1_wrote_is_read(tmp_path: Path) -> None:
    content = pickle.dumps(([np.frombuffer(each, np.uint8) for each in IMAGES], SAME), 2)
    assert read(tmp_path, content.replace(b"numpy._core.", b"numpy.core.")) == (IMAGES, SAME)


def test_what_the_writer_wrote_is_read(tmp_path: Path) -> None:
    faces = [Face(identity, image) for identity, image in zip([3, 3, 1, 2], IMAGES, strict=True)]
    list(write_pair_file(faces, ExportInfo([""] * 4, 4), tmp_path))
    assert read(tmp_path, (tmp_path / "pairs.bin").read_bytes()) == (IMAGES, SAME)


@pytest.mark.skipif(not REAL_FILES, reason="the real files are not there")
def test_real_files_are_read_and_their_images_decode() -> None:
    for path in REAL_FILES:
        images, same = read_file(path)
        assert len(images) == 2 * 749
        assert sum(same) == 749
        for image in images[::100]:
            assert cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR).shape == (112, 112, 3)


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    "call",
    [
        Call(os.system, "touch hacked"),
        Call(builtins.eval, "open('hacked', 'w')"),
        Call(builtins.exec, "open('hacked', 'w')"),
        Call(builtins.open, "hacked", "w"),
        Call(builtins.getattr, "", "upper"),
        Call(np.save, "hacked.npy", "x"),
        Call(np.memmap, "hacked", "uint8", "w+", 0, 10),
        Call(np.fromfile, "/etc/hostname"),
        Call(np.load, "hacked"),
        Call(np.frombuffer, b"abc"),
        Call(np.zeros, 10),
        Call(codecs.decode, b"x", "latin1"),
        Call(bytearray, 10),
    ],
    ids=lambda call: call.function.__name__ if isinstance(call, Call) else str(call),
)
def test_whatever_else_it_would_call_is_refused_and_not_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PairFileError, match="which is not allowed"):
        read(tmp_path, pickle.dumps(([call, b"b"], [True]), protocol))
    assert [path.name for path in tmp_path.iterdir()] == ["some.bin"]


def test_the_refusal_says_which_file_and_which_function(tmp_path: Path) -> None:
    with pytest.raises(GifError, match=r"some\.bin is not a file of pairs: it refers to posix\.system"):
        read(tmp_path, pickle.dumps(([Call(os.system, "true")], [])))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"(S'touch hacked'\nios\nsystem\n.", "opcode INST"),
        (b"(cos\nsystem\nS'touch hacked'\no.", "opcode OBJ"),
        (b"cos\nsystem\n(S'touch hacked'\nt\x81.", "opcode NEWOBJ"),
        (b"\x80\x02\x82\x01.", "opcode EXT1"),
        (b"Pidentity\n.", "opcode PERSID"),
        (b"]}\x86.", "opcode EMPTY_DICT"),
        (b"cnumpy\ndtype\n}b.", "opcode EMPTY_DICT"),
        (b"cos\nsystem\n.", r"os\.system"),
        (b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93.", r"builtins\.eval"),
        (b"cnumpy\nndarray\n(t.", "does not hold"),
        (b"cnumpy\nndarray\n(tR.", "not callable"),
        (b"", "no pickle opcode at byte 0"),
        (b"\xff\xd8\xff", "no pickle opcode at byte 0"),
        (b"](", "no pickle opcode at byte 2"),
        (b"]cos", "truncated"),
        (b"]cos\nsystem", "truncated"),
    ],
)
def test_other_opcodes_and_ways_to_a_function_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PairFileError, match=words):
        read(tmp_path, content)
    assert [path.name for path in tmp_path.iterdir()] == ["some.bin"]


@pytest.mark.parametrize(
    "image",
    [
        np.array([Call(os.system, "touch hacked"), None], object),
        np.array([1.0, 2.0]),
        np.array([1, 2], np.uint16),
        np.array([True, False]),
        np.array([(1, 2)], [("a", "u1"), ("b", "u1")]),
        np.array(["text"]),
    ],
    ids=lambda image: str(image.dtype),
)
@pytest.mark.parametrize("protocol", [2, 5])
def test_arrays_of_other_types_are_refused_and_what_they_hold_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: np.ndarray, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PairFileError):
        read(tmp_path, pickle.dumps(([image, image], [True]), protocol))
    assert [path.name for path in tmp_path.iterdir()] == ["some.bin"]


def test_decoded_pixels_are_refused(tmp_path: Path) -> None:
    pixels = np.zeros((4, 4, 3), np.uint8)
    with pytest.raises(PairFileError, match=r"a row of 48 bytes, not an array of \(4, 4, 3\)"):
        read(tmp_path, pickle.dumps(([pixels, pixels], [True])))


def test_an_array_with_fewer_bytes_than_its_shape_is_refused(tmp_path: Path) -> None:
    whole = python2_array(b"abc")
    for lie in (b"M\xff\xff", b"J\xff\xff\xff\x7f"):
        with pytest.raises(PairFileError, match="a row of 3 bytes"):
            read(tmp_path, python2_file([whole.replace(b"M\x03\x00", lie)] * 4))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ((IMAGES, SAME, []), "does not hold"),
        (IMAGES, "does not hold"),
        ((tuple(IMAGES), SAME), "does not hold"),
        ((IMAGES, [1, 0]), "True and False"),
        ((IMAGES, []), "True and False"),
        (([], []), "True and False"),
        ((IMAGES[:3], SAME), "3 images for 2 pairs"),
        ((["text", *IMAGES[1:]], SAME), "are bytes"),
        (([b"", *IMAGES[1:]], SAME), "are bytes"),
        ((IMAGES, [np.float64(1), np.float64(0)]), "uint8"),
        ((IMAGES, [np.uint8(1), np.uint8(0)]), "not a bool"),
    ],
)
def test_values_other_than_pairs_are_refused(tmp_path: Path, value: object, words: str) -> None:
    with pytest.raises(PairFileError, match=words):
        read(tmp_path, pickle.dumps(value, 4))


HUGE = struct.pack("<Q", 2**40)
MANY, MILLION = 2000, struct.pack("<I", 1_000_000)
ENCODE = b"c_codecs\nencode\nh\x00U\x06latin1\x86R"
FROM_BUFFER = b"cnumpy.core.numeric\n_frombuffer\n(h\x00cnumpy\ndtype\nU\x02u1\x85RJ" + MILLION + b"\x85U\x01CtR"
TEXT_AS_SIDE = b"(" + python2_string(b"y" * 16) + b"J\xff\xff\xff\x7ft"
NESTED = b")q\x000" + b"".join(b"h%ch%c\x86q%c0" % (n, n, n + 1) for n in range(100))
"""A tuple of a tuple twice, a hundred times over, at place 100 of the memo: small, and endless when walked through."""
BOMBS = {
    "laughs as images": b"\x80\x02" + NESTED + b"hd].",
    "laughs as a list": b"\x80\x02" + NESTED + b"]hda](\x88e\x86.",
    "laughs as truths": b"\x80\x02" + NESTED + b"](U\x01aU\x01be](hde\x86.",
    "laughs as a type": b"\x80\x02" + NESTED + b"cnumpy\ndtype\nhd\x85R.",
    "laughs as a codec": b"\x80\x02" + NESTED + b"c_codecs\nencode\nU\x01ahd\x86R.",
    "laughs as text": b"\x80\x02" + NESTED + b"c_codecs\nencode\nhdU\x06latin1\x86R.",
    "laughs as a truth": b"\x80\x02" + NESTED + b"cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\nU\x02b1\x85Rhd\x86R.",
    "laughs as a shape": python2_file([python2_array(b"abc").replace(b"M\x03\x00\x85", b"hd")] * 4).replace(
        b"\x80\x02", b"\x80\x02" + NESTED
    ),
    "laughs as a side": python2_file([python2_array(b"abc").replace(b"M\x03\x00", b"hd")] * 4).replace(
        b"\x80\x02", b"\x80\x02" + NESTED
    ),
    "laughs as a state": b"\x80\x02" + NESTED + b"cnumpy\ndtype\nU\x02u1\x85Rhdb.",
    "itself": b"\x80\x02]q\x00h\x00a](\x88e\x86.",
    "itself as a shape": b"\x80\x02" + python2_array(b"abc").replace(b"M\x03\x00\x85", b"]q\x00h\x00a"),
    "lists": b"\x80\x02" + b"]" * 2_000_000 + b".",
    "thirty thousand deep": b"\x80\x02" + b"]" * 30_000 + b"a" * 29_999 + b".",
    "bytes": b"\x80\x04]\x8e" + HUGE + b"a.",
    "text": b"\x80\x04]\x8d" + HUGE + b"a.",
    "bytearray": b"\x80\x05]\x96" + HUGE + b"a.",
    "string": b"\x80\x02]T\xff\xff\xff\x7fa.",
    "negative string": b"\x80\x02]T\xff\xff\xff\xffa.",
    "frame": b"\x80\x04\x95" + HUGE + b"].",
    "memo": b"\x80\x02]r\xff\xff\xff\x7f.",
    "memo as text": b"]p999999999\n.",
    "digits": b"I" + b"9" * 100_000 + b"\n.",
    "the same text again": b"\x80\x02(X" + MILLION + b"x" * 1_000_000 + b"q\x000" + MANY * ENCODE + b".",
    "the same bytes again": b"\x80\x05(\x96" + MILLION + bytes(4 + 1_000_000) + b"q\x000" + MANY * FROM_BUFFER + b".",
    "text as a side": python2_file([python2_array(b"abc").replace(b"M\x03\x00\x85", TEXT_AS_SIDE)] * 4),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_cannot_ask_for_much_memory(tmp_path: Path, name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(PairFileError):
            read(tmp_path, BOMBS[name])
        assert tracemalloc.get_traced_memory()[1] < 10 * len(BOMBS[name]) + 5_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_of_the_smallest_images_stay_within_the_opcodes_of_their_size(tmp_path: Path, protocol: int) -> None:
    images = [np.full(600, number % 256, np.uint8) for number in range(4000)]
    found, same = read(tmp_path, pickle.dumps((images, [np.bool_(n % 2) for n in range(2000)]), protocol))
    assert (len(found), sum(same)) == (4000, 1000)


def test_a_file_with_more_opcodes_than_its_size_can_need_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_files, "FREE_OPCODES", 5)
    with pytest.raises(PairFileError, match=r"some\.bin .* more than 6 opcodes, which images of its size do not need"):
        read(tmp_path, b"]" * 20 + b".")


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "some.bin"
    with path.open("wb") as file:
        file.truncate(pair_files.LARGEST_FILE + 1)
    for use in (open_pairs, describe_pairs):
        tracemalloc.start()
        with pytest.raises(EvaluationFileError, match=r"some\.bin is larger than the limit of 4,294,967,296 bytes"):
            use(PairFileSet(path=str(path)))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
        tracemalloc.stop()


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.bin", tmp_path):
        with pytest.raises(FileNotFoundError, match="there is no file"):
            read_file(path)


@given(st.data())
def test_a_damaged_file_is_read_or_refused_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    arrays = [np.frombuffer(each, np.uint8) for each in IMAGES]
    content = bytearray(pickle.dumps((arrays, [np.bool_(same) for same in SAME]), data.draw(st.integers(0, 5))))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.bin"
    path.write_bytes(content)
    try:
        read_file(path)
    except PairFileError:
        return
