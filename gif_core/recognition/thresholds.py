"""The thresholds that evaluation has found for a model, and how well they did."""

from dataclasses import dataclass
from pathlib import Path

from gif_core.artifacts import Artifact
from gif_core.protocols import flags_of, read_identification, read_scores
from gif_core.recognition.gallery import Method
from schemas.errors import GifError

ORIGINS = {"new": "new images", "training": "images of the training"}


@dataclass(frozen=True, slots=True)
class PairThreshold:
    """Where evaluation drew the line between same and different, and how well that went."""

    set: str
    pairs: int
    flip: bool
    distance: float
    """Squared distance of features of unit length below which two images are of one person."""
    accuracy: float
    far: float

    @property
    def cosine(self) -> float:
        """The same as a cosine, above which they are."""
        return 1 - self.distance / 2


def pair_threshold(scores: Path, name: str | None = None) -> PairThreshold:
    """That of a set of pairs in `scores.json`; without a name of held-out identities, or else of the first set."""
    sets = read_scores(scores)
    measured = {title: found for title, found in sets.items() if "threshold_far" in found["systems"].get("model", {})}
    ranked = sorted(measured, key=lambda title: measured[title]["kind"] != "held_out")
    if (name is not None and name not in measured) or not ranked:
        known = f"there are: {', '.join(ranked)}" if ranked else "there is none; evaluation.sets makes them"
        raise GifError(f"no pairs {name or ''} were verified with this model, so there is no threshold; {known}")
    title = name or ranked[0]
    found, metrics = measured[title], measured[title]["systems"]["model"]
    return PairThreshold(
        title,
        found["pairs"],
        bool(flags_of(found, "model")["flip"]),
        metrics["threshold"],
        metrics["accuracy"],
        metrics["threshold_far"],
    )


@dataclass(frozen=True, slots=True)
class Calibration:
    """The threshold between known and unknown identities of one way to find them, or why there is none."""

    method: Method
    missing: str = ""
    threshold: float = 0.0
    """Of the first candidate's score: z·h, or the logarithm of the probability of the code."""
    beam: int | None = None
    flip: bool = True
    fpir: float = 0.0
    fnir: float = 0.0
    counts: str = ""
    """How many images of unknown identities it comes of."""
    origin: str = ""
    """Which images of enrolled identities were missed at the rate `fnir`."""

    def knows(self, score: float) -> bool | None:
        """Whether a first candidate with this score counts as found; None without a threshold."""
        return None if self.missing else score >= self.threshold

    def describe(self) -> str:
        """A sentence for identities."""
        if self.missing:
            return f"Nobody can be told to be unknown: {self.missing}."
        score = "the logarithm of the probability of the code" if self.method == "codes" else "z·h"
        return (
            f"Known from {score} = {self.threshold:.3f} on: no more than {self.fpir:.1%} of {self.counts} who are not "
            f"enrolled reach it, and {self.fnir:.1%} of {self.origin} of enrolled identities miss it or are taken for "
            "somebody else."
        )


def read_calibration(evaluation: Artifact | None, method: Method) -> Calibration:
    """What evaluation has found out about this way, if it has."""
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
