"""insightface's `.bin` files: pickles from an untrusted source, parsed so that nothing in them can run.

Three measures make this safe. Only opcodes that build lists, tuples, numbers, text and bytes are allowed. The few
functions such files call are replaced by stand-ins in this module, so that not even numpy sees their arguments. Sizes
are checked before anything is allocated, so that a small file cannot request much memory.
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

from gif_core.protocols.pairs import Pairs
from gif_core.protocols.sets.files import EvaluationFiles
from gif_core.protocols.sets.pair_set import EncodedImages, PairSet
from schemas.errors import GifError

LARGEST_FILE: Final = 2**32
FREE_OPCODES: Final = 20_000
BYTES_OF_AN_OPCODE: Final = 16
"""An opcode may create an object of about 60 bytes, so the number of opcodes is limited by the file size: an image
takes up to 35 opcodes and has more than 600 bytes. Small files may use `FREE_OPCODES` in addition."""
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
"""Size in bytes of the length field of variable-length arguments."""
PUTS: Final = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
BYTES: Final[set[str | bytes]] = {"u1", "|u1", b"u1", b"|u1"}
TRUTHS: Final[set[str | bytes]] = {"b1", "|b1", b"b1", b"|b1"}
LATIN: Final[set[str | bytes]] = {"latin1", "latin-1", b"latin1", b"latin-1"}


class PairFileError(GifError, ValueError):
    """Not a valid `.bin` file, or one that contains more than images and pairs."""


@dataclass(frozen=True)
class PairFile:
    """2P encoded images, of which 2i and 2i + 1 are pair i, and whether each pair is of one identity."""

    images: list[bytes]
    same_P: NDArray[np.bool_]


def read_bin(where: str) -> PairSet:
    """Read the pairs of a `.bin`; an image that occurs in several pairs is kept once."""
    found = parse_pair_file(EvaluationFiles(where).read(most=LARGEST_FILE), where)
    numbers: dict[bytes, int] = {}
    rows_P2 = np.array([numbers.setdefault(image, len(numbers)) for image in found.images]).reshape(-1, 2)
    return PairSet(EncodedImages(where, list(numbers)), Pairs(rows_P2[:, 0], rows_P2[:, 1], found.same_P))


def parse_pair_file(content: bytes, name: str) -> PairFile:
    """Parse a `.bin` written by Python 2 or 3; raise `PairFileError` with its `name` if it is anything else.

    The caller refuses files larger than `LARGEST_FILE` before reading them.
    """
    try:
        _check_opcodes(content)
        return _check_pairs(_Reader(content).load())
    except Exception as error:
        raise PairFileError(f"{name} is not a file of pairs: {error!s:.300}") from error


class _Type:
    """Stands in for `numpy.dtype`; only uint8 and bool are allowed."""

    def __init__(self, name: str | bytes, *_: object) -> None:
        if not _is_one_of(name, BYTES | TRUTHS):
            raise PairFileError(f"images are arrays of uint8, not of {_show(name)}")
        self.is_bytes = name in BYTES

    def __setstate__(self, state: object) -> None:
        """Ignore byte order and alignment, which single bytes do not have."""


class _Array:
    """Stands in for an array: its bytes."""

    content = b""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, _, self.content = state
        _check_array(self.content, kind, shape)


class _Reader(pickle.Unpickler):
    """Builds plain values; every function the pickle names is a stand-in or refused."""

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
        """Return the stand-in for a name."""
        try:
            return self.stand_ins[f"{module}.{name}"]
        except KeyError:
            raise PairFileError(f"it refers to {module:.80}.{name:.80}, which is not allowed") from None

    def _encode(self, text: str, codec: str | bytes) -> bytes:
        """Return bytes that Python 3 wrote for Python 2: as text of the characters 0 to 255."""
        if not _is_one_of(codec, LATIN) or not isinstance(text, str):
            raise PairFileError(f"it encodes text as {_show(codec)}, not as latin1")
        self._spend(len(text))
        return text.encode("latin1")

    def _array(self, buffer: bytes | bytearray, kind: _Type, shape: tuple[int, ...], *_: object) -> _Array:
        """Return an array as pickle protocol 5 stores it."""
        self._spend(len(buffer))
        array = _Array()
        array.content = bytes(buffer)
        _check_array(array.content, kind, shape)
        return array

    def _spend(self, size: int) -> None:
        """Limit the bytes that are copied: in a valid file all copies together are smaller than the file."""
        self.left -= size
        if self.left < 0:
            raise PairFileError("its contents expand to more than its size")


def _check_array(content: bytes, kind: _Type, shape: tuple[int, ...]) -> None:
    """Refuse all arrays but a row of bytes, or a column, as early OpenCV returned encoded images."""
    if not (isinstance(kind, _Type) and kind.is_bytes and isinstance(content, bytes)):
        raise PairFileError("images must be arrays of uint8")
    plain = isinstance(shape, tuple) and all(isinstance(side, int) for side in shape)
    if not plain or shape not in ((len(content),), (len(content), 1)):
        found = f"{shape!s:.80}" if plain else "no shape at all"
        raise PairFileError(f"an encoded image is a row of {len(content)} bytes, not an array of {found}")


def _is_one_of(value: object, known: set[str | bytes]) -> bool:
    """Whether it is one of these strings; nested lists, which could take forever to compare, are not compared."""
    return isinstance(value, str | bytes) and value in known


def _show(value: object) -> str:
    return f"{value!r:.20}" if isinstance(value, str | bytes) else f"a {type(value).__name__}"


def _truth(kind: _Type, content: bytes) -> bool:
    """Stands in for numpy's scalars, of which only bool is allowed."""
    if not isinstance(kind, _Type) or kind.is_bytes or not _is_one_of(content, {b"\0", b"\1"}):
        raise PairFileError("it holds a numpy scalar that is not a bool")
    return content == b"\1"


