"""Damages small sound files in every way and reads them: `python fuzz.py <format> <files> <seed>`, JSON at the end.

Whatever was done to a file, the reader must end soon, with records, faults or one clear error, after a bounded
number of reads, in little memory: the address space is limited, and a file that asks for more fails.
"""

import faulthandler
import io
import json
import os
import pickle
import resource
import signal
import struct
import sys
import tarfile
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gif_core.images import BadImageError, BlockChecker, ImageLimits, check_image, gather
from gif_core.protocols.sets.bin import PairFileError, parse_pair_file
from gif_core.readers import PackedReader, open_reader
from gif_core.readers.base import is_label
from gif_core.readers.columns import UnreadableTableError
from gif_core.readers.files import Blob
from schemas.ingestion import RecordIOSource, Source, TableSource, WebDatasetSource
from schemas.loading import ConfigError, load_config
from schemas.safe_yaml import UnsafeYamlError, parse_yaml

LIMITS = ImageLimits(16, 4096)
ROOM = 2**30
"""Bytes of address space that an input may take, beyond what the process has at its beginning."""
SLOWEST = 5.0
"""Seconds of processor time for an input; then the system ends the process, also within a library."""
MAGIC = struct.pack("<I", 0xCED7230A)
NUMBERS = [0, 1, 2, 3, 7, 8, 24, 31, 32, 255, 256, 2**15, 2**16 - 1, 2**24, 2**29 - 1, 2**31 - 1, 2**31, 2**32 - 1,
           2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1]  # fmt: skip


class Place(NamedTuple):
    """A number in a file: where, of how many bytes, and in which order."""

    start: int
    width: int
    order: str = "little"


class Seed(NamedTuple):
    """A sound file, the numbers in it that say how long something is, and what makes its checksums right again."""

    content: bytes
    places: list[Place]
    mend: Callable[[bytes], bytes] = bytes


