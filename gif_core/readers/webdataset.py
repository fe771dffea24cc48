"""Reading WebDataset: tar files in which the members `key.jpg`, `key.cls` and `key.json` form a sample."""

import json
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gif_core.images import IMAGE_ENDINGS
from gif_core.readers.archives import Member, scan_members
from gif_core.readers.base import Fault, is_label
from gif_core.readers.files import Blob
from gif_core.readers.packed import PackedListing, PackedReader
from schemas.ingestion import WebDatasetSource

LABELS: Final = (".json", ".cls")


@dataclass
class Sample:
    """The members with one key: an image and texts that may label it."""

    key: str
    image: Member | None = None
    texts: dict[str, bytes] = field(default_factory=dict)
    """Contents by ending."""
    others: list[str] = field(default_factory=list)
    """Images with more dots in their names, which do not belong to the sample."""

    def add(self, member: Member) -> None:
        """Add a member with the same key."""
        if member.text is not None:
            self.texts[member.ending] = member.text
        elif member.ending in IMAGE_ENDINGS:
            self.image = self.image or member
        elif member.ending.endswith(IMAGE_ENDINGS):
            self.others.append(member.name)

    def label(self, name: str) -> str | None:
        """The label: the field `name` of the JSON, else the class, else the folder."""
        folders = ["", *(part for part in self.key.split("/")[:-1] if part != ".")]
        found = _json_label(self.texts.get(".json"), name) or _text_label(self.texts.get(".cls")) or folders[-1]
        return found if is_label(found) else None


class WebDatasetReader(PackedReader):
    """Reads tar files; the label is a field of `key.json`, else `key.cls`, else the member's folder."""

    kind, ending, what = "webdataset", ".tar", "tar files (decompress .tar.gz first: they cannot be read in any order)"

    def __init__(self, source: WebDatasetSource) -> None:
        """Find the files; they are scanned on first access to the listing."""
        super().__init__(source.path)
        self.field = source.label
        self.members = bytearray()

    def describe(self) -> dict[str, Any]:
        """A fingerprint of all files, and the field of the labels."""
        return super().describe() | {"label": self.field}

    def names(self, records: NDArray[np.int64]) -> list[str]:
        """File and member."""
        return [self._name(record) for record in records.tolist()]

    def _name(self, record: int) -> str:
        start = self.listing.keys[record]
        member = self.members[start : self.members.index(0, start)].decode()
        return f"{self.blobs[self.listing.files[record]].name}#{member}"

    def list_file(self, listing: PackedListing, number: int, blob: Blob) -> None:
        """Group adjacent members by key, and add samples that have an image and a label."""
        sample = Sample("")
        for found in scan_members(blob, LABELS):
            if isinstance(found, Fault):
                listing.faults.append(found)
            elif not found.is_hidden:
                if found.key != sample.key:
                    self._add(listing, number, blob, sample)
                    sample = Sample(found.key)
                sample.add(found)
        self._add(listing, number, blob, sample)

    def _add(self, listing: PackedListing, number: int, blob: Blob, sample: Sample) -> None:
        image, label = sample.image, sample.label(self.field)
        if image is None:
            reason = "its name has several dots, and a sample's members have all but the last part in common"
            listing.faults += [Fault(f"{blob.name}#{name}", reason) for name in sample.others]
        elif label is None:
            reason = f"no label: neither {self.field} in .json, nor .cls, nor a folder"
            listing.faults.append(Fault(f"{blob.name}#{image.name}", reason))
        else:
            listing.add(label, number, len(self.members), image.start, image.size)
            self.members += image.name.encode() + b"\0"


def _json_label(content: bytes | None, name: str) -> str | None:
    try:
        value = json.loads(content or b"null")
    except (ValueError, RecursionError):
        return None
    label = value.get(name) if isinstance(value, dict) else None
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    return str(label) if isinstance(label, str | int) else None


def _text_label(content: bytes | None) -> str | None:
    try:
        return (content or b"").decode().strip()
    except UnicodeDecodeError:
        return None
