"""Recognition: a trained model in use, which embeds, verifies and identifies faces.

beam_search  From the probabilities of tokens to the codes that somebody has: a beam search through the tree, all images
at... code_tree    All codes that somebody has, as a prefix tree of plain tables gallery      Who is it among the
enrolled? By decoding a code, by search among all code vectors, or by both open_set     Known or unknown: the score from
which on somebody counts as enrolled, and the metrics of identification... probes       Images of enrolled identities:
new ones where the project can draw them, else those that the model was train... recognizer   A trained model in use:
what turns images into features and finds identities, opened from artifacts thresholds   The thresholds that evaluation
has found for a model, and how well they did
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "METHODS",
    "RANKS",
    "ChosenImages",
    "Gallery",
    "Method",
    "choose_enrolled",
    "choose_unknown",
    "embed_faces",
    "identify_faces",
    "measure_open_set",
    "open_gallery",
    "open_set_metrics",
    "pair_threshold",
    "points_of",
    "read_calibration",
    "search_codes",
    "token_log_probs",
]

if TYPE_CHECKING:
    from gif_core.recognition.beam_search import search_codes, token_log_probs
    from gif_core.recognition.gallery import METHODS, Gallery, Method
    from gif_core.recognition.open_set import RANKS, measure_open_set, open_set_metrics
    from gif_core.recognition.probes import ChosenImages, choose_enrolled, choose_unknown
    from gif_core.recognition.recognizer import embed_faces, identify_faces, open_gallery, points_of
    from gif_core.recognition.thresholds import pair_threshold, read_calibration
else:
    __getattr__ = lazy_imports(__name__)