class Damage:
    """Ways to damage a file, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.ways = [self.flip, self.change, self.delete, self.insert, self.cut, self.repeat, self.copy, self.number]

    def __call__(self, seed: Seed) -> bytes:
        content = bytearray(seed.content)
        for _ in range(1 + int(self.rng.integers(3))):
            if self.rng.random() < 0.3 and seed.places:
                self.misstate(content, seed.places[int(self.rng.integers(len(seed.places)))])
            elif content:
                self.ways[int(self.rng.integers(len(self.ways)))](content, int(self.rng.integers(len(content))))
        return seed.mend(bytes(content)) if self.rng.random() < 0.7 else bytes(content)

    def misstate(self, content: bytearray, place: Place) -> None:
        """Say another length; octal digits when it is text."""
        start, width, order = place
        if self.rng.random() < 0.5:
            near = int.from_bytes(content[start : start + width], "little" if order == "little" else "big")
            value = near + int(self.rng.integers(-9, 10))
        else:
            value = NUMBERS[int(self.rng.integers(len(NUMBERS)))]
        if order == "octal":
            text = b"%0*o" % (width - 1, value % 8 ** (width - 1))
            content[start : start + width] = text + b"\0"
        else:
            content[start : start + width] = (value % 256**width).to_bytes(width, order)  # type: ignore[arg-type]

    def flip(self, content: bytearray, at: int) -> None:
        content[at] ^= 1 << int(self.rng.integers(8))

    def change(self, content: bytearray, at: int) -> None:
        content[at] = int(self.rng.choice([0, 1, 2, 16, 17, 0x7F, 0x80, 0xFE, 0xFF, int(self.rng.integers(256))]))

    def delete(self, content: bytearray, at: int) -> None:
        del content[at : at + 1 + int(self.rng.integers(40))]

    def insert(self, content: bytearray, at: int) -> None:
        content[at:at] = self.rng.bytes(1 + int(self.rng.integers(40)))

    def cut(self, content: bytearray, at: int) -> None:
        if self.rng.random() < 0.3:
            del content[at:]

    def repeat(self, content: bytearray, at: int) -> None:
        content[at:at] = content[at : at + 1 + int(self.rng.integers(300))] * (1 + int(self.rng.integers(3)))

    def copy(self, content: bytearray, at: int) -> None:
        start = int(self.rng.integers(len(content)))
        part = content[start : start + 1 + int(self.rng.integers(64))]
        content[at : at + len(part)] = part

    def number(self, content: bytearray, at: int) -> None:
        width = int(self.rng.choice([2, 4, 8]))
        self.misstate(content, Place(at - at % width, width, "little" if self.rng.random() < 0.5 else "big"))


def noise(*shape: int) -> np.ndarray:
    return cv2.GaussianBlur(np.random.default_rng(0).integers(0, 256, shape, np.uint8), (3, 3), 0)


def encode(ending: str, *options: int, image: np.ndarray | None = None) -> bytes:
    encoded: bytes = cv2.imencode(f".{ending}", noise(24, 24, 3) if image is None else image, options)[1].tobytes()
    return encoded


def jpeg_seeds() -> list[Seed]:
    plain = encode("jpg", cv2.IMWRITE_JPEG_QUALITY, 50)
    exif = b"Exif\0\0II*\0\x08\0\0\0\1\0" + struct.pack("<HHIHH", 0x112, 3, 1, 6, 0) + bytes(4) + plain[:100]
    some = [
        plain,
        encode("jpg", image=noise(24, 24)),
        encode("jpg", cv2.IMWRITE_JPEG_SAMPLING_FACTOR, 0x111111, cv2.IMWRITE_JPEG_OPTIMIZE, 1),
        encode("jpg", cv2.IMWRITE_JPEG_RST_INTERVAL, 1),
        encode("jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
        plain[:2] + struct.pack(">BBH", 0xFF, 0xE1, len(exif) + 2) + exif + plain[2:],
    ]
    return [Seed(content, jpeg_places(content)) for content in some]


def jpeg_places(content: bytes) -> list[Place]:
    """Lengths of segments, sizes, samplings, and how many codes there are of each length."""
    places, position, marker = [], 2, 0
    while marker != 0xDA:
        marker = content[position + 1]
        places.append(Place(position + 2, 2, "big"))
        if marker in (0xC0, 0xC2):
            places += [Place(position + 5, 2, "big"), Place(position + 7, 2, "big"), Place(position + 9, 1)]
            places += [Place(position + 11 + 3 * i, 1) for i in range(content[position + 9])]
        if marker == 0xC4:
            places += [Place(position + 5 + i, 1) for i in range(16)]
        position += 2 + int.from_bytes(content[position + 2 : position + 4], "big")
    return places


def png_seeds() -> list[Seed]:
    exif = b"II*\0\x08\0\0\0\1\0" + struct.pack("<HHIHH", 0x112, 3, 1, 6, 0) + bytes(4)
    plain = encode("png")
    chunks = b"".join(struct.pack(">I", len(c)) + k + c + bytes(4) for k, c in ((b"eXIf", exif), (b"tEXt", b"a\0b")))
    some = [
        plain,
        encode("png", image=noise(24, 24)),
        encode("png", cv2.IMWRITE_PNG_BILEVEL, 1, image=noise(24, 24) & 128),
        encode("png", image=noise(24, 24, 4)),
        seal_png(plain[:33] + chunks + plain[33:]),
    ]
    return [Seed(content, png_places(content), seal_png) for content in some]


def png_places(content: bytes) -> list[Place]:
    places, position = [Place(16, 4, "big"), Place(20, 4, "big"), Place(24, 1), Place(25, 1), Place(28, 1)], 8
    while position < len(content):
        places.append(Place(position, 4, "big"))
        position += 12 + int.from_bytes(content[position : position + 4], "big")
    return places


def seal_png(content: bytes) -> bytes:
    out, position = bytearray(content), 8
    while position + 12 <= len(content):
        end = position + 8 + int.from_bytes(content[position : position + 4], "big")
        out[end : end + 4] = zlib.crc32(content[position + 4 : end]).to_bytes(4, "big") if end + 4 <= len(out) else b""
        position = end + 4
    return bytes(out)


def webp_seeds() -> list[Seed]:
    sizes = [Place(4, 4), Place(16, 4), Place(21, 4), Place(24, 3), Place(26, 2), Place(27, 3), Place(28, 2)]
    alpha = noise(24, 24, 4)
    some = [encode("webp", cv2.IMWRITE_WEBP_QUALITY, quality) for quality in (50, 101)]
    some += [encode("webp", cv2.IMWRITE_WEBP_QUALITY, quality, image=alpha) for quality in (50, 101)]
    return [Seed(content, sizes) for content in some]


def bmp_seeds() -> list[Seed]:
    places = [Place(start, 4) for start in (2, 10, 14, 18, 22, 30, 34, 46)] + [Place(26, 2), Place(28, 2)]
    runs = b"".join(bytes([24, i, 0, 0]) for i in range(24)) + b"\0\1"
    head = b"BM" + struct.pack(
        "<IIIIiiHHIIIIII", 1078 + len(runs), 0, 1078, 40, 24, 24, 1, 8, 1, len(runs), 0, 0, 256, 0
    )
    some = [encode("bmp"), encode("bmp", image=noise(24, 24)), head + bytes(1024) + runs]
    return [Seed(content, places) for content in some]


def recordio_seeds() -> list[Seed]:
    def frame(data: bytes) -> bytes:
        parts = data.split(MAGIC)
        kinds = [0] if len(parts) == 1 else [1, *[2] * (len(parts) - 2), 3]
        return b"".join(MAGIC + struct.pack("<I", k << 29 | len(p)) + p for k, p in zip(kinds, parts, strict=True))

    image = encode("jpg", cv2.IMWRITE_JPEG_QUALITY, 10, image=noise(16, 16))
    image += bytes(-len(image) % 4)
    faces = [struct.pack("<IfQQ", 0, label, label, 0) + image for label in range(3)]
    several = struct.pack("<IfQQ3f", 3, 0, 0, 0, 7, 8, 9) + image
    split = struct.pack("<IfQQ", 0, 5, 0, 0) + MAGIC + image[:8] + MAGIC + image[8:]
    ranges = [struct.pack("<IfQQ2f", 2, 0, 0, 0, first, last) for first, last in ((4, 6), (1, 2))]
    streams = [[*faces, several, split], [ranges[0], *faces, ranges[1]], [split, split, faces[0]]]
    return [Seed(content, record_places(content)) for content in (b"".join(map(frame, some)) for some in streams)]


def record_places(content: bytes) -> list[Place]:
    heads = [at for at in range(0, len(content), 4) if content[at : at + 4] == MAGIC]
    return [Place(at + offset, 4) for at in heads for offset in (0, 4, 8, 12)]


def index_of(content: bytes) -> bytes:
    """An index of every whole or first part, as damaged as its file."""
    heads = [at for at in range(0, len(content) - 7, 4) if content[at : at + 4] == MAGIC and content[at + 7] < 0x40]
    return b"".join(b"%d\t%d\n" % pair for pair in enumerate(heads))


def tar_seeds() -> list[Seed]:
    image = encode("jpg", cv2.IMWRITE_JPEG_QUALITY, 10, image=noise(16, 16))
    members = {
        "a/1.jpg": image,
        "a/1.cls": b"7",
        "2.jpg": image,
        "2.json": b'{"label": "x"}',
        "n" * 120 + "/3.png": image,
    }
    return [seed for kind in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT) for seed in [tar_seed(members, kind)]]


def tar_seed(members: dict[str, bytes], kind: int) -> Seed:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    content = out.getvalue()[: archive.offset + 1024]
    heads = [at for at in range(0, len(content), 512) if content[at + 257 : at + 262] == b"ustar"]
    places = [Place(at + 124, 12, order) for at in heads for order in ("octal", "big")]
    return Seed(content, [*places, *(Place(at + 156, 1) for at in heads)], seal_tar)


def seal_tar(content: bytes) -> bytes:
    out = bytearray(content)
    for at in range(0, len(content) - 511, 512):
        if out[at + 257 : at + 262] == b"ustar":
            out[at + 148 : at + 156] = b" " * 8
            out[at + 148 : at + 156] = b"%06o\0 " % sum(out[at : at + 512])
    return bytes(out)


def faces_table(labels: Any) -> pa.Table:
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    cells = [{"bytes": bytes([i]) * 20, "path": f"{i}.jpg"} for i in range(5)] + [None]
    about = {"info": {"features": {"label": {"names": ["a", "b", "c"], "_type": "ClassLabel"}}}}
    found = pa.table({"image": pa.array(cells, image), "label": pa.array(labels)})
    return found.replace_schema_metadata({b"huggingface": json.dumps(about).encode()})


NUMBERED, NAMED = [0, 0, 1, 1, 2, None], ["x", "x", "y", "y", "z", None]


def parquet_seeds() -> list[Seed]:
    plain = {"compression": "none", "use_dictionary": False}
    delta = {"label": "DELTA_BYTE_ARRAY", "image.bytes": "DELTA_LENGTH_BYTE_ARRAY"}
    kinds: list[tuple[list[Any], dict[str, Any]]] = [
        (NUMBERED, {**plain, "write_statistics": False, "store_schema": False}),
        (NAMED, {"compression": "none", "row_group_size": 3}),
        (NUMBERED, {"compression": "snappy", "row_group_size": 4}),
        (NAMED, {"compression": "zstd", "data_page_version": "2.0"}),
        (NAMED, {**plain, "column_encoding": delta}),
    ]
    return [parquet_seed(labels, options) for labels, options in kinds]


def parquet_seed(labels: list[Any], options: dict[str, Any]) -> Seed:
    out = io.BytesIO()
    pq.write_table(faces_table(labels), out, **options)
    content = out.getvalue()
    footer = int.from_bytes(content[-8:-4], "little")
    return Seed(content, [Place(len(content) - 8, 4), *(Place(len(content) - 8 - i, 1) for i in range(1, footer, 3))])


def arrow_seeds() -> list[Seed]:
    kinds: list[tuple[Any, list[Any], str | None, bool]] = [
        (pa.ipc.new_stream, NUMBERED, None, False),
        (pa.ipc.new_file, NAMED, None, False),
        (pa.ipc.new_stream, NUMBERED, "lz4", False),
        (pa.ipc.new_file, NAMED, "zstd", False),
        (pa.ipc.new_stream, NAMED, None, True),
    ]
    return [arrow_seed(*kind) for kind in kinds]


def arrow_seed(make: Any, labels: list[Any], compression: str | None, encoded: bool) -> Seed:
    found, out = faces_table(labels), io.BytesIO()
    if encoded:
        found = found.set_column(1, "label", found["label"].dictionary_encode())
    with make(out, found.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(found, max_chunksize=3)
    content = out.getvalue()
    words = range(0, len(content) - 8, 8)
    small = [at for at in words if 0 < int.from_bytes(content[at : at + 8], "little") < 4096]
    heads = [at + 4 for at in words if content[at : at + 4] == b"\xff" * 4]
    return Seed(content, [*(Place(at, 8) for at in small), *(Place(at, 4) for at in heads)])


SEEDS = {
    "jpeg": jpeg_seeds,
    "png": png_seeds,
    "webp": webp_seeds,
    "bmp": bmp_seeds,
    "recordio": recordio_seeds,
    "tar": tar_seeds,
    "parquet": parquet_seeds,
    "arrow": arrow_seeds,
    "yaml": lambda: yaml_seeds(),
    "bin": lambda: bin_seeds(),
    "pth": lambda: weight_seeds("pth"),
    "safetensors": lambda: weight_seeds("safetensors"),
}
IMAGES = ("jpeg", "png", "webp", "bmp")
CHECKER = BlockChecker(LIMITS)


def reason(content: bytes) -> str:
    try:
        check_image(content, LIMITS)
    except BadImageError as error:
        return str(error)
    return ""


def read_image(content: bytes) -> str:
    """Check an image; what is accepted must decode, to a size within the limits."""
    refused = reason(content)
    together = {0: refused, 1: refused} if refused else {}
    assert CHECKER(gather([content, content])) == together, "the checker for many files says something else"
    if refused:
        return refused.partition(":")[0]
    image = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    assert image is not None, "accepted, and cannot be decoded"
    assert min(image.shape[:2]) >= LIMITS.smallest
    assert max(image.shape[:2]) <= LIMITS.largest
    return "accepted"


class Fetches:
    """Counts what is fetched from files."""

    def __init__(self) -> None:
        self.count = self.size = 0
        fetch = Blob._fetch

        def counting(blob: Blob, start: int, end: int) -> bytes:
            self.count, self.size = self.count + 1, self.size + end - start
            return fetch(blob, start, end)

        Blob._fetch = counting  # type: ignore[method-assign]


def read_packed(kind: str, content: bytes, fetches: Fetches) -> str:
    """Read all of a damaged file, and check what came out."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    ending = "rec" if kind == "recordio" else kind
    fs.pipe(f"/x.{ending}", content)
    if kind == "recordio" and len(content) % 2:
        fs.pipe("/x.idx", index_of(content))
    fetches.count = fetches.size = 0
    outcome = read_source(source_of(kind, f"memory://x.{ending}"), f"x.{ending}", len(content))
    assert fetches.count <= 100 + len(content) // 4, "too many reads"
    assert fetches.size <= 2**14 + 40 * len(content), "too many bytes read"
    return outcome


