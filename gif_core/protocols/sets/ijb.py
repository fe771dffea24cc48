"""IJB-B and IJB-C in insightface's layout: `meta/` with text files, and `loose_crop/` with the images."""

# Shapes: N faces (an image in a template), T templates, P pairs, G templates of a gallery, B faces that are loaded,
# 52 = five landmarks with two coordinates.

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gif_core.images import are_usable, load_each, read_face
from gif_core.protocols.sets.files import EvaluationFileError, EvaluationFiles
from gif_core.protocols.sets.text_columns import Columns, Kind, read_columns

IjbName = Literal["IJB-B", "IJB-C"]
GALLERIES: Final[dict[IjbName, tuple[str, str]]] = {"IJB-B": ("S1", "S2"), "IJB-C": ("G1", "G2")}
FACES: Final[dict[str, Kind]] = {"image": "text", "template": "integer", "media": "integer"}
PAIRS: Final[dict[str, Kind]] = {"first template": "integer", "second template": "integer", "same": "truth"}
COORDINATES: Final = tuple(f"{axis}{number}" for number in range(1, 6) for axis in "xy")
POINTS: Final[dict[str, Kind]] = {"image": "text", **dict.fromkeys(COORDINATES, "number"), "detector score": "number"}
ENROLLED: Final[dict[str, Kind]] = {"template": "integer", "subject": "integer"}
CROPS: Final = "loose_crop"


@dataclass(frozen=True)
class Enrolment:
    """The templates of a gallery or of the probes, by row, with the subject of each."""

    template_G: NDArray[np.int64]
    subject_G: NDArray[np.int64]


@dataclass(frozen=True)
class IjbFaces:
    """The faces of a set, without pixels; templates are rows 0 … T−1 in the order of their ids."""

    where: str
    images: list[str]
    template_N: NDArray[np.int64]
    media_N: NDArray[np.int64]
    points_N52: NDArray[np.float64]
    detector_N: NDArray[np.float64]
    """The detector's score of each face."""
    template_ids_T: NDArray[np.int64]

    def __len__(self) -> int:
        """Return the number of faces."""
        return len(self.images)


@dataclass(frozen=True)
class IjbMeta:
    """The contents of `meta/`."""

    faces: IjbFaces
    left_P: NDArray[np.int32]
    right_P: NDArray[np.int32]
    same_P: NDArray[np.bool_]
    galleries: dict[str, Enrolment]
    probes: Enrolment | None
    """None, and no galleries, when the set has no files for 1:N."""


def meta_files(name: IjbName) -> dict[str, str]:
    """Return the files of `meta/` by what they hold."""
    start = f"meta/{name.lower().replace('-', '')}"
    galleries = {gallery: f"{start}_1N_gallery_{gallery}.csv" for gallery in GALLERIES[name]}
    return {
        "faces": f"{start}_face_tid_mid.txt",
        "pairs": f"{start}_template_pair_label.txt",
        "points": f"{start}_name_5pts_score.txt",
        **galleries,
        "probes": f"{start}_1N_probe_mixed.csv",
    }


def describe_ijb(files: EvaluationFiles, name: IjbName, crops: Mapping[str, int] | None = None) -> dict[str, str]:
    """Digest a set for keys: its text files by content, its images by name and size."""
    present = [file for file in meta_files(name).values() if files.has(file)]
    return {"meta": files.digest(present), "images": files.digest_sizes(CROPS, crops)}


def read_ijb(files: EvaluationFiles, name: IjbName, crops: Mapping[str, int] | None = None) -> IjbMeta:
    """Read `meta/`; errors name file, line and column.

    With `crops`, the listing of `loose_crop/`, missing images are errors too.
    """
    faces = read_faces(files, name, crops)
    pairs = _read(files, meta_files(name)["pairs"], PAIRS)
    left_P, right_P = (_find_rows(pairs, column, faces) for column in list(PAIRS)[:2])
    enrolled = _read_enrolments(files, name, faces)
    probes = enrolled.pop("probes", None)
    return IjbMeta(faces, left_P, right_P, pairs.array("same").astype(np.bool_), enrolled, probes)


def read_faces(files: EvaluationFiles, name: IjbName, crops: Mapping[str, int] | None = None) -> IjbFaces:
    """Read images with their templates and landmarks, without the pairs."""
    names = meta_files(name)
    faces = _read(files, names["faces"], FACES)
    if not len(faces):
        raise EvaluationFileError(f"{faces.where} names no image")
    if crops is not None:
        _check_crops(faces, crops)
    template_ids_T, template_N = np.unique(faces.array("template"), return_inverse=True)
    points_N52, detector_N = _match_points(faces, _read(files, names["points"], POINTS))
    return IjbFaces(
        faces.where, faces.texts("image"), template_N, faces.array("media"), points_N52, detector_N, template_ids_T
    )


