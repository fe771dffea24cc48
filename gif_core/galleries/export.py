"""Writing a gallery to a file for others: labels, numbers of images and templates of unit length."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gif_core.galleries.templates import Templates
from schemas.errors import GifError
from schemas.galleries import GalleryVersion


def export_templates(out: Path, templates: Templates, version: GalleryVersion) -> None:
    """Write `.parquet`, with model and threshold in its metadata, or `.npz`."""
    about = version.model_dump(mode="json", include={"number", "model", "threshold"})
    counts = [len(digests) for digests in templates.digests]
    if out.suffix == ".npz":
        np.savez(out, labels=np.array(templates.labels), vectors=templates.vectors_ND, about=json.dumps(about))
    elif out.suffix == ".parquet":
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(templates.vectors_ND.ravel()), templates.sums_ND.shape[1])
        table = pa.table({"label": templates.labels, "images": counts, "vector": vectors})
        pq.write_table(table.replace_schema_metadata({"gif": json.dumps(about)}), out)
    else:
        raise GifError(f"--out {out}: the name must end with .parquet or .npz")
