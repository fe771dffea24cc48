"""Evaluation: a trained model measured on identities that it was not trained on.

raw_pixels         The baseline without a network: distances between raw pixels
results            The results of evaluation as files: JSON for identities and programs, Parquet for SQL
single_scores      The scores behind the model's metrics, kept so that two models can be compared person by person
template_features  Features of an IJB set, made in parts and kept: other flags need other sums of them, not other fea...
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "PAIRS_FILE",
    "SEARCHES_FILE",
    "FeaturePart",
    "SetResult",
    "StoredFeatures",
    "embed_features",
    "error_rows",
    "identification_metrics",
    "keep_pairs",
    "keep_searches",
    "pair_metrics",
    "pixel_distances",
    "plan_features",
    "template_metrics",
    "who_is_who",
    "write_scores",
]

if TYPE_CHECKING:
    from gif_core.evaluation.raw_pixels import pixel_distances
    from gif_core.evaluation.results import (
        SetResult,
        error_rows,
        identification_metrics,
        pair_metrics,
        template_metrics,
        write_scores,
    )
    from gif_core.evaluation.single_scores import PAIRS_FILE, SEARCHES_FILE, keep_pairs, keep_searches, who_is_who
    from gif_core.evaluation.template_features import FeaturePart, StoredFeatures, embed_features, plan_features
else:
    __getattr__ = lazy_imports(__name__)
