"""Detection: faces in photographs, found with YuNet and aligned to 112×112 pixels.

detector     Detector: boxes, five landmarks and scores of the faces in an image
model_file   the detector's model file, which is not part of the project: installing it and finding it
photographs  aligned faces of photographs, and what is doubtful about them: several, tiny, blurred
drawing      photographs with a box, a name and the landmarks of every face
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "DETECTOR_DIGEST",
    "DETECTOR_URL",
    "FACE_MODES",
    "AlignedFace",
    "Detection",
    "Detector",
    "DetectorMissingError",
    "FaceMode",
    "NoFaceError",
    "SeveralFacesError",
    "doubt_alignment",
    "draw_faces",
    "encode_picture",
    "find_detector",
    "find_faces",
    "install_detector",
    "only_face",
    "open_detector",
]

if TYPE_CHECKING:
    from gif_core.detection.detector import Detection, Detector, open_detector
    from gif_core.detection.drawing import draw_faces, encode_picture
    from gif_core.detection.model_file import (
        DETECTOR_DIGEST,
        DETECTOR_URL,
        DetectorMissingError,
        find_detector,
        install_detector,
    )
    from gif_core.detection.photographs import (
        FACE_MODES,
        AlignedFace,
        FaceMode,
        NoFaceError,
        SeveralFacesError,
        doubt_alignment,
        find_faces,
        only_face,
    )
else:
    __getattr__ = lazy_imports(__name__)
