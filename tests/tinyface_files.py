"""Drawn faces in exactly the folders and names of TinyFace's test set."""

from pathlib import Path

import cv2

from gif_core.synthetic import draw_face

SIDE = 20
"""Pixels, the mean of the real set."""


def write_tinyface(folder: Path, *, identities: int, distractors: int, seed: int = 5) -> Path:
    """Write two images per identity to the gallery and two to the probes; return the folder of `Testing_Set`."""
    parts = {"Gallery_Match": (1, 2), "Probe": (3, 4)}
    for part, numbers in parts.items():
        for label in range(1, identities + 1):
            for number in numbers:
                _draw(folder, f"{part}/{label}_{number}.jpg", seed, label, number)
    for number in range(1, distractors + 1):
        _draw(folder, f"Gallery_Distractor/{number}_{number % 7}_face.jpg", seed, identities + number, 0)
    return folder / "tinyface"


def _draw(folder: Path, name: str, seed: int, identity: int, sample: int) -> None:
    path = folder / "tinyface/Testing_Set" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), cv2.cvtColor(draw_face(seed, identity, sample, SIDE), cv2.COLOR_RGB2BGR))
