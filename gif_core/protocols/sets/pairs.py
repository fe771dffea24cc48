"""Pairs of images from third-party files: an insightface `.bin`, LFW's `pairs.txt`, or a Parquet table."""

# Shapes: P pairs, B images asked for.

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gif_core.images import IMAGE_ENDINGS, Images, Landmarks, load_each, read_face, read_landmarks
from gif_core.protocols.pairs import Pairs
from gif_core.protocols.sets.bin import LARGEST_FILE, parse_pair_file
from gif_core.protocols.sets.files import EvaluationFileError, EvaluationFiles
from schemas.evaluation import LfwSet, PairFileSet, PairTableSet

LONGEST_NUMBER: Final = 9
"""Digits; no person has a billion images."""
SIDES: Final = ("left", "right")


@dataclass(frozen=True)
class PairSet:
    """Images, and which of them make pairs."""

    images: Images
    pairs: Pairs


class EncodedImages:
    """Images in memory as they are in their files."""

    def __init__(self, where: str, contents: Sequence[bytes]) -> None:
        """`where` is for messages."""
        self.where, self.contents = where, contents

    def load(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """RGB images [B, 112, 112, 3]."""
        return load_each(indices, self._load_one)

    def _load_one(self, index: int) -> NDArray[np.uint8]:
        try:
            return read_face(self.contents[index])
        except ValueError as error:
            raise EvaluationFileError(f"{self.where}, image {index}: {error}") from None


class FolderImages:
    """Images in files of a folder, aligned when there are landmarks."""

    def __init__(self, files: EvaluationFiles, names: Sequence[str], landmarks: Landmarks | None) -> None:
        """Nothing is read yet."""
        self.files, self.names, self.landmarks = files, names, landmarks

    def load(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """RGB images [B, 112, 112, 3]."""
        return load_each(indices, self._load_one)

    def _load_one(self, index: int) -> NDArray[np.uint8]:
        name = self.names[index]
        content = self.files.read(name)
        try:
            return read_face(content, self.landmarks.points[name] if self.landmarks else None)
        except ValueError as error:
            raise EvaluationFileError(f"{self.files.where(name)}: {error}") from None
        except KeyError:
            raise EvaluationFileError(f"{self.files.where(name)} has no line in the file of landmarks") from None


def describe_pairs(given: PairFileSet | LfwSet | PairTableSet) -> dict[str, Any]:
    """What a set holds, for keys: files by content, a folder of images by names and sizes."""
    names = ("path", "pairs", "images", "landmarks")
    addresses = {name: value for name in names if (value := getattr(given, name, None))}
    most = LARGEST_FILE if isinstance(given, PairFileSet) else None
    holds = {name: EvaluationFiles(address).digest([""], most) for name, address in addresses.items()}
    if isinstance(given, LfwSet):
        holds["folder"] = EvaluationFiles(given.folder).digest_sizes()
    return holds


def open_pairs(given: PairFileSet | LfwSet | PairTableSet) -> PairSet:
    """Read the pairs, and the images where they are in the same file."""
    if isinstance(given, PairFileSet):
        return read_bin(given.path)
    return read_lfw(given) if isinstance(given, LfwSet) else read_pair_table(given)


def read_bin(where: str) -> PairSet:
    """Pair i is the images 2i and 2i + 1; one that is in several pairs is kept once."""
    found = parse_pair_file(EvaluationFiles(where).read(most=LARGEST_FILE), where)
    numbers: dict[bytes, int] = {}
    rows_P2 = np.array([numbers.setdefault(image, len(numbers)) for image in found.images]).reshape(-1, 2)
    return PairSet(EncodedImages(where, list(numbers)), Pairs(rows_P2[:, 0], rows_P2[:, 1], found.same_P))


def read_lfw(given: LfwSet) -> PairSet:
    """The pairs of a `pairs.txt`, in its order, which is that of the folds."""
    folder = EvaluationFiles(given.folder)
    reader = _PairsText(given.pairs, frozenset(folder.listing()))
    for line, words in _split_lines(EvaluationFiles(given.pairs).read()):
        reader.take(line, words)
    reader.check_count()
    landmarks = read_landmarks(given.landmarks) if given.landmarks else None
    left_P, right_P = np.array(reader.rows, np.int64).reshape(-1, 2).T
    return PairSet(
        FolderImages(folder, list(reader.images), landmarks), Pairs(left_P, right_P, np.array(reader.same, np.bool_))
    )


@dataclass
class _PairsText:
    """What has been read of a `pairs.txt` so far."""

    where: str
    present: frozenset[str]
    images: dict[str, int] = field(default_factory=dict)
    rows: list[tuple[int, int]] = field(default_factory=list)
    same: list[bool] = field(default_factory=list)
    announced: tuple[int, int] | None = None

    def take(self, line: int, words: list[str]) -> None:
        """One line: the numbers at the top, a pair of one person, or of two."""
        if line == 1 and len(words) <= 2 and all(_is_number(word) for word in words):
            self.announced = (int(words[0]), int(words[1])) if len(words) == 2 else (1, int(words[0]))
        elif len(words) == 3:
            self._add(self._find(line, words[0], words[1], 2), self._find(line, words[0], words[2], 3), same=True)
        elif len(words) == 4:
            self._add(self._find(line, words[0], words[1], 2), self._find(line, words[2], words[3], 4), same=False)
        else:
            raise EvaluationFileError(
                f"{self.where}, line {line}: a pair has three columns (name, number, number) or four (name, number, "
                f"name, number), not {len(words)}"
            )

    def check_count(self) -> None:
        """There must be as many pairs as the first line says."""
        if not self.rows:
            raise EvaluationFileError(f"{self.where} names no pair")
        folds, each = self.announced or (0, 0)
        if self.announced and len(self.rows) != 2 * folds * each:
            words = f"announces {folds} × ({each} + {each}) pairs and has {len(self.rows)}"
            raise EvaluationFileError(f"{self.where}, line 1: it {words}")

    def _find(self, line: int, person: str, number: str, column: int) -> int:
        """The row of an image that must be in the folder."""
        if not _is_number(number):
            raise EvaluationFileError(f"{self.where}, line {line}, column {column}: {number[:40]!r} is no number")
        stem = f"{person}/{person}_{int(number):04d}"
        for ending in IMAGE_ENDINGS:
            if f"{stem}{ending}" in self.present:
                return self.images.setdefault(f"{stem}{ending}", len(self.images))
        raise EvaluationFileError(f"{self.where}, line {line}, column {column}: there is no image {stem}.jpg")

    def _add(self, left: int, right: int, *, same: bool) -> None:
        self.rows.append((left, right))
        self.same.append(same)


def read_pair_table(given: PairTableSet) -> PairSet:
    """Rows of a Parquet file, whose images are in it or in another."""
    table = _read_table(given.path, ["left", "right", "same"])
    if not pa.types.is_boolean(table["same"].type):
        raise EvaluationFileError(f"{given.path}: column 'same' must hold true and false, not {table['same'].type}")
    same_P = table["same"].to_numpy()
    if given.images:
        images = _images(_read_table(given.images, ["image"])["image"], f"{given.images}, column 'image'")
        left_P, right_P = (_row_numbers(table[name], f"{given.path}, column {name!r}", len(images)) for name in SIDES)
        return PairSet(EncodedImages(given.images, images), Pairs(left_P, right_P, same_P))
    images = [image for name in SIDES for image in _images(table[name], f"{given.path}, column {name!r}")]
    left_P = np.arange(len(same_P))
    return PairSet(EncodedImages(given.path, images), Pairs(left_P, left_P + len(left_P), same_P))


def _read_table(address: str, columns: list[str]) -> Any:
    content = EvaluationFiles(address).read()
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        missing = [name for name in columns if name not in file.schema_arrow.names]
        if missing:
            raise EvaluationFileError(
                f"{address}: there is no column {missing[0]!r}; it has: {', '.join(file.schema_arrow.names)}"
            )
        table = file.read(columns)
    except (pa.ArrowException, OSError) as error:
        raise EvaluationFileError(f"{address} is not a Parquet file that can be read: {error}") from None
    for name in columns:
        if table[name].null_count:
            row = int(np.flatnonzero(table[name].is_null().to_numpy())[0])
            raise EvaluationFileError(f"{address}, row {row}, column {name!r}: there is nothing in it")
    return table


def _images(column: Any, where: str) -> list[bytes]:
    """Encoded images, as bytes or as Hugging Face has them."""
    kind = column.type
    if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        images = [each["bytes"] for each in column.to_pylist()]
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        images = column.to_pylist()
    else:
        raise EvaluationFileError(f"{where}: images are bytes, or a struct with the field 'bytes', not {kind}")
    for row, image in enumerate(images):
        if not image:
            raise EvaluationFileError(f"{where}, row {row}: there is no image in it")
    return images


def _row_numbers(column: Any, where: str, rows: int) -> NDArray[np.int64]:
    if not pa.types.is_integer(column.type):
        raise EvaluationFileError(f"{where}: with images in another file it must hold row numbers, not {column.type}")
    numbers_P: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
    outside = np.flatnonzero((numbers_P < 0) | (numbers_P >= rows))
    if len(outside):
        raise EvaluationFileError(f"{where}, row {outside[0]}: there is no image {numbers_P[outside[0]]} among {rows}")
    return numbers_P


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= LONGEST_NUMBER


def _split_lines(content: bytes) -> Iterator[tuple[int, list[str]]]:
    """The words of every line that has any; names may have blanks where tabs separate."""
    for number, line in enumerate(content.decode("utf-8-sig", "replace").split("\n"), start=1):
        words = line.strip().split("\t") if "\t" in line else line.split()
        if any(words):
            yield number, [word.strip() for word in words]
