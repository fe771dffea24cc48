"""Contact sheets: an image with one row of faces per identity and captions on the left."""

# Shapes: N faces.

from collections.abc import Sequence
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from gif_core.images.faces import IMAGE_SIZE, Faces

ENCODINGS: Final[dict[str, list[int]]] = {
    ".jpg": [cv2.IMWRITE_JPEG_QUALITY, 88],
    ".jpeg": [cv2.IMWRITE_JPEG_QUALITY, 88],
    ".png": [],
}
MOST_ROWS: Final = 65_500 // IMAGE_SIZE
"""Limit of the height of a JPEG, in faces."""
EMPTY: Final = 128
"""Grey value of cells without a face."""
FONT: Final = cv2.FONT_HERSHEY_SIMPLEX
FONT_SCALE: Final = 0.45
LINE_HEIGHT: Final = 20
INK, PAPER = (40, 40, 40), 255
MARGIN: Final = 8
WIDEST_TEXT: Final = 200

Caption = Sequence[str]
"""Lines of text beside a row."""


def draw_contact_sheet(
    faces: Faces, rows: Sequence[int], columns: int, captions: Sequence[Caption] = (), ending: str = ".jpg"
) -> bytes:
    """An image file with one row per identity in `rows` and at most `columns` of its faces.

    Faces are chosen evenly from those of the identity. The sheet is as wide as its longest row. There is one caption
    per row, or none at all.
    """
    if not rows or columns < 1:
        raise ValueError(f"a sheet of {len(rows)} identities and {columns} columns has no faces")
    if len(rows) > MOST_ROWS:
        raise ValueError(f"a sheet has at most {MOST_ROWS} rows, not {len(rows)}")
    check_ending(ending)
    chosen = [_choose_faces(faces, identity_id, columns) for identity_id in rows]
    width = max(len(indices) for indices in chosen)
    sheet = np.concatenate([_draw_strip(faces.load(indices), width) for indices in chosen])
    if captions:
        sheet = np.concatenate([_draw_captions(captions), sheet], axis=1)
    _, encoded = cv2.imencode(ending, cv2.cvtColor(sheet, cv2.COLOR_RGB2BGR), ENCODINGS[ending])
    return encoded.tobytes()


def check_ending(ending: str) -> None:
    """Reject endings other than those of JPEG and PNG files."""
    if ending not in ENCODINGS:
        raise ValueError(f"the file name of a sheet must end in {', '.join(ENCODINGS)}, not in {ending!r}")


def _choose_faces(faces: Faces, identity_id: int, columns: int) -> NDArray[np.int64]:
    """Row numbers of some faces of an identity: the first, the last and others evenly in between."""
    all_rows = np.flatnonzero(faces.labels_N == identity_id)
    if not len(all_rows):
        raise ValueError(f"identity {identity_id} has no faces here")
    places = np.linspace(0, len(all_rows) - 1, min(columns, len(all_rows)))
    return all_rows[np.round(places).astype(np.int64)]


def _draw_strip(images: NDArray[np.uint8], width: int) -> NDArray[np.uint8]:
    """Faces side by side, followed by grey cells."""
    strip = np.full((IMAGE_SIZE, width * IMAGE_SIZE, 3), EMPTY, np.uint8)
    strip[:, : len(images) * IMAGE_SIZE] = np.concatenate(list(images), axis=1)
    return strip


def _draw_captions(captions: Sequence[Caption]) -> NDArray[np.uint8]:
    """A column of captions, each vertically centred in its row, as wide as the widest line."""
    texts = [[_shorten(line) for line in caption] for caption in captions]
    width = max(_text_width(line) for text in texts for line in text)
    column = np.full((len(texts) * IMAGE_SIZE, width + 2 * MARGIN, 3), PAPER, np.uint8)
    for row, text in enumerate(texts):
        top = row * IMAGE_SIZE + (IMAGE_SIZE - len(text) * LINE_HEIGHT) // 2
        for number, line in enumerate(text):
            baseline = top + number * LINE_HEIGHT + round(0.75 * LINE_HEIGHT)
            cv2.putText(column, line, (MARGIN, baseline), FONT, FONT_SCALE, INK, 1, cv2.LINE_AA)
    return column


def _shorten(line: str) -> str:
    """Shorten a line that is too wide in the middle, and replace unprintable characters by question marks."""
    line = "".join(letter if letter.isprintable() else "?" for letter in line[:500])
    keep = len(line)
    shown = line
    while _text_width(shown) > WIDEST_TEXT:
        keep -= 1
        shown = f"{line[: (keep + 1) // 2]}…{line[len(line) - keep // 2 :]}"
    return shown


def _text_width(line: str) -> int:
    (width, _), _ = cv2.getTextSize(line, FONT, FONT_SCALE, 1)
    return int(width)