def source_of(kind: str, path: str) -> Source:
    if kind == "recordio":
        return RecordIOSource(path=path)
    return WebDatasetSource(path=path) if kind == "tar" else TableSource(kind=kind, path=path)


def read_source(source: Source, name: str, size: int) -> str:
    try:
        reader = open_reader(source)
        listing = reader.listing
        records = np.arange(len(listing.person_R))
        contents = list(reader.read(records))
        if isinstance(reader, PackedReader):
            assert reader.read_block(records).images() == contents
    except UnreadableTableError as error:
        return "unreadable" if name in str(error) and isinstance(source, TableSource) else "unexplained"
    assert len(contents) == len(listing.file_R) == len(listing.size_R) == len(records) <= size
    assert len(listing.faults) <= size
    assert all(map(is_label, listing.labels))
    texts = [*reader.names(records), *(part for fault in listing.faults for part in fault)]
    assert all(text.encode() for text in texts)
    assert all(type(content) in (bytes, BadImageError) for content in contents)
    total = sum(len(content) for content in contents if isinstance(content, bytes))
    assert total <= (100 * size if isinstance(source, TableSource) else size), "more than the file holds"
    return "whole" if not listing.faults else "faults" if contents else "nothing left"


def yaml_seeds() -> list[Seed]:
    some = [
        b"preset: demo\nseed: 7\ntokenization: {length: 4}\ntraining: &t {epochs: 3, gamma: 2.5}\nstore: 'x'\n",
        b"a: &a [x, y]\nb: &b {p: *a, q: [*a, *a]}\nc:\n  <<: *b\n  d: |\n    text\ne: !!str 5\nf: 2020-01-02\n",
        b'ingestion:\n  sources:\n  - {kind: folder, path: "a\\u00e9"}\n  - kind: bin\n    n: [[1, 2], [3.5e3, ~]]\n',
    ]
    return [Seed(content, []) for content in some]


