"""Reading verification files (`.bin`): a pickle that anybody may have made, opened so that nothing in it can run.

Three things keep it harmless. Only opcodes that build lists, tuples, numbers, text and bytes are let through.
The few functions such files call are stand-ins of this module, so that not even numpy's own code sees their
arguments. And sizes are checked before anything is allocated: a small file cannot ask for much memory.
"""

# Shapes: P pairs.

import io
import pickle
import pickletools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.errors import GifError

LARGEST_FILE: Final = 2**32
FREE_OPCODES: Final = 20_000
BYTES_OF_AN_OPCODE: Final = 16
"""An opcode may make an object of some 60 bytes, so a file may have but as many as one of its size can need: an image
takes up to 35, and has more than 600 bytes. Small files have `FREE_OPCODES` besides."""
ALLOWED: Final = (
    {"PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK"}
    | {"NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG1"}
    | {"EMPTY_LIST", "LIST", "APPEND", "APPENDS", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"}
    | {"STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"}
    | {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
    | {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET", "LONG_BINGET"}
    | {"GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD"}
)
OPCODES: Final = {opcode.code: opcode for opcode in pickletools.opcodes}
LENGTHS: Final = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
"""Bytes of the length that stands before an argument of any length."""
PUTS: Final = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
BYTES: Final[set[str | bytes]] = {"u1", "|u1", b"u1", b"|u1"}
TRUTHS: Final[set[str | bytes]] = {"b1", "|b1", b"b1", b"|b1"}
LATIN: Final[set[str | bytes]] = {"latin1", "latin-1", b"latin1", b"latin-1"}


class PairFileError(GifError, ValueError):
    """A file that is no verification file, or does what none has to do."""


@dataclass(frozen=True)
class PairFile:
    """2P encoded images, of which 2i and 2i + 1 are pair i, and whether each pair is of one person."""

    images: list[bytes]
    same_P: NDArray[np.bool_]


def parse_pair_file(content: bytes, name: str) -> PairFile:
    """The images and pairs of a `.bin`, written by Python 2 or 3; PairFileError with its `name` if it is anything else.

    Whoever reads the file refuses one above `LARGEST_FILE` before.
    """
    try:
        _check_opcodes(content)
        return _check_pairs(_Reader(content).load())
    except Exception as error:
        raise PairFileError(f"{name} is not a file of pairs: {error!s:.300}") from error


class _Type:
    """Stands in for `numpy.dtype`; of the types there are, bytes and truths alone are allowed."""

    def __init__(self, name: str | bytes, *_: object) -> None:
        if not _is_one_of(name, BYTES | TRUTHS):
            raise PairFileError(f"images are arrays of uint8, not of {_show(name)}")
        self.is_bytes = name in BYTES

    def __setstate__(self, state: object) -> None:
        """The byte order and the like, which single bytes do not have."""


class _Array:
    """Stands in for an array: the bytes it has been given."""

    content = b""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, _, self.content = state
        _check_array(self.content, kind, shape)


class _Reader(pickle.Unpickler):
    """Builds plain values; whatever is asked for by name is one of the stand-ins, or refused."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")
        self.left = len(content)
        of_numpy: dict[str, Any] = {
            "multiarray._reconstruct": lambda *_: _Array(),
            "multiarray.scalar": _truth,
            "numeric._frombuffer": self._array,
        }
        cores = ("numpy.core", "numpy._core")
        self.stand_ins = {f"{core}.{name}": stand_in for core in cores for name, stand_in in of_numpy.items()}
        self.stand_ins |= {"numpy.ndarray": object(), "numpy.dtype": _Type, "_codecs.encode": self._encode}

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for a name."""
        try:
            return self.stand_ins[f"{module}.{name}"]
        except KeyError:
            raise PairFileError(f"it asks for {module:.80}.{name:.80}, which it has no need of") from None

    def _encode(self, text: str, codec: str | bytes) -> bytes:
        """Bytes as Python 3 writes them for Python 2: text of the characters 0 to 255."""
        if not _is_one_of(codec, LATIN) or not isinstance(text, str):
            raise PairFileError(f"it encodes text as {_show(codec)}, not as latin1")
        self._spend(len(text))
        return text.encode("latin1")

    def _array(self, buffer: bytes | bytearray, kind: _Type, shape: tuple[int, ...], *_: object) -> _Array:
        """An array as the newest protocol has it."""
        self._spend(len(buffer))
        array = _Array()
        array.content = bytes(buffer)
        _check_array(array.content, kind, shape)
        return array

    def _spend(self, size: int) -> None:
        """Count bytes that are copied: the copies of an honest file are smaller than the file."""
        self.left -= size
        if self.left < 0:
            raise PairFileError("it unfolds to more than its size")


def _check_array(content: bytes, kind: _Type, shape: tuple[int, ...]) -> None:
    """Refuse all but a row of bytes, or a column, as OpenCV once gave encoded images."""
    if not (isinstance(kind, _Type) and kind.is_bytes and isinstance(content, bytes)):
        raise PairFileError("images are arrays of uint8, and there is another")
    plain = isinstance(shape, tuple) and all(isinstance(side, int) for side in shape)
    if not plain or shape not in ((len(content),), (len(content), 1)):
        found = f"{shape!s:.80}" if plain else "no shape at all"
        raise PairFileError(f"an encoded image is a row of {len(content)} bytes, not an array of {found}")


def _is_one_of(value: object, known: set[str | bytes]) -> bool:
    """Whether it is one of these words. Lists in lists, each twice, would take for ever to compare or to show."""
    return isinstance(value, str | bytes) and value in known


def _show(value: object) -> str:
    return f"{value!r:.20}" if isinstance(value, str | bytes) else f"a {type(value).__name__}"


def _truth(kind: _Type, content: bytes) -> bool:
    """Stands in for numpy's scalars."""
    if not isinstance(kind, _Type) or kind.is_bytes or not _is_one_of(content, {b"\0", b"\1"}):
        raise PairFileError("it holds a number of numpy's that is neither true nor false")
    return content == b"\1"


def _check_opcodes(content: bytes) -> None:
    """Refuse opcodes that are not needed, and sizes and places that lie beyond what the file holds."""
    stored, most = 0, FREE_OPCODES + len(content) // BYTES_OF_AN_OPCODE
    for count, (name, argument) in enumerate(_opcodes(content)):
        if name not in ALLOWED:
            raise PairFileError(f"the pickle opcode {name} has no place in it")
        if count == most:
            raise PairFileError(f"it has more than {most:,} opcodes, which images of its size do not need")
        if name == "FRAME" and int.from_bytes(argument, "little") > len(content):
            raise PairFileError("it announces more bytes than it has")
        if name in PUTS:
            # The unpickler makes room for every place up to the one that is named.
            place = int(argument) if name == "PUT" else int.from_bytes(argument, "little")
            if place > stored:
                raise PairFileError(f"it stores a value at place {place}, after {stored} values")
            stored += 1


def _opcodes(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Names and arguments up to STOP; `pickletools.genops` would not take the text pickles of Python 2."""
    name, end = "", 0
    while name != "STOP":
        code = content[end : end + 1].decode("latin1")
        if code not in OPCODES:
            raise PairFileError(f"there is no pickle opcode at byte {end}")
        name, start = OPCODES[code].name, end + 1
        end = _argument_end(content, start, OPCODES[code])
        if not start <= end <= len(content):
            raise PairFileError(f"it is cut off, or {name} at byte {start - 1} announces more than there is")
        yield name, content[start:end]


def _argument_end(content: bytes, start: int, opcode: pickletools.OpcodeInfo) -> int:
    """Where an opcode's argument ends: after so many bytes, lines, or as many bytes as it says itself."""
    size = opcode.arg.n if opcode.arg else 0
    if size == pickletools.UP_TO_NEWLINE:
        for _ in range(2 if opcode.name in {"GLOBAL", "INST"} else 1):
            start = content.find(b"\n", start) + 1 or len(content) + 1
        return start
    if size >= 0:
        return start + size
    width = LENGTHS[size]
    return start + width + int.from_bytes(content[start : start + width], "little")


def _check_pairs(found: Any) -> PairFile:
    if not isinstance(found, tuple | list) or len(found) != 2 or not all(isinstance(part, list) for part in found):
        raise PairFileError("it does not hold a list of images and a list of truths")
    images = [image.content if isinstance(image, _Array) else image for image in found[0]]
    same = found[1]
    if not all(isinstance(image, bytes) and image for image in images):
        raise PairFileError("not all of its images are bytes")
    if not same or not all(isinstance(truth, bool) for truth in same):
        raise PairFileError("what it says of the pairs is not a list of true and false")
    if len(images) != 2 * len(same):
        raise PairFileError(f"it has {len(images)} images for {len(same)} pairs")
    return PairFile(images, np.array(same, np.bool_))
