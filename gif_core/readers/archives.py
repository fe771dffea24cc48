"""Members of tar archives: located by their headers and read in place, without extracting anything.

Links, devices, and members whose names point outside the archive are rejected.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gif_core.images import LARGEST_IMAGE
from gif_core.readers.base import Fault
from gif_core.readers.files import Blob, Window

BLOCK: Final = 512
EMPTY: Final = bytes(BLOCK)
LONGEST_TEXT: Final = 2**20
"""Largest member that is read as text, in bytes."""
LONGEST_NAME: Final = 4096
PLAIN: Final = frozenset({b"\0", b"0", b"7"})
"""Type flags of regular files; 7 is an obsolete one."""
LONG_NAME, PAX, PAX_GLOBAL, LONG_LINK, FOLDER = b"L", b"x", b"g", b"K", b"5"
REFUSED: Final = {b"1": "a hard link", b"2": "a symbolic link", b"3": "a device", b"4": "a device", b"6": "a pipe"}
PAX_RECORD: Final = re.compile(rb"(\d{1,20}) ([^=]+)=")


@dataclass(frozen=True)
class Member:
    """A regular file in an archive."""

    name: str
    start: int
    size: int
    text: bytes | None = None
    """Its content, if its ending was requested."""

    @property
    def is_hidden(self) -> bool:
        """Whether its file name starts with a dot, like files that systems leave behind."""
        return self.name.rpartition("/")[2].startswith(".")

    @property
    def key(self) -> str:
        """The name up to the first dot of the file name: members with the same key form a sample."""
        folder, slash, name = self.name.rpartition("/")
        return f"{folder}{slash}{name.partition('.')[0]}"

    @property
    def ending(self) -> str:
        """The rest of the name, with the dot, in lower case."""
        return self.name[len(self.key) :].lower()


class BrokenArchiveError(ValueError):
    """There is no valid header at some position of the file."""


def scan_members(blob: Blob, texts: tuple[str, ...]) -> Iterator[Member | Fault]:
    """The regular files of an archive in order, and faults; members with an ending in `texts` are read.

    After a damaged header the scan resumes at the next valid one.
    """
    window, position, long_name, damaged = Window(blob), 0, "", False
    while position < blob.size:
        header = window.read(position, BLOCK)
        start = position = position + BLOCK
        if header == EMPTY:
            continue
        try:
            size, kind = _check_header(header, blob.size - start)
        except BrokenArchiveError as error:
            if not damaged:
                yield Fault(f"{blob.name}@{start - BLOCK}", str(error))
            damaged, long_name = True, ""
            continue
        position, damaged = start + -(-size // BLOCK) * BLOCK, False
        if kind in (LONG_NAME, PAX):
            long_name = _long_name(kind, window.read(start, min(size, LONGEST_TEXT))) or long_name
        elif kind not in (PAX_GLOBAL, LONG_LINK):
            member = Member(long_name or _short_name(header), start, size)
            long_name = ""
            if kind != FOLDER:
                yield _take(window, member, kind, texts)


def _take(window: Window, member: Member, kind: bytes, texts: tuple[str, ...]) -> Member | Fault:
    refusal = _refusal(member, kind)
    if refusal:
        return Fault(f"{window.blob.name}#{member.name[:LONGEST_NAME]}", refusal)
    if member.ending in texts and member.size <= LONGEST_TEXT:
        return Member(member.name, member.start, member.size, window.read(member.start, member.size))
    return member


def _refusal(member: Member, kind: bytes) -> str:
    """The reason why a member is rejected; empty if it is not."""
    if kind not in PLAIN:
        return f"refused: {REFUSED.get(kind, f'a member of type {kind!r}')}"
    if member.name.startswith("/") or ".." in member.name.split("/"):
        return "refused: its name leads out of the archive"
    if len(member.name) > LONGEST_NAME:
        return f"refused: a name of {len(member.name)} characters"
    return f"too large: a member of {member.size} bytes" if member.size > LARGEST_IMAGE else ""


def _check_header(header: bytes, left: int) -> tuple[int, bytes]:
    """Size and type flag, after checking the checksum and that the member is within the file."""
    if len(header) < BLOCK:
        raise BrokenArchiveError("truncated: the file ends within a header")
    if _number(header[148:156]) != sum(header) - sum(header[148:156]) + 8 * 32:
        raise BrokenArchiveError("damaged: no member's header stands here")
    size = _number(header[124:136])
    if not 0 <= size <= left:
        raise BrokenArchiveError(f"truncated: a member of {size} bytes with {left} left in the file")
    return size, header[156:157]


def _number(content: bytes) -> int:
    """A number in octal digits, or in binary if it is too large for them."""
    if content[0] & 0x80:
        return int.from_bytes(content, "big") & (1 << 8 * len(content) - 1) - 1
    try:
        return int(content.strip(b" \0") or b"0", 8)
    except ValueError:
        raise BrokenArchiveError("damaged: a header with a number that is none") from None


def _short_name(header: bytes) -> str:
    name, prefix = (_text(part) for part in struct.unpack("100s245x155s12x", header))
    return f"{prefix}/{name}" if prefix and header[257:263] == b"ustar\0" else name


def _long_name(kind: bytes, content: bytes) -> str:
    """The name in a GNU long-name member, or the path in a pax header."""
    if kind == LONG_NAME:
        return _text(content)
    path, position = "", 0
    while record := PAX_RECORD.match(content, position):
        end = min(max(position + int(record.group(1)), record.end()), len(content))
        if record.group(2) == b"path":
            path = _text(content[record.end() : end - 1])
        position = end
    return path


def _text(content: bytes) -> str:
    return content.partition(b"\0")[0].decode("utf-8", "replace")
