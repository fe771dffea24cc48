"""Drawn sets in the files of the real ones."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from pydantic import ValidationError

from gif_core.images import align
from gif_core.images.alignment import TEMPLATE, estimate_similarity
from gif_core.protocols.sets import (
    EvaluationFiles,
    IjbImages,
    IjbMeta,
    describe_ijb,
    open_pairs,
    read_ijb,
    write_synthetic_bin,
    write_synthetic_ijb,
)
from gif_core.protocols.sets.synthetic import FIRST_IDENTITY, draw_loose
from gif_core.synthetic import draw_face, find_landmarks, identity_attributes, shot_of
from gif_core.synthetic.attributes import Person
from gif_core.synthetic.canvas import Canvas, ellipse, on_face
from gif_core.synthetic.features import NOSE_LIFT, eye_centre, mouth_corner, nose_y
from schemas.evaluation import PairFileSet
from schemas.ingestion import SyntheticSource

IDENTITIES = 6


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> EvaluationFiles:
    return EvaluationFiles(
        str(write_synthetic_ijb(tmp_path_factory.mktemp("synthetic set"), identities=IDENTITIES, seed=0))
    )


@pytest.fixture(scope="module")
def meta(files: EvaluationFiles) -> IjbMeta:
    return read_ijb(files, "IJB-C")


def test_the_synthetic_set_of_a_bin_is_read_as_one(tmp_path: Path) -> None:
    path = write_synthetic_bin(tmp_path / "new", identities=5, pairs=20, seed=0)
    found = open_pairs(PairFileSet(path=str(path)))
    assert found.pairs.same.tolist() == [True, False] * 20
    assert found.images.load(np.unique(found.pairs.left)).std() > 10
    again = write_synthetic_bin(tmp_path / "again", identities=5, pairs=20, seed=0)
    assert again.read_bytes() == path.read_bytes()
    assert write_synthetic_bin(tmp_path / "other", identities=5, pairs=20, seed=1).read_bytes() != path.read_bytes()


def test_the_synthetic_set_of_ijb_has_templates_of_several_media_and_media_of_several_images(meta: IjbMeta) -> None:
    faces = meta.faces
    medias = [len(np.unique(faces.media_N[faces.template_N == t])) for t in range(len(faces.template_ids_T))]
    assert min(medias) == 1
    assert max(medias) > 2
    assert np.unique(faces.media_N, return_counts=True)[1].max() > 1
    assert 0.3 <= faces.detector_N.min() < faces.detector_N.max() <= 1


def test_the_synthetic_set_of_ijb_has_pairs_and_galleries_of_both_kinds(meta: IjbMeta) -> None:
    assert meta.probes is not None
    owner = dict(zip(meta.probes.template_G.tolist(), meta.probes.subject_G.tolist(), strict=True))
    for gallery in meta.galleries.values():
        owner |= dict(zip(gallery.template_G.tolist(), gallery.subject_G.tolist(), strict=True))
        enrolled = np.isin(meta.probes.subject_G, gallery.subject_G)
        assert 0 < enrolled.sum() < len(enrolled)
    same = [
        owner[left] == owner[right] for left, right in zip(meta.left_P.tolist(), meta.right_P.tolist(), strict=True)
    ]
    assert meta.same_P.tolist() == same
    assert len(owner) == len(meta.faces.template_ids_T)
    assert set(owner.values()) == set(range(1, IDENTITIES + 1))


def test_the_same_seed_gives_the_same_synthetic_set(files: EvaluationFiles, tmp_path: Path) -> None:
    again = EvaluationFiles(str(write_synthetic_ijb(tmp_path / "again", identities=IDENTITIES, seed=0)))
    assert describe_ijb(again, "IJB-C") == describe_ijb(files, "IJB-C")


def test_loose_crops_need_aligning_and_come_out_as_the_face_drawn_upright(
    files: EvaluationFiles, meta: IjbMeta
) -> None:
    """Aligning the loose crop gives about what aligning the drawing itself gives, and far from the crop as it is."""
    aligned = IjbImages(files, meta.faces).load(np.arange(8))
    for number, points in enumerate(meta.faces.points_N52[:8]):
        face = draw_face(0, FIRST_IDENTITY, number)
        expected = align(face, find_landmarks(0, FIRST_IDENTITY, number))
        crop = cv2.imread(files.where(f"loose_crop/{number + 1}.jpg"))[..., ::-1]
        unaligned = cv2.resize(crop, (112, 112), interpolation=cv2.INTER_AREA)
        middle = slice(36, 100)
        error, before = (
            np.abs(image[middle, middle].astype(float) - expected[middle, middle]).mean()
            for image in (aligned[number], unaligned)
        )
        assert error < 0.5 * before
        moved = points @ estimate_similarity(points)[:, :2].T + estimate_similarity(points)[:, 2]
        assert np.abs(moved - TEMPLATE).max() < 20


def test_landmarks_are_where_the_canvas_paints_their_features() -> None:
    """A small dot painted on the eye, the nose or the mouth has its middle at the landmark."""
    for identity in range(4):
        person, shot = Person(*identity_attributes(0, identity).tolist()), shot_of(0, identity, 3)
        places = [eye_centre(person), (0.0, nose_y(person)), mouth_corner(person, shot.expression)]
        points = find_landmarks(0, identity, 3)
        for place, lift, row in zip(places, (0.0, NOSE_LIFT, 0.0), (1, 2, 4), strict=True):
            canvas = Canvas(np.zeros((448, 448, 3), np.uint8), shot.pose)
            canvas.fill(on_face(ellipse(place, (0.02, 0.02)), lift), (255, 255, 255))
            y, x = np.nonzero(canvas.image[..., 0] > 127)
            np.testing.assert_allclose((np.array([x.mean(), y.mean()]) + 0.5) / 4 - 0.5, points[row], atol=0.15)


def test_a_loose_crop_is_larger_than_its_face_and_holds_all_landmarks() -> None:
    for sample in range(20):
        image, points, score = draw_loose(0, FIRST_IDENTITY, sample)
        assert image.shape[0] >= 120
        assert (points > 0).all()
        assert (points < image.shape[0]).all()
        assert 0.3 <= score <= 1


def test_no_source_can_draw_the_identities_of_a_synthetic_set() -> None:
    assert SyntheticSource(identities=FIRST_IDENTITY).identities == FIRST_IDENTITY, "whose last has a lower number"
    with pytest.raises(ValidationError, match="less than or equal to 1000000"):
        SyntheticSource(identities=FIRST_IDENTITY + 1)
