"""Section "Faces": sample images of some identities, and how many images each identity has."""

# Shapes: N identities, or faces of the shard.

import base64
from typing import Final

import numpy as np
import pyarrow.parquet as pq

from gif_core.images import Faces, draw_contact_sheet
from gif_core.reporting import plots
from gif_core.reporting.sections.inputs import Inputs, Shown
from schemas.files import IDENTITIES_FILE, QUARANTINE_FILE
from schemas.run import RunConfig

IDENTITIES_SHOWN: Final = 6
FACES_SHOWN: Final = 8


def show_faces(config: RunConfig, inputs: Inputs) -> Shown:
    """Show images of some identities of the first shard, and the number of images per identity."""
    ingestion = inputs["ingestion"]
    identities = pq.read_table(ingestion.path(IDENTITIES_FILE))
    counts_N = identities["num_samples"].to_numpy()
    labels = identities["label"]
    faces = Faces([ingestion.path(ingestion.names("identities-")[0])])
    chosen = _choose_identities(faces)
    return {
        "strips": [_show_strip(faces, identity, labels[identity].as_py(), counts_N[identity]) for identity in chosen],
        "smallest": counts_N.min(),
        "median": np.median(counts_N),
        "largest": counts_N.max(),
        "quarantined": pq.read_metadata(ingestion.path(QUARANTINE_FILE)).num_rows,
        "counts": plots.draw_sample_counts(counts_N),
    }


def _choose_identities(faces: Faces) -> list[int]:
    """Choose identities of these shards, from the one with the most faces to the one with the fewest."""
    identities, counts = np.unique(faces.labels_N, return_counts=True)
    ranked = identities[np.argsort(-counts, kind="stable")]
    places = np.linspace(0, len(ranked) - 1, min(IDENTITIES_SHOWN, len(ranked)))
    return [int(identity) for identity in ranked[places.astype(np.int64)]]


def _show_strip(faces: Faces, identity: int, label: str, count: int) -> Shown:
    """Return some faces of an identity as an inline image, and the share of a full row they take."""
    image = base64.b64encode(draw_contact_sheet(faces, [identity], FACES_SHOWN)).decode()
    width = min(int(np.sum(faces.labels_N == identity)), FACES_SHOWN) / FACES_SHOWN
    return {"label": label, "count": count, "image": f"data:image/jpeg;base64,{image}", "width": width}
