"""Thresholds that evaluation found for a model: same or different, known or unknown."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gif_core.artifacts import Artifact
from gif_core.protocols import flags_of, read_identification, read_scores
from gif_core.recognition.gallery import Method
from schemas.errors import GifError

ORIGINS = {"new": "new images", "training": "images of the training"}


@dataclass(frozen=True, slots=True)
class PairThreshold:
    """The threshold between same and different that evaluation found on a set of pairs, and its error rates."""

    set: str
    pairs: int
    flip: bool
    distance: float
    """Squared distance of features of unit length below which two images show one identity."""
    accuracy: float
    far: float
    kind: str = ""
    """Kind of the set, as in `evaluation.sets`."""

    @property
    def cosine(self) -> float:
        """The same threshold as a cosine: two images show one identity above it."""
        return 1 - self.distance / 2


def pair_thresholds(scores: Path) -> dict[str, PairThreshold]:
    """The thresholds of all sets of pairs in `scores.json`, those of held-out identities first."""
    sets = read_scores(scores)
    measured = [title for title, found in sets.items() if "threshold_far" in found["systems"].get("model", {})]
    measured.sort(key=lambda title: sets[title]["kind"] != "held_out")
    return {title: _pair_threshold(title, sets[title]) for title in measured}


def choose_threshold(thresholds: Mapping[str, PairThreshold], name: str | None = None) -> PairThreshold:
    """The threshold of the set `name`, or of the first set."""
    if (name is not None and name not in thresholds) or not thresholds:
        known = f"there are: {', '.join(thresholds)}" if thresholds else "there is none; evaluation.sets makes them"
        raise GifError(f"no pairs {name or ''} were verified with this model, so there is no threshold; {known}")
    return thresholds[name or next(iter(thresholds))]


def _pair_threshold(title: str, found: Mapping[str, Any]) -> PairThreshold:
    metrics = found["systems"]["model"]
    return PairThreshold(
        title,
        found["pairs"],
        bool(flags_of(found, "model")["flip"]),
        metrics["threshold"],
        metrics["accuracy"],
        metrics["threshold_far"],
        found["kind"],
    )


@dataclass(frozen=True, slots=True)
class Calibration:
    """The threshold between known and unknown identities for one method, or why there is none."""

    method: Method
    missing: str = ""
    threshold: float = 0.0
    """For the first candidate's score: z·h, or the log probability of the code."""
    beam: int | None = None
    flip: bool = True
    fpir: float = 0.0
    fnir: float = 0.0
    counts: str = ""
    """How many images of unknown identities it was calibrated on."""
    origin: str = ""
    """Which images of enrolled identities `fnir` was measured on."""

    def knows(self, score: float) -> bool | None:
        """Whether a first candidate with this score counts as found; None without a threshold."""
        return None if self.missing else score >= self.threshold

    def describe(self) -> str:
        """One sentence: the score from which an identity counts as known, and the error rates at it."""
        if self.missing:
            return f"There is no threshold between known and unknown identities: {self.missing}."
        score = "the logarithm of the probability of the code" if self.method == "codes" else "z·h"
        return (
            f"Known from {score} = {self.threshold:.3f} on: no more than {self.fpir:.1%} of {self.counts} that are not "
            f"enrolled reach it, and {self.fnir:.1%} of {self.origin} of enrolled identities miss it or are taken for "
            "another identity."
        )


def read_calibration(evaluation: Artifact | None, method: Method) -> Calibration:
    """The threshold that evaluation found for `method`, or why there is none."""
    about = read_identification(evaluation) if evaluation else None
    if about is None:
        return Calibration(method, "this model was not evaluated with identification; 'gif run --from evaluation' does")
    if "undefined" in about:
        return Calibration(method, about["undefined"])
    flags, metrics = about["flags"], about["systems"][method]
    return Calibration(
        method,
        threshold=metrics["threshold"],
        beam=flags["beam"],
        flip=flags["flip"],
        fpir=flags["fpir"],
        fnir=metrics[f"fnir_at_fpir_{flags['fpir']:g}"],
        counts=f"{about['unknown_images']:,} images of {about['unknown_identities']:,} identities",
        origin=ORIGINS[flags["enrolled_images"]],
    )