class IjbImages:
    """The faces of a set, aligned by their five landmarks."""

    def __init__(self, files: EvaluationFiles, faces: IjbFaces) -> None:
        """Nothing is read yet."""
        self.files, self.faces = files, faces

    def load(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return RGB faces [B, 112, 112, 3] in the order of `indices`."""
        return load_each(indices, self._load_one)

    def _load_one(self, index: int) -> NDArray[np.uint8]:
        name = f"{CROPS}/{self.faces.images[index]}"
        try:
            return read_face(self.files.read(name), self.faces.points_N52[index])
        except ValueError as error:
            raise EvaluationFileError(f"{self.files.where(name)}: {error}") from None


def _read(files: EvaluationFiles, name: str, kinds: dict[str, Kind]) -> Columns:
    if name.endswith(".csv"):
        return read_columns(files.where(name), files.read(name), kinds, separator=",", header=1)
    return read_columns(files.where(name), files.read(name), kinds, separator=" ")


def _check_crops(faces: Columns, crops: Mapping[str, int]) -> None:
    """Raise if an image is not in the listing."""
    for row, image in enumerate(faces.texts("image")):
        if f"{CROPS}/{image}" not in crops:
            raise faces.fault(row, "image", f"there is no image {CROPS}/{image}")


def _match_points(faces: Columns, points: Columns) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return landmarks [N, 5, 2] and detector scores [N] of the faces; the file may be in any order."""
    names = points.table["image"].combine_chunks()
    first = pc.index_in(names, names).to_numpy()
    repeated = np.flatnonzero(first != np.arange(len(points)))
    if len(repeated):
        raise points.fault(int(repeated[0]), "image", f"{names[int(repeated[0])]} is listed twice")
    found = pc.index_in(faces.table["image"], names).combine_chunks()
    if found.null_count:
        row = int(np.flatnonzero(found.is_null().to_numpy(zero_copy_only=False))[0])
        raise faces.fault(row, "image", f"{faces.table['image'][row]} has no line in {points.where}")
    rows_N = found.to_numpy()
    points_N52 = np.stack([points.array(name)[rows_N] for name in COORDINATES], axis=1).reshape(-1, 5, 2)
    useless = np.flatnonzero(~are_usable(points_N52))
    if len(useless):
        raise points.fault(int(rows_N[useless[0]]), COORDINATES[0], "no face can be aligned by these five points")
    return points_N52, points.array("detector score")[rows_N]


def _find_rows(table: Columns, column: str, faces: IjbFaces) -> NDArray[Any]:
    """Return the rows of the templates that a column names by id."""
    rows = pc.index_in(table.table[column], pa.array(faces.template_ids_T)).combine_chunks()
    if rows.null_count:
        row = int(np.flatnonzero(rows.is_null().to_numpy(zero_copy_only=False))[0])
        raise table.fault(row, column, f"template {table.table[column][row]} has no image in {faces.where}")
    found: NDArray[Any] = rows.to_numpy()
    return found


def _read_enrolments(files: EvaluationFiles, name: IjbName, faces: IjbFaces) -> dict[str, Enrolment]:
    """Read galleries and probes; none if the set has none of their files, an error if it has only some."""
    named = {part: meta_files(name)[part] for part in (*GALLERIES[name], "probes")}
    if not any(files.has(file) for file in named.values()):
        return {}
    enrolled: dict[str, Enrolment] = {}
    for part, file in named.items():
        table = _read(files, file, ENROLLED)
        if not len(table):
            raise EvaluationFileError(f"{table.where} names no template")
        if part != "probes":
            _check_disjoint(table, enrolled)
        rows = _find_rows(table, "template", faces).astype(np.int64)
        enrolled[part] = _one_row_each(table, rows, is_gallery=part != "probes")
    return enrolled


def _check_disjoint(table: Columns, galleries: Mapping[str, Enrolment]) -> None:
    """Raise if a subject is in two galleries: it must be a mate in one of them and an impostor in the other."""
    for name, gallery in galleries.items():
        both = np.flatnonzero(np.isin(table.array("subject"), gallery.subject_G))
        if len(both):
            subject = table.array("subject")[both[0]]
            raise table.fault(int(both[0]), "subject", f"subject {subject} is also enrolled in gallery {name}")


def _one_row_each(table: Columns, rows: NDArray[np.int64], *, is_gallery: bool) -> Enrolment:
    """Merge the lines of each template; a template has one subject, and in a gallery a subject has one template."""
    subjects = table.array("subject")
    template_G, first_G, place = np.unique(rows, return_index=True, return_inverse=True)
    wrong = np.flatnonzero(subjects != subjects[first_G][place])
    if len(wrong):
        raise table.fault(int(wrong[0]), "subject", "an earlier line gives the template another subject")
    in_order = np.sort(first_G)
    _, first = np.unique(subjects[in_order], return_index=True)
    if is_gallery and len(first) < len(in_order):
        row = int(np.delete(in_order, first).min())
        raise table.fault(row, "subject", f"subject {subjects[row]} is already enrolled with another template")
    return Enrolment(template_G, subjects[first_G])
