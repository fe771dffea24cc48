"""Does the challenger replace the champion? The rule, and the comparison of both models on the same sets."""

# Shapes: P pairs, Q probes in a gallery.

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gif_core.artifacts import Artifact, ArtifactStore
from gif_core.protocols import read_scores
from gif_core.retraining import bootstrap
from gif_core.retraining.bootstrap import Metric, PairScores, Searches
from gif_core.retraining.champions import record_verdict
from gif_core.runtime import metric_name, set_name
from schemas.artifacts import ArtifactRef
from schemas.errors import GifError
from schemas.files import PAIR_SCORES_FILE, SCORES_FILE, SEARCHES_FILE
from schemas.retraining import Compared, Decision, PromotionPolicy, RetrainingPolicy

FALSE_ACCEPTS: Final = 10
"""A rate is compared only if at least this many false accepts, or false positives, determine its threshold."""


class NotComparableError(GifError, ValueError):
    """Two evaluations on different sets or with different settings."""


def decide(
    store: ArtifactStore,
    policy: RetrainingPolicy,
    models: Mapping[str, ArtifactRef],
    scores: Mapping[str, ArtifactRef],
    about: Mapping[str, Any],
) -> Decision:
    """Compare champion and challenger, apply the rule, record the verdict and move the tag."""
    metrics = compare(store.open(scores["champion"]), store.open(scores["challenger"]), policy.promotion)
    promoted, because = should_promote(metrics)
    return record_verdict(
        store,
        policy.tag,
        champion=models["champion"].key,
        challenger=models["challenger"].key,
        promoted=promoted,
        because=because,
        evaluation=scores["challenger" if promoted else "champion"].key,
        evaluations={name: ref.key for name, ref in scores.items()},
        metrics=metrics,
        policy=policy.model_dump(mode="json"),
        **about,
    )


def compare(champion: Artifact, challenger: Artifact, policy: PromotionPolicy) -> tuple[Compared, ...]:
    """Return the metrics of two evaluations on the same sets, with the bootstrap interval of each difference."""
    one, other = _Evaluation(champion), _Evaluation(challenger)
    for name in ("settings", "ingestion"):
        if getattr(one, name) != getattr(other, name):
            raise NotComparableError(f"{champion.ref} and {challenger.ref} were not measured in the same way: {name}")
    return tuple(row for title in other.sets for row in _compare_set(one, other, title, policy))


def should_promote(metrics: Sequence[Compared]) -> tuple[bool, str]:
    """Return whether the challenger becomes champion, and why.

    The rule: no metric is lower by more than chance explains, and at least one is higher by more than that.
    """
    if not metrics:
        return False, "nothing could be compared: no set has enough identities for a metric that both models have"
    worse = [row for row in metrics if row.verdict == "worse"]
    if worse:
        return False, f"{'; '.join(map(describe, worse))}: lower by more than chance explains"
    better = [row for row in metrics if row.verdict == "better"]
    if better:
        return True, f"{'; '.join(map(describe, better))}: higher by more than chance explains, and none is lower"
    largest = max(metrics, key=lambda row: row.challenger - row.champion)
    return False, f"no metric is higher by more than chance explains; the largest gain is {describe(largest)}"


def describe(row: Compared) -> str:
    """Return text such as `LFW: Accuracy +1.20 points (95.10% → 96.30%, interval +0.80 … +1.60)`."""
    gain = f"{100 * (row.challenger - row.champion):+.2f} points"
    values = f"{row.champion:.2%} → {row.challenger:.2%}"
    interval = f"interval {100 * row.low:+.2f} … {100 * row.high:+.2f}"
    return f"{set_name(row.set)}: {metric_name(row.metric)} {gain} ({values}, {interval})"


class _Evaluation:
    """The contents of an evaluation that are compared."""

    def __init__(self, artifact: Artifact) -> None:
        if PAIR_SCORES_FILE not in artifact.names():
            raise NotComparableError(f"{artifact.ref} has no scores of single pairs: evaluate that model again")
        self.settings, self.ingestion = artifact.manifest.settings, artifact.manifest.inputs["ingestion"]
        self.sets = read_scores(artifact.path(SCORES_FILE))
        self.pairs = pq.read_table(artifact.path(PAIR_SCORES_FILE))
        self.searches = pq.read_table(artifact.path(SEARCHES_FILE))

    def metrics(self, title: str) -> Mapping[str, float]:
        found: Mapping[str, float] = self.sets.get(title, {}).get("systems", {}).get("model", {})
        return found


