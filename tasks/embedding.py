"""Embedding as a cached task."""

import numpy as np
import pyarrow.parquet as pq

from gif_core.artifacts import Draft
from gif_core.devices import pick_device
from gif_core.embedding import embed_identities, identity_vectors, vectors_of
from gif_core.encoders import OpenClipEncoder
from schemas.run import RunConfig
from tasks.inputs import open_faces
from tasks.progress import last, track
from tasks.stage import Inputs, stage_task


@stage_task("embedding")
def embedding(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """Every identity gets the mean of its faces' encoder features (Eq. 3)."""
    device, workers = pick_device(config.execution.device), config.execution.workers
    encoder = OpenClipEncoder(config.embedding, device, workers=workers)
    faces = open_faces(inputs["ingestion"], "identities", workers)
    steps = embed_identities(encoder, faces, batch_size=config.execution.encode_batch)
    table = identity_vectors(last(track(steps, "embedding", lambda step: (step.images, step.total))))
    pq.write_table(table, draft.folder / "vectors.parquet")
    mean = vectors_of(table).mean(axis=0)
    draft.metrics |= {"dimensions": len(mean), "mean_cosine": float(np.dot(mean, mean))}
