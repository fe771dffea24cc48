"""Galleries: people enrolled by their photographs, without training, and found again among any others.

gallery      EnrolledGallery: open the newest version of a gallery, and identify faces in it
enrolment    enroll: photographs → templates → a new version
removal      remove: an identity and its vectors, and what else holds them
album        photographs with labels: a sub-folder per identity, or a file of labels
templates    weighted sums of features per identity
segments     files of templates
calibration  the threshold between known and unknown for one gallery
export       a gallery as a file
index        exact search; above some size among compressed templates first
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "EXACT_LIMIT",
    "Enrolled",
    "EnrolledGallery",
    "Index",
    "Refused",
    "Removed",
    "build_index",
    "calibrate_gallery",
    "enroll",
    "export_templates",
    "read_album",
    "read_newest",
    "remove",
]

if TYPE_CHECKING:
    from gif_core.galleries.album import read_album
    from gif_core.galleries.calibration import calibrate_gallery
    from gif_core.galleries.enrolment import Enrolled, Refused, enroll
    from gif_core.galleries.export import export_templates
    from gif_core.galleries.gallery import EnrolledGallery, read_newest
    from gif_core.galleries.index import EXACT_LIMIT, Index, build_index
    from gif_core.galleries.removal import Removed, remove
else:
    __getattr__ = lazy_imports(__name__)
