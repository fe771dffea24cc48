"""Training as a cached task."""

from collections import deque
from collections.abc import Collection

from gif_core.artifacts import Draft
from gif_core.code_table import read_codes
from gif_core.devices import pick_device
from gif_core.metrics import MetricsWriter
from gif_core.models import save_model
from gif_core.training import TrainingStep, train
from schemas.run import RunConfig
from tasks.inputs import open_code_vectors, open_faces
from tasks.progress import track
from tasks.stage import Inputs, stage_task


@stage_task("training")
def training(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """A backbone learns to predict the code of a face and to meet its code vector (Eq. 10)."""
    faces = open_faces(inputs["ingestion"], "identities", config.execution.workers)
    codes, shape = read_codes(inputs["tokenization"].path("codes.duckdb"))
    vectors = open_code_vectors(inputs["separation"])
    device = pick_device(config.execution.device)
    steps = train(faces, codes, vectors, config.training, seed=config.seed, device=device)
    tail: deque[dict[str, float]] = deque()
    with MetricsWriter(draft.folder / "metrics.parquet", "training") as writer:
        for step in track(steps, "training", lambda step: (step.step, step.steps), _describe):
            figures = step.metrics | {"images_per_second": step.images_per_second}
            writer.add(step.step, figures)
            tail.append(figures)
            if len(tail) > max(step.steps // 20, 1):
                tail.popleft()
    description = {
        "backbone": config.training.backbone,
        "embedding_dim": vectors.shape[1],
        "length": shape.length,
        "range": shape.range,
        "codes": inputs["tokenization"].ref.key,
    }
    save_model(draft.folder, step.state.model, step.state.head, description)
    draft.metrics |= {"steps": step.step, **_means(tail)}


def _describe(step: TrainingStep) -> str:
    figures = step.metrics
    return (
        f"loss {figures['loss']:.3f}  code {figures['code_accuracy']:.0%}  "
        f"z·h {figures['alignment']:.2f}  {step.images_per_second:.0f} img/s"
    )


def _means(tail: Collection[dict[str, float]]) -> dict[str, float]:
    """Mean of the main figures over the last steps."""
    names = ("loss", "code_accuracy", "alignment", "images_per_second")
    return {name: sum(figures[name] for figures in tail) / len(tail) for name in names}
