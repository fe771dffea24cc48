"""Synthetic faces: generated photographs of identities with known attributes, so that nothing has to be downloaded.

drawing     draw_face and draw_jpeg: one photograph of one identity
attributes  the attributes of an identity, their coarse words, and the number of its images
shot        what varies between photographs: pose, expression, light
head        neck, ears, outline of the face, hair
features    eyes, brows, nose, mouth, lines of age
adornments  beard, glasses, moles, freckles
nuisance    background, occlusion, light, blur, noise
landmarks   the five landmarks of a drawn face
canvas      projecting points of a head in three dimensions, and painting them
colours     palettes, and mixing colours
captions    captions to train CLIP on, and prompts to query it
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
    "label_of",
    "number_of",
    "prompts",
    "questions",
    "sample_count",
    "shot_of",
]

if TYPE_CHECKING:
    from gif_core.synthetic.attributes import ATTRIBUTES, describe, identity_attributes, sample_count
    from gif_core.synthetic.captions import TEMPLATES, answers, caption, prompts, questions
    from gif_core.synthetic.drawing import draw_face, draw_jpeg
    from gif_core.synthetic.labels import label_of, number_of
    from gif_core.synthetic.landmarks import find_landmarks, shot_of
else:
    __getattr__ = lazy_imports(__name__)
