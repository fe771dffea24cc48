"""Protocols: how verification and identification are measured, and the sets they are measured on.

ijb_protocol   The protocols of IJB-B and IJB-C: templates of several media, 1:1 verification and 1:N identification
pair_protocol  Are two images of one person? The pair protocol of LFW, CFP-FP, AgeDB, CALFW and CPLFW
pairs          Pairs of images: which are verified. Nothing heavy is imported here
roc            Accept rates over all thresholds: the points of scikit-learn's `roc_curve`, found with one sort of bar...
scores         The JSON files of an evaluation: `scores.json` and `identification.json`
sets/          Evaluation sets: one file for each format, local or at any fsspec URL.
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "FALSE_ACCEPT_RATES",
    "IDENTIFICATION_FILE",
    "IJB_PROTOCOL",
    "PAIR_PROTOCOL",
    "POOLED_AT_ONCE",
    "RANKS",
    "SCORES_FILE",
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
    "draw_pairs",
    "flags_of",
    "identify_templates",
    "pair_distances",
    "pair_rows",
    "pool_templates",
    "read_identification",
    "read_scores",
    "score_pairs",
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
    from gif_core.protocols.roc import Roc, UndefinedMetricsError
    from gif_core.protocols.scores import (
        IDENTIFICATION_FILE,
        SCORES_FILE,
        FlagValues,
        ScoresFormatError,
        flags_of,
        read_identification,
        read_scores,
        write_json,
    )
else:
    __getattr__ = lazy_imports(__name__)
