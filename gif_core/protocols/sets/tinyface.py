"""TinyFace's test set: folders of single images, whose names begin with the label of the identity."""

# Shapes: N images.

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gif_core.images import IMAGE_ENDINGS
from gif_core.protocols.sets.files import EvaluationFileError, EvaluationFiles
from gif_core.protocols.sets.lfw import FolderImages

TESTING: Final = "Testing_Set"
GALLERY, DISTRACTORS, PROBES = "Gallery_Match", "Gallery_Distractor", "Probe"
NOBODY: Final = -1
"""Label of all distractors: identities that no probe shows."""
LONGEST_LABEL: Final = 9


@dataclass(frozen=True)
class SearchSet:
    """The images of a gallery and the probes that are searched in it, without pixels."""

    images: list[str]
    """Gallery, distractors, then probes, each in the order of names."""
    label_N: NDArray[np.int64]
    probes: int
    """How many images at the end are probes."""
    distractors: int

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.images)

    @property
    def gallery(self) -> int:
        """Images that are searched, with the distractors."""
        return len(self) - self.probes


def tinyface_files(address: str) -> EvaluationFiles:
    """The folder with the three folders of images: the one at the address, or its `Testing_Set`."""
    files = EvaluationFiles(address)
    below = EvaluationFiles(f"{address.rstrip('/')}/{TESTING}")
    return below if below.fs.isdir(below.root) else files


def list_tinyface(files: EvaluationFiles) -> dict[str, int]:
    """Return the images and their sizes; folders below the three, as copies of the set have them, count as well."""
    found = {name: size for part in (GALLERY, DISTRACTORS, PROBES) for name, size in files.listing(part).items()}
    return {name: size for name, size in found.items() if name.lower().endswith(IMAGE_ENDINGS)}


def describe_tinyface(files: EvaluationFiles, listing: Mapping[str, int] | None = None) -> dict[str, str]:
    """Digest a set for keys: its images by name, which holds the label, and size."""
    return {"images": files.digest_sizes(listing=list_tinyface(files) if listing is None else listing)}


def read_tinyface(files: EvaluationFiles, listing: Mapping[str, int] | None = None) -> SearchSet:
    """Read the labels from the names of the files; every probe must have its identity in the gallery."""
    names = list(list_tinyface(files) if listing is None else listing)
    parts = {part: [name for name in names if name.startswith(f"{part}/")] for part in (GALLERY, DISTRACTORS, PROBES)}
    for part in (GALLERY, PROBES):
        if not parts[part]:
            raise EvaluationFileError(f"{files.where(part)} has no image")
    gallery, probes = (list(_labels(files, parts[part])) for part in (GALLERY, PROBES))
    enrolled = set(gallery)
    for name, label in zip(parts[PROBES], probes, strict=True):
        if label not in enrolled:
            raise EvaluationFileError(f"{files.where(name)}: identity {label} has no image in {GALLERY}")
    distractors = len(parts[DISTRACTORS])
    label_N = np.array([*gallery, *[NOBODY] * distractors, *probes], np.int64)
    return SearchSet([name for part in parts.values() for name in part], label_N, len(probes), distractors)


def tinyface_images(files: EvaluationFiles) -> FolderImages:
    """The images of the set, in the order of `read_tinyface`, resized to 112×112 where they are smaller or larger."""
    return FolderImages(files, read_tinyface(files).images, None)


def _labels(files: EvaluationFiles, names: list[str]) -> Iterator[int]:
    """Yield the numbers before the first underscore of the names."""
    for name in names:
        label, underscore, _ = name.rpartition("/")[2].partition("_")
        if not (underscore and label.isascii() and label.isdigit() and len(label) <= LONGEST_LABEL):
            raise EvaluationFileError(
                f"{files.where(name)}: names begin with a number and an underscore, as in 17_2.jpg"
            )
        yield int(label)