def _compare_set(
    champion: _Evaluation, challenger: _Evaluation, title: str, policy: PromotionPolicy
) -> Iterator[Compared]:
    names = [name for name in policy.metrics if name in champion.metrics(title) and name in challenger.metrics(title)]
    one, other = (_Measures(each, title) for each in (champion, challenger))
    for name in names:
        found = one.find(name), other.find(name)
        if found[0] is None or found[1] is None:
            continue
        identities = max(one.identities(name), other.identities(name))
        given = {"replicas": policy.replicas, "confidence": policy.confidence, "seed": policy.seed}
        low, high = bootstrap.interval_of_difference(*found, identities, **given)  # type: ignore[arg-type]
        if np.isfinite([low, high]).all():
            values = champion.metrics(title)[name], challenger.metrics(title)[name]
            yield Compared(set=title, metric=name, champion=values[0], challenger=values[1], low=low, high=high)


class _Measures:
    """The metrics of a set as functions of the identities' weights."""

    def __init__(self, evaluation: _Evaluation, title: str) -> None:
        about = evaluation.sets[title]
        pairs = evaluation.pairs.filter(pc.equal(evaluation.pairs["set"], title))
        searches = evaluation.searches.filter(pc.equal(evaluation.searches["set"], title))
        self.folds = int(about["flags"].get("folds", 0))
        self.pairs = _read_pairs(pairs, about) if len(pairs) else None
        self.galleries, self.probed_identities = _read_searches(searches)

    def identities(self, name: str) -> int:
        """Return how many identities there are to draw from."""
        if name.startswith(("accuracy", "tar_")):
            assert self.pairs is not None
            return int(max(self.pairs.left_P.max(), self.pairs.right_P.max())) + 1
        return self.probed_identities

    def find(self, name: str) -> Metric | None:
        """Return the metric of that name, or None if the set is too small for it."""
        kind, _, rate = name.rpartition("_")
        if name == "accuracy" and self.pairs and self.folds:
            return bootstrap.accuracy(self.pairs, self.folds)
        if kind == "tar_at_far" and self.pairs and self.pairs.different * float(rate) >= FALSE_ACCEPTS:
            return bootstrap.tar_at_far(self.pairs, float(rate))
        if kind == "rank" and self.galleries:
            return bootstrap.rank_share(self.galleries, int(rate))
        impostors = min((int((~each.enrolled_Q).sum()) for each in self.galleries), default=0)
        if kind == "tpir_at_fpir" and impostors * float(rate) >= FALSE_ACCEPTS:
            return bootstrap.tpir_at_fpir(self.galleries, float(rate))
        return None


def _read_pairs(table: pa.Table, about: Mapping[str, Any]) -> PairScores:
    """Read the stored pairs; the set numbers its identities, equally for every model."""
    pair_P, score_P, same_P = (table[name].to_numpy() for name in ("pair", "score", "same"))
    left_P, right_P = (table[name].to_numpy() for name in ("left_identity", "right_identity"))
    return PairScores(pair_P, score_P, same_P, left_P, right_P, about["pairs"], about["pairs"] - about["same"])


def _read_searches(table: pa.Table) -> tuple[list[Searches], int]:
    """Read the probes of each gallery and the number of identities over all galleries."""
    known, identity_Q = np.unique(table["identity"].to_numpy(), return_inverse=True)
    gallery_Q = table["gallery"].to_numpy(zero_copy_only=False)
    columns = [table[name].to_numpy() for name in ("enrolled", "own", "other", "rank")]
    galleries = []
    for name in sorted(set(gallery_Q.tolist())):
        rows = gallery_Q == name
        galleries.append(Searches(identity_Q[rows], *(column[rows] for column in columns)))
    return galleries, len(known)
