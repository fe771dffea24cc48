"""Enrolment: photographs with labels → templates → a new version of a gallery."""

# Shapes: B images, N identities, D dimensions.

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gif_core.artifacts import ArtifactStore, GalleryError, commit_version
from gif_core.detection import AlignedFace, FaceMode, SeveralFacesError, only_face
from gif_core.galleries.calibration import FPIR, MOST_UNKNOWN, UnknownFaces, calibrate_gallery
from gif_core.galleries.index import ExactIndex
from gif_core.galleries.segments import read_templates, save_segment, segment_path
from gif_core.galleries.templates import Templates, merge, normalize
from gif_core.images import BadImageError, read_image_file
from gif_core.recognition import NotAnImageError, Recognizer, read_faces
from gif_core.runtime import counted
from schemas.galleries import GalleryThreshold, GalleryVersion

AT_ONCE: Final = 256
"""Photographs whose faces are in memory at once."""
Album = Iterable[tuple[str, Path]]
"""Labels and photographs."""


class Refused(NamedTuple):
    """A photograph that was not enrolled."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Faces:
    """Features of photographs, with what a template needs."""

    labels: list[str] = field(default_factory=list)
    features_BD: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 0), np.float32))
    weights: list[float] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)


@dataclass(frozen=True)
class Enrolled:
    """What an enrolment did."""

    version: GalleryVersion
    added: int
    """New images."""
    known: int
    """Images that were enrolled before."""
    refused: list[Refused]
    tested: int
    """New images that were compared with the template of their identity's other images."""
    missed: int
    """Those of them below the threshold, or nearer to another identity."""


def embed_album(recognizer: Recognizer, album: Album, faces: FaceMode = "auto") -> Faces:
    """Features and qualities of all photographs that show one person; others are refused with a reason."""
    found, parts = Faces(), [np.empty((0, 0), np.float32)]
    rest = iter(album)
    while some := list(islice(rest, AT_ONCE)):
        shown = list(_read(some, faces, found))
        if shown:
            parts.append(recognizer.embed(shown))
    features_BD = np.concatenate(parts[1:]) if len(parts) > 1 else parts[0]
    return Faces(found.labels, features_BD, found.weights, found.digests, found.refused)


def _read(album: Sequence[tuple[str, Path]], mode: FaceMode, found: Faces) -> Iterator[AlignedFace]:
    for label, path in album:
        try:
            content = read_image_file(path)
            face = only_face(read_faces(content, mode))
        except (BadImageError, NotAnImageError, SeveralFacesError, OSError) as error:
            found.refused.append(Refused(path, str(error).removeprefix("image 0: ")))
            continue
        found.labels.append(label)
        found.weights.append(face.quality)
        found.digests.append(hashlib.sha256(content).hexdigest())
        yield face


def enroll(
    recognizer: Recognizer,
    store: ArtifactStore,
    name: str,
    album: Album,
    *,
    unknown: Album | None = None,
    faces: FaceMode = "auto",
    fpir: float = FPIR,
) -> Enrolled:
    """Add photographs to a gallery, which the first of them creates, and calibrate its threshold.

    Args:
        recognizer: The model; a gallery has one for good, since features of two models cannot be compared.
        store: The store of the model and the gallery.
        name: The gallery.
        album: Labels and photographs; `read_album` lists a folder.
        unknown: Photographs of people who are not enrolled, for the threshold. By default the held-out identities of
            the model's ingestion.
        faces: How faces are found: `auto`, `aligned` or `detect`.
        fpir: Share of unknown faces that may be taken for an enrolled identity.
    """
    enrolment = Enrolment(recognizer, store, name, fpir)
    enrolment.given = embed_album(recognizer, album, faces)
    enrolment.unknown = _unknown_faces(recognizer, unknown, faces)
    version = commit_version(store, name, enrolment.change)
    for segment in set(enrolment.saved) - set(version.segments):
        store.storage.remove(segment_path(name, segment))
    return enrolment.result(version)


