"""The rule of promotion: each reason for which a challenger is refused or promoted."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gif_core.artifacts import Artifact, ArtifactStore
from gif_core.evaluation import SetResult, SystemResult, keep_pairs, pair_metrics, write_scores
from gif_core.protocols import verify_distances
from gif_core.retraining import compare, should_promote
from gif_core.retraining.promotion import NotComparableError
from schemas.artifacts import MadeFrom
from schemas.retraining import Compared, PromotionPolicy

POLICY = PromotionPolicy(replicas=200)
IDENTITIES = 50
Evaluate = Callable[..., Artifact]


def row(metric: str, low: float, high: float) -> Compared:
    middle = (low + high) / 2
    return Compared(set="LFW", metric=metric, champion=0.9, challenger=0.9 + middle, low=low, high=high)


def test_a_challenger_with_a_metric_above_and_none_below_is_promoted() -> None:
    promoted, because = should_promote([row("accuracy", 0.01, 0.03), row("rank_1", -0.02, 0.01)])
    assert promoted
    assert because.startswith("LFW: Accuracy +2.00 points (90.00% → 92.00%, interval +1.00 … +3.00)")


def test_one_metric_below_refuses_it_however_good_the_others_are() -> None:
    promoted, because = should_promote([row("accuracy", 0.2, 0.3), row("tar_at_far_0.001", -0.03, -0.01)])
    assert not promoted
    assert "TAR at FAR 0.1% -2.00 points" in because
    assert because.endswith("lower by more than chance explains")
    assert "Accuracy" not in because


def test_what_chance_explains_promotes_nobody() -> None:
    promoted, because = should_promote([row("accuracy", -0.01, 0.03), row("rank_1", -0.02, 0.01)])
    assert not promoted
    assert because.startswith(
        "no metric is higher by more than chance explains; the largest gain is LFW: Accuracy +1.00"
    )


def test_a_metric_that_is_just_as_good_is_neither() -> None:
    assert row("accuracy", 0.0, 0.0).verdict == "equal"
    assert not should_promote([row("accuracy", 0.0, 0.01)])[0]


def test_nothing_to_compare_promotes_nobody() -> None:
    promoted, because = should_promote([])
    assert not promoted
    assert because.startswith("nothing could be compared")


@pytest.fixture
def evaluate(tmp_path: Path) -> Evaluate:
    """Publishes an evaluation on one set of pairs, by a model of so much noise."""
    store = ArtifactStore(str(tmp_path))

    def make(noise: float, *, pairs: int = 2000, faces: str = "f", title: str = "LFW") -> Artifact:
        rng = np.random.default_rng(0)
        left, same = rng.integers(IDENTITIES, size=pairs), np.arange(pairs) % 2 == 0
        right = np.where(same, left, (left + rng.integers(1, IDENTITIES, size=pairs)) % IDENTITIES)
        distance = np.clip(np.where(same, 1.0, 2.0) + noise * rng.normal(size=pairs), 0, 3.99)
        result = SetResult(title, "bin", "pairs-1", {"folds": 10}, {"pairs": pairs, "same": int(same.sum())})
        found = verify_distances(distance, same, 10)
        result.systems["model"] = SystemResult(pair_metrics(found), roc=found.roc)
        result.pair_scores = keep_pairs(title, -distance, same, left, right, np.arange(IDENTITIES))
        key = rng.spawn(1)[0].bytes(8).hex() + f"{noise:.2f}{pairs}{title}{faces}".encode().hex()
        inputs = {"ingestion": MadeFrom(key=faces * 64, digest=faces * 64)}
        with store.draft(store.ref("evaluation", key.ljust(64, "0")[:64]), {"sets": title}, inputs) as draft:
            write_scores(draft.folder, [result], "0" * 64)
            return store.open(store.publish(draft))

    return make


def test_a_better_model_is_promoted_and_a_worse_one_refused(evaluate: Evaluate) -> None:
    good, bad = evaluate(0.4), evaluate(0.8)
    promoted, because = should_promote(compare(bad, good, POLICY))
    assert promoted
    assert "higher by more than chance explains, and none is lower" in because
    refused, because = should_promote(compare(good, bad, POLICY))
    assert not refused
    assert "lower by more than chance explains" in because


def test_a_metric_is_what_evaluation_has_reported(evaluate: Evaluate) -> None:
    (accuracy, *_) = compare(evaluate(0.8), evaluate(0.4), POLICY)
    assert (accuracy.set, accuracy.metric, accuracy.verdict) == ("LFW", "accuracy", "better")
    assert 0.5 < accuracy.champion < accuracy.challenger
    assert accuracy.low < accuracy.challenger - accuracy.champion < accuracy.high


def test_a_rate_that_few_false_accepts_would_decide_is_left_out(evaluate: Evaluate) -> None:
    metrics = PromotionPolicy(replicas=200, metrics=("tar_at_far_0.1", "tar_at_far_0.01", "tar_at_far_0.001"))
    compared = compare(evaluate(0.8), evaluate(0.4), metrics)
    assert [each.metric for each in compared] == ["tar_at_far_0.1", "tar_at_far_0.01"], "1,000 different pairs"


def test_evaluations_of_other_faces_or_other_sets_are_not_compared(evaluate: Evaluate) -> None:
    with pytest.raises(NotComparableError, match="not measured in the same way: ingestion"):
        compare(evaluate(0.8), evaluate(0.4, faces="e"), POLICY)
    with pytest.raises(NotComparableError, match="not measured in the same way: settings"):
        compare(evaluate(0.8), evaluate(0.4, title="CFP"), POLICY)
