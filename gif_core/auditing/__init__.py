"""Auditing: which labels are wrong? Image features in; findings, a page of pictures and a list for ingestion out.

audit        `audit_faces`: the faces of an ingestion, one network, what it finds; the files that are written
features     features of all faces by an encoder or a trained model, in a mapped file
findings     `find_noise`: duplicate and mixed identities, flipped and stray images, from features and labels
grouping     the groups of all identities: sizes, means, the threshold between one person and two
groups       groups of one identity's images by average linkage
vectors      features by identity, how those of one person scatter, and the distance of two groups on that scale
neighbours   the nearest other identities of groups
calibration  thresholds found on the faces themselves, and the precision that is expected at them
page         the page of pictures
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "KINDS",
    "LIST_FILE",
    "PAGE_FILE",
    "Audit",
    "AuditedFaces",
    "EncoderNetwork",
    "Finding",
    "Findings",
    "ModelNetwork",
    "Network",
    "audit_faces",
    "find_noise",
]

if TYPE_CHECKING:
    from gif_core.auditing.audit import LIST_FILE, PAGE_FILE, Audit, AuditedFaces, audit_faces
    from gif_core.auditing.features import EncoderNetwork, ModelNetwork, Network
    from gif_core.auditing.findings import KINDS, Finding, Findings, find_noise
else:
    __getattr__ = lazy_imports(__name__)