def _check_opcodes(content: bytes) -> None:
    """Refuse opcodes that are not needed, and sizes and memo positions beyond what the file holds."""
    stored, most = 0, FREE_OPCODES + len(content) // BYTES_OF_AN_OPCODE
    for count, (name, argument) in enumerate(_opcodes(content)):
        if name not in ALLOWED:
            raise PairFileError(f"the pickle opcode {name} is not allowed")
        if count == most:
            raise PairFileError(f"it has more than {most:,} opcodes, which images of its size do not need")
        if name == "FRAME" and int.from_bytes(argument, "little") > len(content):
            raise PairFileError("it announces more bytes than it has")
        if name in PUTS:
            # The unpickler allocates every memo position up to the given one.
            place = int(argument) if name == "PUT" else int.from_bytes(argument, "little")
            if place > stored:
                raise PairFileError(f"it stores a value at memo position {place} after {stored} values")
            stored += 1


def _opcodes(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield names and arguments up to STOP; `pickletools.genops` does not accept the text pickles of Python 2."""
    name, end = "", 0
    while name != "STOP":
        code = content[end : end + 1].decode("latin1")
        if code not in OPCODES:
            raise PairFileError(f"there is no pickle opcode at byte {end}")
        name, start = OPCODES[code].name, end + 1
        end = _argument_end(content, start, OPCODES[code])
        if not start <= end <= len(content):
            raise PairFileError(f"it is truncated, or {name} at byte {start - 1} announces more bytes than it has")
        yield name, content[start:end]


def _argument_end(content: bytes, start: int, opcode: pickletools.OpcodeInfo) -> int:
    """Return where an opcode's argument ends: fixed size, terminated by newlines, or with a length field."""
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
        raise PairFileError("it does not hold a list of images and a list of bools")
    images = [image.content if isinstance(image, _Array) else image for image in found[0]]
    same = found[1]
    if not all(isinstance(image, bytes) and image for image in images):
        raise PairFileError("not all of its images are bytes")
    if not same or not all(isinstance(truth, bool) for truth in same):
        raise PairFileError("its list of same pairs does not hold only True and False")
    if len(images) != 2 * len(same):
        raise PairFileError(f"it has {len(images)} images for {len(same)} pairs")
    return PairFile(images, np.array(same, np.bool_))
