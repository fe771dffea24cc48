"""Evaluation: a trained model measured on identities that it was not trained on.

features           Features that the encoder and the trained model give images, one system after another
identification     Identification among the enrolled: its metrics by each method, and the threshold of the unknown
pairs              Verification on sets of pairs: of held-out identities, and of files such as LFW and `.bin`
part_jobs          Features of a part of an IJB set as a job that any process can do
raw_pixels         The baseline without a network: distances between raw pixels
results            The results of evaluation as files: JSON for identities and programs, Parquet for SQL
single_scores      The scores behind the model's metrics, kept so that two models can be compared person by person
stage              The stage evaluation: a trained model → its scores on every set
template_features  Features of an IJB set, made in parts and kept: other flags need other sums of them, not other fea...
templates          Verification (1:1) and identification (1:N) on sets of templates: IJB-B, IJB-C, and synthetic ones
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "PAIRS_FILE",
    "SEARCHES_FILE",
    "SetResult",
    "SystemResult",
    "keep_pairs",
    "measure_identification",
    "pair_metrics",
    "write_scores",
]

if TYPE_CHECKING:
    from gif_core.evaluation.identification import measure_identification
    from gif_core.evaluation.results import SetResult, SystemResult, pair_metrics, write_scores
    from gif_core.evaluation.single_scores import PAIRS_FILE, SEARCHES_FILE, keep_pairs
else:
    __getattr__ = lazy_imports(__name__)
