"""The page of an audit: pictures of what was found, the surest first."""

# Shapes: n images.

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from gif_core.auditing.audit import LIST_FILE, Audit
from gif_core.auditing.findings import KINDS, NEW, Finding
from gif_core.reporting import write_page

FACES_SHOWN: Final = 6
QUALITY: Final = 85
TITLES: Final = {
    "duplicate": "One person, two identities",
    "mixed": "One identity, two persons",
    "flipped": "Images of another identity",
    "stray": "Images of nobody here",
}
Strip = dict[str, Any]


def write_audit_page(path: Path, audit: Audit, pictures: int) -> None:
    """Write one HTML file with up to `pictures` findings of each kind, images inside."""
    pictured = _Pictures(audit)
    sections = [
        {
            "kind": kind,
            "title": TITLES[kind],
            "explanation": f"{explanation[0].upper()}{explanation[1:]}.",
            "found": len(audit.findings.of(kind)),
            "findings": [pictured.show(finding) for finding in audit.findings.of(kind)[:pictures]],
        }
        for kind, explanation in KINDS.items()
    ]
    write_page(path, "audit.html", {"summary": audit.summary(), "sections": sections, "list": LIST_FILE})


class _Pictures:
    """Findings as captions and strips of faces."""

    def __init__(self, audit: Audit) -> None:
        self.given = audit.given
        self.order_N = np.argsort(self.given.person_N, kind="stable")
        self.ends_P = np.cumsum(np.bincount(self.given.person_N, minlength=len(self.given.labels)))
        self.found = np.zeros(len(self.given.person_N), bool)
        for finding in audit.findings.findings:
            self.found[finding.rows] = True

    def show(self, finding: Finding) -> dict[str, Any]:
        """The images in question, those they are with now, and those they belong to."""
        strips = [self._strip("these images", finding.person, finding.rows)]
        if finding.kind != "duplicate":
            strips.append(self._strip("their identity now", finding.person, self._others(finding.person)))
        if finding.to >= 0:
            strips.append(self._strip("the identity they belong to", finding.to, self._others(finding.to)))
        return {"score": finding.score, "strips": strips, "remedy": self._remedy(finding)}

    def _remedy(self, finding: Finding) -> str:
        same_source = finding.to < 0 or self.given.sources[finding.to] == self.given.sources[finding.person]
        if finding.to == NEW:
            return "they get a label of their own"
        return f"they get the label {self.given.labels[finding.to]}" if finding.to >= 0 and same_source else "left out"

    def _others(self, person: int) -> NDArray[np.int64]:
        """Images of an identity that are not found to be wrong."""
        start = self.ends_P[person - 1] if person else 0
        rows = self.order_N[start : self.ends_P[person]]
        return rows[~self.found[rows]]

    def _strip(self, words: str, person: int, rows: NDArray[np.int64]) -> Strip:
        places = np.linspace(0, len(rows) - 1, min(len(rows), FACES_SHOWN)).astype(np.int64)
        images = list(self._encode(rows[places])) if len(rows) else []
        return {"words": words, "label": self.given.labels[person], "count": len(rows), "images": images}

    def _encode(self, rows: NDArray[np.int64]) -> Iterator[dict[str, str]]:
        for row, image_HWC in zip(rows.tolist(), self.given.faces.load(rows), strict=True):
            bgr_HWC = cv2.cvtColor(image_HWC, cv2.COLOR_RGB2BGR)
            encoded = cv2.imencode(".jpg", bgr_HWC, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1].tobytes()
            source = f"data:image/jpeg;base64,{base64.b64encode(encoded).decode()}"
            yield {"src": source, "name": self.given.faces.name(row)}
