"""A gallery in use: the newest version, its templates and its model."""

# Shapes: B images, K candidates, D dimensions.

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from gif_core.artifacts import ArtifactStore, GalleryError, latest_version, list_galleries
from gif_core.detection import FaceMode
from gif_core.galleries.index import IndexKind, build_index
from gif_core.galleries.segments import ATTEMPTS, read_templates
from gif_core.galleries.templates import Templates
from gif_core.recognition import AnyImage, Candidate, Identified, Recognizer
from schemas.galleries import GalleryVersion


class EnrolledGallery:
    """Identifies faces among enrolled people.

    >>> gallery = EnrolledGallery.open("artifacts", "staff")
    >>> gallery.identify("photo.jpg")[0].candidates[0].label
    'ANNA'
    """

    def __init__(
        self, recognizer: Recognizer, version: GalleryVersion, templates: Templates, index: IndexKind = "auto"
    ) -> None:
        """Take the templates of a version; `open` reads them from a store."""
        self.recognizer, self.version, self.labels = recognizer, version, templates.labels
        self._index = build_index(templates.sums_ND, index)

    @classmethod
    def open(cls, store: ArtifactStore | str, name: str, *, device: str = "auto", index: IndexKind = "auto") -> Self:
        """The newest version of a gallery, with the model it was enrolled with.

        Args:
            store: The store, or its folder or URL.
            name: The gallery.
            device: Where the model runs.
            index: `exact` compares with every template; `compressed` first compresses them, which pays for many
                queries among many identities; `auto` chooses by the number of identities.
        """
        opened = ArtifactStore(store) if isinstance(store, str) else store
        version, templates = read_newest(opened, name, digests=False)
        if not len(templates):
            raise GalleryError(f"the gallery {name} is empty: 'gif enroll FOLDER --gallery {name}' adds people")
        recognizer = Recognizer.load(opened, f"training/{version.model}", device)
        return cls(recognizer, version, templates, index)

    def identify(
        self,
        images: AnyImage | Sequence[AnyImage] | NDArray[np.uint8],
        top: int = 5,
        *,
        faces: FaceMode = "auto",
    ) -> list[Identified]:
        """The `top` enrolled identities of each image, best first, and whether the first one counts as known."""
        return self.find(self.recognizer.embed(images, faces=faces), top)

    def find(self, z_BD: NDArray[np.float32], top: int = 5) -> list[Identified]:
        """What `identify` answers for features of the gallery's model."""
        cosines_BK, rows_BK = self._index.search(z_BD, top)
        found = []
        for cosines, rows in zip(cosines_BK.tolist(), rows_BK.tolist(), strict=True):
            some = [
                Candidate(row, self.labels[row], None, cosine)
                for row, cosine in zip(rows, cosines, strict=True)
                if row >= 0
            ]
            found.append(Identified(self._knows(cosines[0]), tuple(some)))
        return found

    def describe(self) -> str:
        """One sentence: the threshold and its error rate."""
        known = self.version.threshold
        if known is None:
            return f"There is no threshold between known and unknown: {self.version.missing}."
        return (
            f"Known from a cosine of {known.cosine:.3f} on, which at most {known.fpir:.1%} of {known.unknown_images:,} "
            f"images of {known.unknown_identities:,} unknown people reach (FPIR; {known.origin})."
        )

    def _knows(self, cosine: float) -> bool | None:
        return None if self.version.threshold is None else cosine >= self.version.threshold.cosine


def read_newest(store: ArtifactStore, name: str, *, digests: bool = True) -> tuple[GalleryVersion, Templates]:
    """The newest version and its templates, with `digests` of images; read again if one is removed meanwhile."""
    for _ in range(ATTEMPTS):
        version = latest_version(store, name)
        if version is None:
            known = ", ".join(list_galleries(store)) or "none yet; 'gif enroll FOLDER --gallery NAME' makes one"
            raise GalleryError(f"there is no gallery {name!r} in {store.storage.url}; there are: {known}")
        try:
            return version, read_templates(store, name, version, digests=digests)
        except FileNotFoundError:
            continue
    raise GalleryError(f"files of the gallery {name} are missing in {store.storage.url}: enrol its photographs again")
