"""Files of templates, `galleries/<name>/segments/<sha256>-<id>.arrow`: written once, deleted with an identity.

They are read and written directly, not through the local cache, so that removing them leaves no copy.
"""

import hashlib
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa

from gif_core.artifacts import ArtifactStore, GalleryError, gallery_folder
from gif_core.galleries.templates import Templates, merge
from schemas.galleries import GalleryVersion

ATTEMPTS: Final = 5
"""How often the newest version is asked for when its files vanish, because an identity is removed meanwhile."""


def save_segment(store: ArtifactStore, name: str, templates: Templates) -> str:
    """Store templates; returns the name of the file, which no other writer uses."""
    content = _to_bytes(templates)
    segment = f"{hashlib.sha256(content).hexdigest()}-{uuid4().hex[:8]}.arrow"
    store.storage.replace(segment_path(name, segment), content)
    return segment


def load_segment(store: ArtifactStore, name: str, segment: str, *, digests: bool = True) -> Templates:
    """Templates of one file; GalleryError if it is damaged, FileNotFoundError if it was removed.

    A file on a local disk is mapped: its vectors take no memory until they are read. `digests` are those of images.
    """
    path = segment_path(name, segment)
    local = store.storage.local_path(path)
    content = store.storage.read(path) if local is None else pa.memory_map(str(local)).read_buffer()
    if hashlib.sha256(content).hexdigest() != segment.partition("-")[0]:
        raise GalleryError(f"{path} of {store.storage.url} is damaged: enrol its images again")
    return _from_buffer(content, digests=digests)


def read_templates(store: ArtifactStore, name: str, version: GalleryVersion, *, digests: bool = True) -> Templates:
    """All identities of a version; FileNotFoundError if it is no longer the newest one and was removed."""
    parts = [load_segment(store, name, segment, digests=digests) for segment in version.segments]
    return merge(parts) if parts else Templates([], np.empty((0, 0), np.float32))


def segment_path(name: str, segment: str) -> str:
    """Where a file of templates is stored."""
    return f"{gallery_folder(name)}/segments/{segment}"


def _to_bytes(templates: Templates) -> bytes:
    values = pa.array(templates.sums_ND.reshape(-1))
    columns = {
        "label": pa.array(templates.labels, pa.string()),
        "sum": pa.FixedSizeListArray.from_arrays(values, templates.sums_ND.shape[1]),
        "images": pa.array(templates.digests, pa.list_(pa.string())),
    }
    table, sink = pa.table(columns), pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _from_buffer(content: Any, *, digests: bool) -> Templates:
    table = pa.ipc.open_file(pa.BufferReader(content)).read_all()
    width = table.schema.field("sum").type.list_size
    parts = [each.flatten().to_numpy().reshape(-1, width) for each in table["sum"].chunks]
    sums_ND = parts[0] if len(parts) == 1 else np.concatenate([np.empty((0, width), np.float32), *parts])
    return Templates(table["label"].to_pylist(), sums_ND, table["images"].to_pylist() if digests else [])