@dataclass
class Enrolment:
    """One enrolment, whose change is computed again when another writer was first."""

    recognizer: Recognizer
    store: ArtifactStore
    name: str
    fpir: float
    given: Faces = field(default_factory=Faces)
    unknown: UnknownFaces | None = None
    saved: list[str] = field(default_factory=list)

    def change(self, newest: GalleryVersion | None) -> dict[str, Any] | None:
        """The fields of the next version; None if nothing changes."""
        before = self._read(newest)
        enrolled = {(label, each) for label, some in zip(before.labels, before.digests, strict=True) for each in some}
        given = zip(self.given.labels, self.given.digests, strict=True)
        self.new = np.array([image not in enrolled for image in given], bool)
        rows = np.flatnonzero(self.new)
        if not len(rows) and newest is None:
            reasons = "; ".join(f"{path}: {reason}" for path, reason in self.given.refused[:3])
            raise GalleryError(f"nobody was enrolled in {self.name}: {reasons or 'there are no photographs'}")
        templates = before
        segments = list(newest.segments) if newest else []
        if len(rows):
            added = self._templates(rows)
            templates = merge([before, added]) if len(before) else added
            self.saved.append(save_segment(self.store, self.name, added))
            segments.append(self.saved[-1])
        self.all, self.threshold = templates, self._calibrate(templates)
        if newest and not len(rows) and self.threshold == newest.threshold:
            return None
        return {
            "model": self.recognizer.model.key,
            "segments": tuple(segments),
            "identities": len(templates),
            "images": templates.images,
            "threshold": self.threshold,
            "missing": "" if self.threshold else "the model has no held-out identities: give photographs of strangers",
            "change": self._say(rows),
        }

    def result(self, version: GalleryVersion) -> Enrolled:
        """What was done, and how well the new images are found without themselves."""
        tested, missed = self._leave_one_out()
        added = int(self.new.sum())
        return Enrolled(version, added, len(self.new) - added, self.given.refused, tested, missed)

    def _read(self, newest: GalleryVersion | None) -> Templates:
        if newest is None:
            return Templates([], np.empty((0, self.given.features_BD.shape[1]), np.float32))
        if newest.model != self.recognizer.model.key:
            raise GalleryError(
                f"{self.name} was enrolled with training/{newest.model[:12]}, and features of two models cannot be "
                f"compared: enrol with --model training/{newest.model[:12]}, or into another gallery"
            )
        return read_templates(self.store, self.name, newest)

    def _say(self, rows: NDArray[np.int64]) -> str:
        people = {self.given.labels[row] for row in rows}
        if not people:
            return "calibrated again"
        return f"enrolled {counted(len(rows), 'image')} of {counted(len(people), 'identity', 'identities')}"

    def _templates(self, rows: NDArray[np.int64]) -> Templates:
        given = self.given
        labels, digests = ([each[row] for row in rows] for each in (given.labels, given.digests))
        return Templates.of(labels, given.features_BD[rows], [given.weights[row] for row in rows], digests)

    def _calibrate(self, templates: Templates) -> GalleryThreshold | None:
        if self.unknown is None or not len(templates):
            return None
        return calibrate_gallery(ExactIndex(templates.sums_ND), self.unknown, self.fpir)

    def _leave_one_out(self) -> tuple[int, int]:
        """New images of identities with others, and those that miss the template without themselves."""
        place = {label: row for row, label in enumerate(self.all.labels)}
        new = [(row, place[self.given.labels[row]]) for row in np.flatnonzero(self.new).tolist()]
        tested = [(row, own) for row, own in new if len(self.all.digests[own]) > 1]
        index, missed = ExactIndex(self.all.sums_ND), 0
        for start in range(0, len(tested), AT_ONCE):
            rows_B, own_B = np.array(tested[start : start + AT_ONCE]).T
            missed += self._count_missed(index, rows_B, own_B)
        return len(tested), missed

    def _count_missed(self, index: ExactIndex, rows_B: NDArray[np.int64], own_B: NDArray[np.int64]) -> int:
        features_BD = self.given.features_BD[rows_B]
        weights_B = np.array(self.given.weights, np.float32)[rows_B]
        own_cosine_B = (normalize(self.all.sums_ND[own_B] - weights_B[:, None] * features_BD) * features_BD).sum(axis=1)
        cosines_BK, rows_BK = index.search(features_BD, 2)
        others_B = np.where(rows_BK == own_B[:, None], -1.0, cosines_BK).max(axis=1)
        needed_B = np.maximum(others_B, self.threshold.cosine if self.threshold else -1.0)
        return int((own_cosine_B < needed_B).sum())


def _unknown_faces(recognizer: Recognizer, album: Album | None, faces: FaceMode) -> UnknownFaces | None:
    if album is not None:
        given = embed_album(recognizer, album, faces)
        if not given.labels:
            raise GalleryError("no photograph of unknown people shows one face, so no threshold can be calibrated")
        return UnknownFaces(given.features_BD, given.labels, "photographs of people who are not enrolled")
    features_UD, identity_U = recognizer.embed_held_out(MOST_UNKNOWN)
    labels = [str(identity) for identity in identity_U.tolist()]
    return UnknownFaces(features_UD, labels, "held-out identities of the model's ingestion") if labels else None
