"""Protocols: how verification and identification of faces are measured, and the sets they are measured on.

pairs            `Pairs` and `draw_pairs`: which images are compared, and pairs drawn from labelled images
pair_protocol    Accuracy over folds and TAR at FAR for pairs: LFW, CFP-FP, AgeDB, CALFW, CPLFW
ijb_protocol     IJB-B and IJB-C: pooling of templates, 1:1 verification, 1:N identification
search_protocol  TinyFace: probes searched in a gallery with distractors
roc              The ROC curve, TAR at a given FAR, and the checks that pairs have metrics at all
scores           Reads and writes `scores.json` and `identification.json`
sets/            Readers of evaluation sets: bin, lfw, parquet, ijb, tinyface, synthetic
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "FALSE_ACCEPT_RATES",
    "IJB_PROTOCOL",
    "PAIR_PROTOCOL",
    "POOLED_AT_ONCE",
    "RANKS",
    "SEARCH_PROTOCOL",
    "SEARCH_RANKS",
    "THRESHOLDS_T",
    "FlagValues",
    "Flags",
    "Identification",
    "Pairs",
    "Roc",
    "ScoresFormatError",
    "Search",
    "TemplateVerification",
    "UndefinedMetricsError",
    "Verification",
    "check_pairs",
    "combine_features",
    "draw_pairs",
    "flags_of",
    "identify_templates",
    "measure_roc",
    "pair_distances",
    "pair_rows",
    "pool_templates",
    "read_groups",
    "read_identification",
    "read_scores",
    "score_pairs",
    "search_cmc",
    "search_images",
    "verify_distances",
    "verify_templates",
    "worst_errors",
    "write_json",
]

if TYPE_CHECKING:
    from gif_core.protocols.ijb_protocol import (
        FALSE_ACCEPT_RATES,
        IJB_PROTOCOL,
        POOLED_AT_ONCE,
        RANKS,
        Flags,
        Identification,
        Search,
        TemplateVerification,
        combine_features,
        identify_templates,
        pool_templates,
        score_pairs,
        verify_templates,
    )
    from gif_core.protocols.pair_protocol import (
        PAIR_PROTOCOL,
        THRESHOLDS_T,
        Verification,
        check_pairs,
        pair_distances,
        verify_distances,
        worst_errors,
    )
    from gif_core.protocols.pairs import Pairs, draw_pairs, pair_rows
    from gif_core.protocols.roc import Roc, UndefinedMetricsError, measure_roc
    from gif_core.protocols.scores import (
        FlagValues,
        ScoresFormatError,
        flags_of,
        read_groups,
        read_identification,
        read_scores,
        write_json,
    )
    from gif_core.protocols.search_protocol import SEARCH_PROTOCOL, SEARCH_RANKS, search_cmc, search_images
else:
    __getattr__ = lazy_imports(__name__)
