"""Synthetic faces: the default dataset, drawn by the project itself so that nothing needs downloading.

adornments  What a face wears and bears: beard, glasses, moles and freckles
attributes  Who a synthetic person is: continuous attributes, the words they read as, and how often they are seen
canvas      A canvas that sees points of a head in three dimensions and paints them smoothly
captions    What identities would say about a synthetic face: captions that a CLIP learns from, and prompts to ask it
with colours     The palettes a face is painted with, and how colours mix (RGB, 0 to 255) drawing     A photograph of a
synthetic person: the face drawn large, lit, shrunk and degraded features    The features of a face: eyes, brows, nose,
mouth and the lines of age head        The head: neck, ears, face outline and hair landmarks   Where the eyes, the nose
and the corners of the mouth of a drawn face are nuisance    What a photograph adds to a face: backdrop, occlusion,
light, blur and noise shot        What changes between two photographs of one person, drawn at random for each
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "ATTRIBUTES",
    "TEMPLATES",
    "answers",
    "caption",
    "describe",
    "draw_face",
    "draw_jpeg",
    "find_landmarks",
    "identity_attributes",
    "prompts",
    "questions",
    "sample_count",
    "shot_of",
]

if TYPE_CHECKING:
    from gif_core.synthetic.attributes import ATTRIBUTES, describe, identity_attributes, sample_count
    from gif_core.synthetic.captions import TEMPLATES, answers, caption, prompts, questions
    from gif_core.synthetic.drawing import draw_face, draw_jpeg
    from gif_core.synthetic.landmarks import find_landmarks, shot_of
else:
    __getattr__ = lazy_imports(__name__)
