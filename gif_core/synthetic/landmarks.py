"""The five landmarks of a drawn face: eyes, nose and corners of the mouth."""

import numpy as np
from numpy.typing import NDArray

from gif_core.synthetic.attributes import Person, identity_attributes
from gif_core.synthetic.canvas import Points, on_face, project_to_crop
from gif_core.synthetic.drawing import SAMPLE_TAG
from gif_core.synthetic.features import NOSE_LIFT, eye_centre, mouth_corner, nose_y
from gif_core.synthetic.shot import Expression, Shot, random_shot


def find_landmarks(seed: int, identity: int, sample: int, size: int = 112) -> NDArray[np.float64]:
    """Five points (x, y) in pixels of `draw_face` with these arguments: eyes, nose, mouth; left of the image first."""
    person = Person(*identity_attributes(seed, identity).tolist())
    shot = shot_of(seed, identity, sample)
    return project_to_crop(_head_points(person, shot.expression), shot.pose, size)


def shot_of(seed: int, identity: int, sample: int) -> Shot:
    """The variation of this photograph: `draw_face` draws it first from its random numbers."""
    return random_shot(np.random.default_rng([seed, SAMPLE_TAG, identity, sample]))


def _head_points(person: Person, expression: Expression) -> Points:
    """The five points on the head, in three dimensions."""
    (eye_x, eye_y), (corner_x, corner_y) = eye_centre(person), mouth_corner(person, expression)
    eyes = on_face([(-eye_x, eye_y), (eye_x, eye_y)])
    nose = on_face([(0.0, nose_y(person))], NOSE_LIFT)
    mouth = on_face([(-corner_x, corner_y), (corner_x, corner_y)])
    return np.concatenate([eyes, nose, mouth])
