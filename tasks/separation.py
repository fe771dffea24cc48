"""Separation as a cached task."""

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import save_file

from gif_core.artifacts import Draft
from gif_core.devices import pick_device
from gif_core.embedding import vectors_of
from gif_core.separation import separate, separation_scores
from schemas.run import RunConfig
from tasks.progress import track
from tasks.stage import Inputs, stage_task

CURVE = ("epoch", "loss", "gap", "mean_cosine", "neighbours_kept")


@stage_task("separation")
def separation(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """Identity vectors move apart until they are uniform on the sphere (Eq. 4 to 6)."""
    vectors = torch.from_numpy(vectors_of(pq.read_table(inputs["embedding"].path("vectors.parquet"))).copy())
    vectors = vectors.to(pick_device(config.execution.device))
    steps = separate(vectors, config.separation, seed=config.seed)
    curve = []
    for step in track(steps, "separation", lambda s: (s.epoch, s.epochs), lambda s: f"gap {s.gap:.4f}"):
        curve.append({name: getattr(step, name) for name in CURVE})
    save_file({"code_vectors": step.vectors_ND.cpu().contiguous()}, draft.folder / "code_vectors.safetensors")
    pq.write_table(pa.Table.from_pylist(curve), draft.folder / "curve.parquet")
    before, after = separation_scores(vectors), separation_scores(step.vectors_ND)
    draft.metrics |= {"epochs": step.epoch, "gap": step.gap, "neighbours_kept": step.neighbours_kept or 0.0}
    for name in ("min", "mean", "max"):
        draft.metrics[f"{name}_distance"] = getattr(after, name)
        draft.metrics[f"{name}_distance_before"] = getattr(before, name)
