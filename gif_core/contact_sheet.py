"""Contact sheets: one row of faces for each identity."""

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from gif_core.faces import IMAGE_SIZE, Faces

JPEG_QUALITY = 88
EMPTY = 128
"""Grey of places without a face; it is neither loud on white nor on black."""


def contact_sheet(faces: Faces, rows: Sequence[int], columns: int) -> bytes:
    """A JPEG with one row for each identity in `rows` and at most `columns` of its faces.

    Faces are spread evenly over those the identity has. The sheet is as wide as its fullest row needs.
    """
    if not rows or columns < 1:
        raise ValueError(f"a sheet of {len(rows)} identities and {columns} columns has no faces")
    chosen = [_choose_faces(faces, identity_id, columns) for identity_id in rows]
    width = max(len(indices) for indices in chosen)
    strips = [_draw_strip(faces.load(indices), width) for indices in chosen]
    pixels = cv2.cvtColor(np.concatenate(strips), cv2.COLOR_RGB2BGR)
    _, encoded = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    return encoded.tobytes()


def _choose_faces(faces: Faces, identity_id: int, columns: int) -> NDArray[np.int64]:
    """Row numbers of some faces of an identity: the first, the last and others evenly between."""
    all_rows = np.flatnonzero(faces.labels_N == identity_id)
    if not len(all_rows):
        raise ValueError(f"identity {identity_id} has no faces here")
    places = np.linspace(0, len(all_rows) - 1, min(columns, len(all_rows)))
    return all_rows[np.round(places).astype(np.int64)]


def _draw_strip(images: NDArray[np.uint8], width: int) -> NDArray[np.uint8]:
    """Faces side by side, with grey places after the last one."""
    strip = np.full((IMAGE_SIZE, width * IMAGE_SIZE, 3), EMPTY, np.uint8)
    strip[:, : len(images) * IMAGE_SIZE] = np.concatenate(list(images), axis=1)
    return strip
