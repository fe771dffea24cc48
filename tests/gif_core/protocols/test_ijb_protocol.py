"""The protocols against plain loops written from their description, on random and on adversarial numbers."""

import numpy as np
import pytest
from sklearn.metrics import roc_curve
from sklearn.preprocessing import normalize

from gif_core.protocols import (
    Flags,
    UndefinedMetricsError,
    identify_templates,
    pool_templates,
    score_pairs,
    verify_templates,
)
from gif_core.protocols import ijb_protocol as ijb
from gif_core.protocols.sets.ijb import Enrolment

FACES, TEMPLATES, DIM = 400, 60, 8


def make_faces(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    template = rng.permutation(np.append(np.arange(TEMPLATES), rng.integers(0, TEMPLATES, FACES - TEMPLATES)))
    return {
        "original": rng.normal(size=(FACES, DIM)).astype(np.float32) * rng.uniform(0.1, 9, (FACES, 1)).astype("f4"),
        "mirror": rng.normal(size=(FACES, DIM)).astype(np.float32),
        "template": template,
        "media": rng.integers(0, 5, FACES) * 1000 - 7,
        "detector": rng.uniform(0.1, 1, FACES),
    }


def pool(faces: dict[str, np.ndarray], flags: Flags) -> np.ndarray:
    def load(start: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        return faces["original"][start:end], faces["mirror"][start:end]

    return pool_templates(load, faces["template"], faces["media"], faces["detector"], TEMPLATES, flags)


def pool_plainly(faces: dict[str, np.ndarray], flags: Flags) -> np.ndarray:
    """Image by image, media by media, template by template."""
    rows = []
    for template in range(TEMPLATES):
        total = np.zeros(DIM)
        for media in set(faces["media"][faces["template"] == template].tolist()):
            members = []
            for face in range(FACES):
                if faces["template"][face] == template and faces["media"][face] == media:
                    feature = faces["original"][face].astype(np.float64)
                    if flags.flip:
                        feature = feature + faces["mirror"][face]
                    if not flags.norm:
                        feature = feature / np.sqrt((feature**2).sum())
                    members.append(feature * (faces["detector"][face] if flags.detector_score else 1))
            total += sum(members) / len(members)
        rows.append(total / np.sqrt((total**2).sum()))
    return np.array(rows)


@pytest.mark.parametrize("flip", [True, False])
@pytest.mark.parametrize("detector_score", [True, False])
@pytest.mark.parametrize("norm", [True, False])
def test_templates_equal_plain_loops_for_all_flags(flip: bool, detector_score: bool, norm: bool) -> None:
    faces, flags = make_faces(), Flags(flip, detector_score, norm)
    np.testing.assert_allclose(pool(faces, flags), pool_plainly(faces, flags), atol=1e-12)


def test_templates_whose_faces_lie_in_several_chunks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    faces = make_faces()
    whole = pool(faces, Flags())
    monkeypatch.setattr(ijb, "POOLED_AT_ONCE", 7)
    np.testing.assert_allclose(pool(faces, Flags()), whole, atol=1e-12)


def test_a_template_whose_features_cancel_out_stays_zero_and_scores_nothing() -> None:
    faces = make_faces()
    faces["original"][faces["template"] == 3] = 0
    template = pool(faces, Flags(flip=False))
    assert not template[3].any()
    assert score_pairs(template, np.array([3], np.int32), np.array([5], np.int32)) == [0]


@pytest.mark.parametrize("pairs", [0, 1, 300, 3500])
@pytest.mark.parametrize(("left_at_once", "sparse"), [(256, 16), (7, 16), (7, 0), (7, 10**9)])
def test_scores_are_the_dot_products_of_the_pairs_whatever_way_they_are_computed(
    monkeypatch: pytest.MonkeyPatch, pairs: int, left_at_once: int, sparse: int
) -> None:
    monkeypatch.setattr(ijb, "LEFT_AT_ONCE", left_at_once)
    monkeypatch.setattr(ijb, "SPARSE", sparse)
    monkeypatch.setattr(ijb, "GATHERED_AT_ONCE", 50)
    rng = np.random.default_rng(pairs)
    template = normalize(rng.normal(size=(TEMPLATES, DIM)))
    left, right = rng.integers(0, TEMPLATES, (2, pairs)).astype(np.int32)
    expected = np.array([template[a] @ template[b] for a, b in zip(left, right, strict=True)])
    np.testing.assert_allclose(score_pairs(template, left, right), expected, atol=1e-15)


SCORES = {
    "random": lambda rng, same: rng.normal(size=len(same)) + same,
    "ties": lambda rng, same: rng.integers(0, 40, len(same)) / 8 + same,
    "all equal": lambda rng, same: np.full(len(same), 0.25),
    "perfect": lambda rng, same: same.astype(float),
    "reversed": lambda rng, same: 1.0 - same,
    "two values": lambda rng, same: (rng.random(len(same)) < 0.5).astype(float),
}


@pytest.mark.parametrize("share", [0.001, 0.3, 0.999])
@pytest.mark.parametrize("name", SCORES)
def test_tar_at_far_is_read_off_scikit_learns_curve_to_the_last_digit(name: str, share: float) -> None:
    rng = np.random.default_rng(5)
    same = rng.random(20_000) < share
    scores = SCORES[name](rng, same)
    fpr, tpr, _ = roc_curve(same, scores)
    fpr, tpr = np.flipud(fpr), np.flipud(tpr)
    result = verify_templates(scores, same)
    assert list(result.tar_at_far) == [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1]
    for far, tar in result.tar_at_far.items():
        _, index = min(zip(abs(fpr - far), range(len(fpr)), strict=True))
        assert tar == tpr[index]


@pytest.mark.parametrize("same", [True, False])
def test_pairs_of_one_kind_alone_are_undefined(same: bool) -> None:
    with pytest.raises(UndefinedMetricsError, match="is undefined"):
        verify_templates(np.arange(5.0), np.full(5, same))


def identify_plainly(template: np.ndarray, galleries: dict[str, Enrolment], probes: Enrolment) -> tuple[dict, dict]:
    """Probe by probe and subject by subject."""
    found: dict[int, int] = dict.fromkeys((1, 5, 10), 0)
    rates: dict[float, list[float]] = {0.01: [], 0.1: []}
    for gallery in galleries.values():
        subjects, mates, impostors = gallery.subject_G.tolist(), [], []
        for probe, subject in zip(probes.template_G, probes.subject_G, strict=True):
            scores = [float(template[probe] @ template[each]) for each in gallery.template_G]
            if subject not in subjects:
                impostors.append(max(scores))
                continue
            own = scores.pop(subjects.index(subject))
            better = sum(score >= own for score in scores)
            mates.append((own, better == 0))
            for rank in found:
                found[rank] += better < rank
        impostors.sort(reverse=True)
        for fpir, tpirs in rates.items():
            threshold = impostors[max(int(len(impostors) * fpir) - 1, 0)]
            tpirs.append(sum(first and own > threshold for own, first in mates) / len(mates))
    ranks = {rank: count / len(probes.subject_G) for rank, count in found.items()}
    return {fpir: sum(tpirs) / len(tpirs) for fpir, tpirs in rates.items()}, ranks


def make_galleries(seed: int, identities: int = 30) -> tuple[dict[str, Enrolment], Enrolment]:
    """Two galleries in no order, and probes of which some are in neither."""
    rng = np.random.default_rng(seed)
    enrolled = rng.permutation(identities)
    first, second = np.split(enrolled, 2)
    galleries = {"G1": Enrolment(first, 900 - first), "G2": Enrolment(second, 900 - second)}
    who = rng.integers(0, identities + 4, 200)
    return galleries, Enrolment(identities + np.arange(200), 900 - who)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("levels", [3, 2**20], ids=["many ties", "few ties"])
def test_identification_equals_plain_loops(monkeypatch: pytest.MonkeyPatch, seed: int, levels: int) -> None:
    """Coordinates are small multiples of a power of two: their products are exact, in any order."""
    monkeypatch.setattr(ijb, "GATHERED_AT_ONCE", 4 * 33)
    galleries, probes = make_galleries(seed)
    rng = np.random.default_rng(seed)
    template = rng.integers(-levels, levels + 1, (230, 4)) / 2**20
    owner = 900 - probes.subject_G
    template[30:][owner < 30] += template[owner[owner < 30]]
    result = identify_templates(template, galleries, probes)
    tpir, ranks = identify_plainly(template, galleries, probes)
    assert result.tpir_at_fpir == tpir
    assert {rank: result.cmc[rank - 1] for rank in (1, 5, 10)} == ranks
    assert (np.diff(result.cmc) >= 0).all()


def test_equal_scores_are_no_hit() -> None:
    galleries = {"G1": Enrolment(np.array([0, 1]), np.array([5, 6]))}
    probes = Enrolment(np.array([2, 3]), np.array([5, 9]))
    result = identify_templates(np.ones((4, 2)), galleries, probes)
    assert result.tpir_at_fpir == {0.01: 0.0, 0.1: 0.0}
    assert result.cmc[:2].tolist() == [0.0, 0.5]


def test_probes_that_are_all_enrolled_have_ranks_but_no_false_positive_rate() -> None:
    galleries = {"G1": Enrolment(np.array([0, 1]), np.array([5, 6]))}
    result = identify_templates(np.eye(2)[[0, 1, 0, 1]], galleries, Enrolment(np.array([2, 3]), np.array([5, 6])))
    assert result.tpir_at_fpir == {}
    assert result.cmc[0] == 1


def test_probes_without_an_enrolled_subject_are_undefined() -> None:
    galleries = {"G1": Enrolment(np.array([0]), np.array([5]))}
    with pytest.raises(UndefinedMetricsError, match="no probe has its subject in gallery G1"):
        identify_templates(np.eye(2), galleries, Enrolment(np.array([1]), np.array([6])))
