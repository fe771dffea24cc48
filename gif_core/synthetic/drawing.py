"""A photograph of a synthetic person: the face drawn large, lit, shrunk and degraded."""

import cv2
import numpy as np
from numpy.typing import NDArray

from gif_core.synthetic.adornments import paint_beard, paint_glasses, paint_marks
from gif_core.synthetic.attributes import Person, identity_attributes
from gif_core.synthetic.canvas import Canvas
from gif_core.synthetic.features import paint_age, paint_brows, paint_eyes, paint_mouth, paint_nose
from gif_core.synthetic.head import paint_back_hair, paint_body, paint_face, paint_front_hair
from gif_core.synthetic.nuisance import apply_light, degrade, paint_backdrop, paint_occlusion
from gif_core.synthetic.shot import Expression, Shot, random_shot

SAMPLE_TAG = 3
JPEG_TAG = 4
OVERSAMPLING = 2
JPEG_QUALITIES = (35, 96)


def paint_features(canvas: Canvas, person: Person, expression: Expression) -> None:
    """Paint everything inside the outline of the face."""
    paint_age(canvas, person)
    paint_marks(canvas, person)
    paint_beard(canvas, person, expression)
    paint_eyes(canvas, person, expression)
    paint_brows(canvas, person, expression)
    paint_nose(canvas, person)
    paint_mouth(canvas, person, expression)


def paint_person(canvas: Canvas, person: Person, shot: Shot) -> None:
    """Paint an identity, from the back of the hair to the glasses."""
    paint_back_hair(canvas, person)
    paint_body(canvas, person, shot.clothes)
    paint_face(canvas, person)
    paint_features(canvas, person, shot.expression)
    paint_front_hair(canvas, person)
    paint_glasses(canvas, person)


def draw_face(seed: int, identity: int, sample: int, size: int = 112) -> NDArray[np.uint8]:
    """One photograph of one identity before compression: RGB, `size` x `size` x 3."""
    rng = np.random.default_rng([seed, SAMPLE_TAG, identity, sample])
    person, shot = Person(*identity_attributes(seed, identity).tolist()), random_shot(rng)
    canvas = Canvas(paint_backdrop(rng, shot, OVERSAMPLING * size), shot.pose)
    paint_person(canvas, person, shot)
    paint_occlusion(canvas, shot)
    small = np.asarray(cv2.resize(canvas.image, (size, size), interpolation=cv2.INTER_AREA), dtype=np.uint8)
    return degrade(rng, apply_light(small, shot.light, shot.pose.shift), shot)


def draw_jpeg(seed: int, identity: int, sample: int, size: int = 112) -> bytes:
    """One photograph of one identity as JPEG, with a random quality."""
    quality = int(np.random.default_rng([seed, JPEG_TAG, identity, sample]).integers(*JPEG_QUALITIES))
    image = cv2.cvtColor(draw_face(seed, identity, sample, size), cv2.COLOR_RGB2BGR)
    _, encoded = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return encoded.tobytes()