def read_yaml(content: bytes) -> str:
    """Parse a text and load it as a configuration: a value, or one sentence."""
    try:
        parsed = parse_yaml(content.decode("utf-8", "replace"))
    except UnsafeYamlError as error:
        return "refused" if str(error) else "unexplained"
    with suppress(ConfigError):
        load_config(parsed if isinstance(parsed, dict) else {})
    return "accepted"


def bin_seeds() -> list[Seed]:
    image = encode("jpg", cv2.IMWRITE_JPEG_QUALITY, 10, image=noise(16, 16))
    arrays = [np.frombuffer(image, np.uint8)] * 4
    some = [pickle.dumps(([image] * 4, [True, False]), protocol) for protocol in (2, 4)]
    some.append(pickle.dumps((arrays, [True, False]), 2))
    return [Seed(content, [Place(at, 4) for at in range(0, min(len(content), 200), 7)]) for content in some]


def read_pairs(content: bytes) -> str:
    try:
        found = parse_pair_file(content, "x.bin")
    except PairFileError as error:
        return "refused" if "x.bin" in str(error) else "unexplained"
    assert len(found.images) == 2 * len(found.same_P)
    return "accepted"


def weight_seeds(ending: str) -> list[Seed]:
    """State dicts, in a zip archive and as older versions of PyTorch wrote them, or safetensors."""
    import safetensors.torch
    import torch

    shared = torch.arange(24.0)
    state = {"a.weight": shared.reshape(4, 6), "a.num_batches_tracked": torch.tensor(7), "b.half": torch.ones(3).half()}
    if ending == "safetensors":
        content = safetensors.torch.save(state)
        return [Seed(content, [Place(0, 8)])]
    files = [io.BytesIO() for _ in range(2)]
    torch.save({"state_dict": {**state, "c.view": shared[:6]}}, files[0])
    torch.save(state, files[1], _use_new_zipfile_serialization=False)
    return [Seed(file.getvalue(), [Place(at, 4) for at in range(0, file.tell(), 13)]) for file in files]


