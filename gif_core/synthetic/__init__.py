"""Synthetic faces: the default dataset, drawn by the project itself so that nothing needs downloading."""

from gif_core.synthetic.attributes import ATTRIBUTES, describe, identity_attributes, sample_count
from gif_core.synthetic.drawing import draw_face, draw_jpeg

__all__ = ["ATTRIBUTES", "describe", "draw_face", "draw_jpeg", "identity_attributes", "sample_count"]
