"""Recognition: which identity does a face show, and do two faces show the same one?

`Recognizer` is the interface for notebooks, services and the command line; evaluation measures with the files below it.

beam_search   Beam search through the code tree: the most probable codes in use
code_tree     All codes in use as a prefix tree of plain tables
gallery       The enrolled identities: search by code, among all code vectors, or by both
given_images  Images as callers pass them: paths, the bytes of image files, or arrays
open_set      Known or unknown: the score threshold of open-set identification, and the metrics at it
probes        Images of enrolled and of unknown identities that identification is measured on
recognizer    Class Recognizer: embed, verify and identify faces with a model of a store
thresholds    Thresholds that evaluation found for a model: same or different, known or unknown
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "METHODS",
    "RANKS",
    "AnyImage",
    "Calibration",
    "Candidate",
    "ChosenImages",
    "DrawnFaces",
    "Gallery",
    "Identified",
    "Method",
    "NotAnImageError",
    "NotEvaluatedError",
    "PairThreshold",
    "Points",
    "Recognizer",
    "Verified",
    "calibrate_threshold",
    "choose_enrolled",
    "choose_unknown",
    "measure_open_set",
    "open_gallery",
    "open_set_metrics",
    "pair_thresholds",
    "read_calibration",
    "read_faces",
    "read_points",
    "search_codes",
    "token_log_probs",
]

if TYPE_CHECKING:
    from gif_core.recognition.beam_search import search_codes, token_log_probs
    from gif_core.recognition.gallery import METHODS, Gallery, Method, open_gallery
    from gif_core.recognition.given_images import AnyImage, NotAnImageError, Points, read_faces, read_points
    from gif_core.recognition.open_set import RANKS, calibrate_threshold, measure_open_set, open_set_metrics
    from gif_core.recognition.probes import ChosenImages, DrawnFaces, choose_enrolled, choose_unknown
    from gif_core.recognition.recognizer import Candidate, Identified, NotEvaluatedError, Recognizer, Verified
    from gif_core.recognition.thresholds import Calibration, PairThreshold, pair_thresholds, read_calibration
else:
    __getattr__ = lazy_imports(__name__)
