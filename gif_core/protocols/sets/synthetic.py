"""Synthetic benchmark sets: drawn identities in the file formats of the real sets."""

# Shapes: N faces, 52 = five landmarks with two coordinates, 23 = a 2 x 3 affine map.

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from gif_core.protocols.pairs import draw_pairs, pair_rows
from gif_core.protocols.sets.ijb import CROPS, GALLERIES, IjbName, meta_files
from gif_core.synthetic import draw_face, draw_jpeg, find_landmarks, shot_of
from gif_core.writers import PAIR_FILE, ExportInfo, Face, write_pair_file
from schemas.ingestion import MOST_DRAWN

FIRST_IDENTITY: Final = MOST_DRAWN
"""Identities from this number on do not occur in any synthetic training set."""
SAMPLES: Final = 8
"""Images per identity in a synthetic `.bin`."""
FOLDS: Final = 10
PROBES: Final = 3
"""Maximum number of probe templates per identity."""
LAYOUT: Final = 701
CROP: Final = 702
"""Second element of the seeds used here."""
LOOSENESS: Final = 1.5
"""Side of a loose crop as a multiple of the side of the face."""
FACE_SIDES: Final = (80, 150)


def write_synthetic_bin(folder: Path, *, identities: int, pairs: int, seed: int) -> Path:
    """Write a `.bin` with as many same as different pairs; return its path."""
    labels_N = np.repeat(np.arange(identities), SAMPLES)
    rows = pair_rows(draw_pairs(labels_N, pairs=pairs, seed=seed, folds=FOLDS)).tolist()
    images = {row: draw_jpeg(seed, FIRST_IDENTITY + row // SAMPLES, row % SAMPLES) for row in sorted(set(rows))}
    folder.mkdir(parents=True, exist_ok=True)
    faces = (Face(row // SAMPLES, images[row]) for row in rows)
    for _ in write_pair_file(faces, ExportInfo([""] * identities, len(rows)), folder):
        pass
    return folder / PAIR_FILE


def write_synthetic_ijb(folder: Path, *, identities: int, seed: int, name: IjbName = "IJB-C") -> Path:
    """Write `meta/` and `loose_crop/`; return the folder.

    Every identity is enrolled in one of the two galleries with a template of several media; its other templates are
    probes. Pairs are all combinations of an enrolled template and a probe.
    """
    for part in ("meta", CROPS):
        (folder / part).mkdir(parents=True, exist_ok=True)
    layout = _lay_out(identities, seed)
    files = {what: folder / file for what, file in meta_files(name).items()}
    files["faces"].write_text("".join(f"{n}.jpg {face.template} {face.media}\n" for n, face in layout.numbered()))
    files["points"].write_text("".join(_write_crop(folder / CROPS, n, face, seed) for n, face in layout.numbered()))
    pairs = [(e, p, int(layout.owner[e] == layout.owner[p])) for e in layout.enrolled for p in layout.probes]
    files["pairs"].write_text("".join(f"{enrolled} {probe} {same}\n" for enrolled, probe, same in pairs))
    first, second = GALLERIES[name]
    listed = {first: layout.enrolled[::2], second: layout.enrolled[1::2], "probes": layout.probes}
    for part, templates in listed.items():
        rows = "".join(f"{template},{layout.owner[template]}\n" for template in templates)
        files[part].write_text(f"TEMPLATE_ID,SUBJECT_ID\n{rows}")
    return folder


@dataclass(frozen=True)
class _Face:
    identity: int
    sample: int
    template: int
    media: int


@dataclass
class _Layout:
    """Which identity is in which template and media, before anything is drawn."""

    faces: list[_Face] = field(default_factory=list)
    owner: dict[int, int] = field(default_factory=dict)
    enrolled: list[int] = field(default_factory=list)
    probes: list[int] = field(default_factory=list)
    medias: int = 0

    def numbered(self) -> Iterator[tuple[int, _Face]]:
        """Return the faces with the numbers of their images."""
        return enumerate(self.faces, start=1)

    def add_template(self, identity: int, sample: int, frames: list[int]) -> int:
        """Add a template with one media per number of frames; return the identity's next unused sample."""
        template = len(self.owner) + 1
        self.owner[template] = identity + 1
        for count in frames:
            self.medias += 1
            self.faces += [_Face(identity, sample + frame, template, self.medias) for frame in range(count)]
            sample += count
        return sample


def _lay_out(identities: int, seed: int) -> _Layout:
    layout, rng = _Layout(), np.random.default_rng([seed, LAYOUT])
    for identity in range(identities):
        sample = layout.add_template(identity, 0, rng.integers(1, 4, 3).tolist())
        layout.enrolled.append(len(layout.owner))
        for _ in range(rng.integers(2, PROBES + 1)):
            sample = layout.add_template(identity, sample, rng.integers(1, 4, rng.integers(1, 3)).tolist())
            layout.probes.append(len(layout.owner))
    return layout


def _write_crop(folder: Path, number: int, face: _Face, seed: int) -> str:
    """Draw one loosely cropped image; return its line of landmarks and detector score."""
    image, points_52, score = draw_loose(seed, FIRST_IDENTITY + face.identity, face.sample)
    cv2.imwrite(str(folder / f"{number}.jpg"), cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
    coordinates = " ".join(f"{value:.3f}" for value in points_52.ravel())
    return f"{number}.jpg {coordinates} {score:.4f}\n"


def draw_loose(seed: int, identity: int, sample: int) -> tuple[NDArray[np.uint8], NDArray[np.float64], float]:
    """Draw a rotated and scaled face in a larger image; return the image, its landmarks and a detector score."""
    rng = np.random.default_rng([seed, CROP, identity, sample])
    side = int(rng.integers(*FACE_SIDES))
    around, angle = round(LOOSENESS * side), rng.uniform(-25, 25)
    centre = around / 2 + rng.uniform(-0.1, 0.1, 2) * side
    turn_23 = np.array(cv2.getRotationMatrix2D((side / 2, side / 2), angle, rng.uniform(0.9, 1.1)), np.float64)
    turn_23[:, 2] += centre - side / 2
    face = draw_face(seed, identity, sample, side)
    image = cv2.warpAffine(face, turn_23, (around, around), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    points_52 = find_landmarks(seed, identity, sample, side) @ turn_23[:, :2].T + turn_23[:, 2]
    return np.asarray(image, np.uint8), points_52, _detector_score(seed, identity, sample)


def _detector_score(seed: int, identity: int, sample: int) -> float:
    """Return a score that is lower for turned, blurred or occluded faces."""
    shot = shot_of(seed, identity, sample)
    doubt = (
        0.5 * abs(shot.pose.yaw) + 0.4 * abs(shot.pose.pitch) + 0.15 * shot.blur + 0.2 * (shot.occlusion is not None)
    )
    return float(np.clip(0.9995 - doubt, 0.3, 1.0))
