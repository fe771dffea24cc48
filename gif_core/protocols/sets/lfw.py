"""LFW's format: the pairs of a `pairs.txt` and the images of a folder."""

# Shapes: P pairs, B images that are loaded.

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gif_core.images import IMAGE_ENDINGS, Landmarks, load_each, read_face, read_landmarks
from gif_core.protocols.pairs import Pairs
from gif_core.protocols.sets.files import EvaluationFileError, EvaluationFiles
from gif_core.protocols.sets.pair_set import PairSet
from schemas.evaluation import LfwSet

LONGEST_NUMBER: Final = 9
"""Digits of an image number."""


class FolderImages:
    """Images in files of a folder, aligned when there are landmarks."""

    def __init__(self, files: EvaluationFiles, names: Sequence[str], landmarks: Landmarks | None) -> None:
        """Keep the names; images are read when they are loaded."""
        self.files, self.names, self.landmarks = files, names, landmarks

    def load(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return RGB images [B, 112, 112, 3]."""
        return load_each(indices, self._load_one)

    def _load_one(self, index: int) -> NDArray[np.uint8]:
        name = self.names[index]
        content = self.files.read(name)
        try:
            return read_face(content, self.landmarks.points[name] if self.landmarks else None)
        except ValueError as error:
            raise EvaluationFileError(f"{self.files.where(name)}: {error}") from None
        except KeyError:
            raise EvaluationFileError(f"{self.files.where(name)} is not in the file of landmarks") from None


def read_lfw(given: LfwSet) -> PairSet:
    """Read the pairs of a `pairs.txt` in its order, which defines the folds."""
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
    """The contents of a `pairs.txt` while it is read."""

    where: str
    present: frozenset[str]
    images: dict[str, int] = field(default_factory=dict)
    rows: list[tuple[int, int]] = field(default_factory=list)
    same: list[bool] = field(default_factory=list)
    announced: tuple[int, int] | None = None

    def take(self, line: int, words: list[str]) -> None:
        """Read one line: the numbers in the first line, a same pair, or a different pair."""
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
        """Raise unless there are as many pairs as the first line announces."""
        if not self.rows:
            raise EvaluationFileError(f"{self.where} names no pair")
        folds, each = self.announced or (0, 0)
        if self.announced and len(self.rows) != 2 * folds * each:
            announced = f"{folds} × ({each} + {each}) pairs"
            raise EvaluationFileError(f"{self.where}, line 1: announces {announced}, but there are {len(self.rows)}")

    def _find(self, line: int, identity: str, number: str, column: int) -> int:
        """Return the row of an image, which must be in the folder."""
        if not _is_number(number):
            raise EvaluationFileError(f"{self.where}, line {line}, column {column}: {number[:40]!r} is not a number")
        stem = f"{identity}/{identity}_{int(number):04d}"
        for ending in IMAGE_ENDINGS:
            if f"{stem}{ending}" in self.present:
                return self.images.setdefault(f"{stem}{ending}", len(self.images))
        raise EvaluationFileError(f"{self.where}, line {line}, column {column}: there is no image {stem}.jpg")

    def _add(self, left: int, right: int, *, same: bool) -> None:
        self.rows.append((left, right))
        self.same.append(same)


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= LONGEST_NUMBER


def _split_lines(content: bytes) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and words of every non-empty line; names may contain blanks where tabs separate."""
    for number, line in enumerate(content.decode("utf-8-sig", "replace").split("\n"), start=1):
        words = line.strip().split("\t") if "\t" in line else line.split()
        if any(words):
            yield number, [word.strip() for word in words]