def read_tensors(content: bytes, ending: str) -> str:
    from gif_core.backbones import WeightsError, read_weights

    path = Path(tempfile.gettempdir(), f"gif-fuzz-{os.getpid()}.{ending}")
    path.write_bytes(content)
    try:
        weights = read_weights(path)
    except WeightsError as error:
        return "refused" if str(path) in str(error) else "unexplained"
    finally:
        path.unlink()
    assert sum(tensor.nbytes for tensor in weights.values()) <= 10 * len(content)
    return "accepted"


READERS: dict[str, Callable[[bytes], str]] = {
    **dict.fromkeys(IMAGES, read_image),
    "yaml": read_yaml,
    "bin": read_pairs,
    "pth": partial(read_tensors, ending="pth"),
    "safetensors": partial(read_tensors, ending="safetensors"),
}


def main() -> None:
    kind, files, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    seeds, damage, fetches = SEEDS[kind](), Damage(seed), Fetches()
    read = READERS.get(kind) or (lambda content: read_packed(kind, content, fetches))
    for some in seeds:
        assert read(some.content) in ("accepted", "whole", "faults"), "a sound file was refused"
    pages = int(open("/proc/self/statm").read().split()[0])  # noqa: PTH123, SIM115
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM,) * 2)
    before, outcomes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, Counter[str]()
    faulthandler.register(signal.SIGPROF, chain=True)
    for number in range(files):
        content = damage(seeds[number % len(seeds)])
        signal.setitimer(signal.ITIMER_PROF, SLOWEST)
        try:
            outcomes[read(content)] += 1
        except BaseException:
            sys.stderr.write(f"\nfile {number} of {kind}, seed {seed}: {content.hex()}\n")
            raise
    signal.setitimer(signal.ITIMER_PROF, 0)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    json.dump({"files": files, "grown": grown, "outcomes": outcomes}, sys.stdout)


if __name__ == "__main__":
    main()
