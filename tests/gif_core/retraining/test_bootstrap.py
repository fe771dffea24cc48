"""Metrics of weighted identities equal the reported ones for equal weights; intervals separate chance from skill."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_curve

from gif_core.evaluation.single_scores import identities_from_pairs, keep_pairs, keep_searches
from gif_core.protocols import identify_templates, verify_distances
from gif_core.protocols.sets.ijb import Enrolment
from gif_core.retraining import bootstrap
from gif_core.retraining.bootstrap import Metric, PairScores, Searches, interval_of_difference

IDENTITIES, PAIRS, FOLDS = 60, 600, 10
GIVEN = {"replicas": 400, "confidence": 0.95, "seed": 0}


def make_pairs(noise: float, seed: int = 1) -> PairScores:
    """Half of the pairs same, half different; the same identities for every noise."""
    rng = np.random.default_rng(0)
    left = rng.integers(IDENTITIES, size=PAIRS)
    same = np.arange(PAIRS) % 2 == 0
    right = np.where(same, left, (left + rng.integers(1, IDENTITIES, size=PAIRS)) % IDENTITIES)
    distance = np.clip(np.where(same, 1.0, 2.0) + np.random.default_rng(seed).normal(size=PAIRS) * noise, 0, 3.99)
    return PairScores(np.arange(PAIRS), -distance, same, left, right, PAIRS, int((~same).sum()))


def nearest_tar(same_P: NDArray[np.bool_], score_P: NDArray[np.float64], rate: float) -> float:
    far, tar, _ = roc_curve(same_P, score_P, drop_intermediate=False)
    return float(tar[::-1][np.abs(far[::-1] - rate).argmin()])


def all_rows(identities: int = IDENTITIES) -> NDArray[np.float64]:
    return np.ones(identities)


def test_accuracy_of_equal_weights_is_the_reported_one() -> None:
    given = make_pairs(0.6)
    reported = verify_distances(-given.score_P, given.same_P, FOLDS)
    assert bootstrap.accuracy(given, FOLDS)(all_rows()) == pytest.approx(reported.accuracy, abs=1e-12)


@pytest.mark.parametrize("far", [0.1, 0.01])
def test_tar_of_equal_weights_is_that_of_all_points_of_the_roc(far: float) -> None:
    """The reported one leaves out points where the curve goes straight on, and may be a step beside it."""
    given = make_pairs(0.6)
    assert bootstrap.tar_at_far(given, far)(all_rows()) == pytest.approx(nearest_tar(given.same_P, given.score_P, far))


def test_a_weight_counts_like_as_many_copies() -> None:
    given, weight = make_pairs(0.6), all_rows()
    weight[7] = 3.0
    copies = given.weigh(weight).astype(int)
    again = np.repeat(np.arange(PAIRS), copies)
    copied = nearest_tar(given.same_P[again], given.score_P[again], 0.1)
    assert bootstrap.tar_at_far(given, 0.1)(weight) == pytest.approx(copied)


def test_the_highest_scores_of_different_identities_decide_as_all_do() -> None:
    rng = np.random.default_rng(0)
    score, same = rng.normal(size=4000), np.arange(4000) < 400
    score[same] += 3
    identities = np.arange(4000)
    whole, part = (
        keep_pairs("set", score, same, identities, identities, identities, most=most) for most in (4000, 500)
    )
    assert len(part) == 900
    metrics = []
    for table in (whole, part):
        columns = [table[name].to_numpy() for name in ("pair", "score", "same", "left_identity", "right_identity")]
        metrics.append(bootstrap.tar_at_far(PairScores(*columns, 4000, 3600), 0.01))
    assert metrics[0](all_rows(4000)) == metrics[1](all_rows(4000))


def test_metrics_of_galleries_are_the_reported_ones() -> None:
    rng = np.random.default_rng(0)
    centre = rng.normal(size=(30, 16))
    system = np.concatenate([np.arange(20), np.repeat(np.arange(30), 4)])
    template = centre[system] + 1.1 * rng.normal(size=(len(system), 16))
    template /= np.linalg.norm(template, axis=1, keepdims=True)
    probes = Enrolment(np.arange(20, len(system)), system[20:])
    galleries = {"G1": Enrolment(np.arange(10), system[:10]), "G2": Enrolment(np.arange(10, 20), system[10:20])}
    reported = identify_templates(template, galleries, probes)
    table = keep_searches("set", reported.searches, probes.subject_G)
    columns = ("identity", "enrolled", "own", "other", "rank")
    searches = []
    for name in galleries:
        rows = np.flatnonzero(np.array(table["gallery"].to_pylist()) == name)
        searches.append(Searches(*(table[column].to_numpy()[rows] for column in columns)))
    for rank in (1, 5):
        assert bootstrap.rank_share(searches, rank)(all_rows(30)) == pytest.approx(reported.cmc[rank - 1])
    assert bootstrap.tpir_at_fpir(searches, 0.1)(all_rows(30)) == pytest.approx(reported.tpir_at_fpir[0.1])


def test_identities_are_the_images_that_same_pairs_connect() -> None:
    left, right = np.array([0, 1, 3, 5]), np.array([1, 2, 4, 0])
    identity = identities_from_pairs(left, right, np.array([True, True, True, False]))
    assert identity[0] == identity[1] == identity[2]
    assert identity[3] == identity[4]
    assert len(set(identity.tolist())) == 3


def accuracy_of(noise: float, seed: int = 1) -> Metric:
    return bootstrap.accuracy(make_pairs(noise, seed), FOLDS)


def test_a_model_does_not_differ_from_itself() -> None:
    assert interval_of_difference(accuracy_of(0.6), accuracy_of(0.6), IDENTITIES, **GIVEN) == (0.0, 0.0)


def test_a_better_model_is_above_by_more_than_chance_and_the_other_way_round() -> None:
    low, high = interval_of_difference(accuracy_of(0.8), accuracy_of(0.4), IDENTITIES, **GIVEN)
    assert 0 < low < high
    assert interval_of_difference(accuracy_of(0.4), accuracy_of(0.8), IDENTITIES, **GIVEN) == pytest.approx(
        (-high, -low)
    )


def test_equal_models_differ_by_chance_alone() -> None:
    """Of twenty pairs of equally good models, about one differs significantly at 95 %; at most two here."""
    significant = 0
    for seed in range(20):
        low, high = interval_of_difference(
            accuracy_of(0.6, 2 * seed + 10), accuracy_of(0.6, 2 * seed + 11), IDENTITIES, **GIVEN
        )
        significant += low > 0 or high < 0
    assert significant <= 2


def test_the_same_seed_gives_the_same_interval_and_another_seed_another() -> None:
    metrics = accuracy_of(0.8), accuracy_of(0.7)
    once, again = (interval_of_difference(*metrics, IDENTITIES, **GIVEN) for _ in range(2))
    assert once == again != interval_of_difference(*metrics, IDENTITIES, **(GIVEN | {"seed": 1}))


def test_pairs_that_share_identities_say_less_than_as_many_of_strangers() -> None:
    """One hard identity spoils all of its pairs: drawn identity by identity, the interval is wider."""
    given = make_pairs(0.4)
    hard = np.isin(given.left_P, np.arange(6)) & given.same_P
    spoilt = replace(given, score_P=np.where(hard, -2.5, given.score_P))
    own = np.arange(PAIRS)
    intervals = []
    for identities, count in (((given.left_P, given.right_P), IDENTITIES), ((own, own), PAIRS)):
        both = [replace(each, left_P=identities[0], right_P=identities[1]) for each in (spoilt, given)]
        low, high = interval_of_difference(*(bootstrap.accuracy(each, FOLDS) for each in both), count, **GIVEN)
        intervals.append(high - low)
    assert intervals[0] > 1.5 * intervals[1]
