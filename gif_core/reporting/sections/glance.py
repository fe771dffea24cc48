"""Section "At a glance": the run in a few numbers."""

from gif_core.reporting.sections.inputs import Inputs, Shown, count_identities
from gif_core.reporting.sections.scores import headline_scores
from schemas.run import RunConfig


def show_glance(config: RunConfig, inputs: Inputs) -> Shown:
    """Show the data, codes, scores and cost of the run."""
    return {
        "title": config.reporting.title,
        "finished": max(artifact.manifest.created_at for artifact in inputs.values()),
        "trained": count_identities(inputs["ingestion"], "identities"),
        "held_out": count_identities(inputs["ingestion"], "held_out"),
        "codes": inputs["tokenization"].manifest.metrics,
        "scores": list(headline_scores(inputs["evaluation"])),
        "raw_pixels": inputs["evaluation"].manifest.metrics.get("raw_pixels_accuracy"),
        "training": inputs["training"].manifest,
        "head": config.training.head,
        "backbone": config.training.backbone,
        "seconds": sum(artifact.manifest.seconds for artifact in inputs.values()),
        "gpu_hours": sum(artifact.manifest.gpu_hours for artifact in inputs.values()),
        "untrained_encoder": config.embedding.pretrained == "random",
    }
