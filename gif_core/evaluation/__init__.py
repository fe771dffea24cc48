"""Evaluation: how well does a trained model verify and identify identities that it was not trained on?

drawn              Verification of drawn identities by an encoder alone
features           Image features of the encoder and the trained model
groups             Groups of one benchmark, as in RFW: the worst, their spread, a common threshold
identification     Open-set identification among the enrolled identities: metrics and threshold of each method
image_search       Identification on TinyFace: probes searched in a gallery with distractors
pairs              Verification on sets of pairs: held-out identities, and files such as LFW and `.bin`
part_jobs          Features of a part of IJB or TinyFace as a job for any process
raw_pixels         The baseline without a network: distances between raw pixels
results            The results of evaluation as files: JSON for readers and programs, Parquet for SQL
single_scores      The scores behind the model's metrics, kept so that two models can be compared identity by identity
stage              The stage evaluation: a trained model → scores on every set
template_features  Features of IJB or TinyFace, computed and stored in parts; pooling flags reuse them
weights            Scores of published weights, without training anything
templates          Verification (1:1) and identification (1:N) on sets of templates: IJB-B, IJB-C, and synthetic ones
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "SetResult",
    "SystemResult",
    "compare_groups",
    "encode_images",
    "evaluate_weights",
    "keep_pairs",
    "measure_identification",
    "pair_metrics",
    "pixel_distances",
    "verify_drawn",
    "write_scores",
    "write_weight_scores",
]

if TYPE_CHECKING:
    from gif_core.evaluation.drawn import verify_drawn
    from gif_core.evaluation.features import encode_images
    from gif_core.evaluation.groups import compare_groups
    from gif_core.evaluation.identification import measure_identification
    from gif_core.evaluation.raw_pixels import pixel_distances
    from gif_core.evaluation.results import SetResult, SystemResult, pair_metrics, write_scores
    from gif_core.evaluation.single_scores import keep_pairs
    from gif_core.evaluation.weights import evaluate_weights, write_weight_scores
else:
    __getattr__ = lazy_imports(__name__)
