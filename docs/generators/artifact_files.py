"""The page of artifact files: what each stage publishes. The build fails when the code names a file not described."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from markdown_pieces import code, table

from schemas.stages import INPUTS, STAGES, VERSIONS

PROJECT = Path(__file__).parents[2]
ENDINGS = r"[\w-]+\.(parquet|json|safetensors|duckdb|html)"
FILES = {
    "ingestion": {
        "identities-00000.arrow": "Shards of the identities to train on: `identity_id`, `name`, and `image`, the bytes "
        "of the image file as the source had them (aligned to 112×112 where the source has landmarks).",
        "held_out-00000.arrow": "The same of the identities that are kept aside.",
        "identities.parquet": "One row per identity to train on: id, label, source, number of images.",
        "held_out.parquet": "The same of the identities that are kept aside.",
        "quarantine.parquet": "Images and identities that were refused, with the reason; no image bytes.",
        "sources.parquet": "Names, sizes and digests of the source files, by which growth is recognised.",
    },
    "embedding": {
        "vectors.parquet": "One unit vector per identity (Eq. 3), number of images, cohesion.",
        "least_cohesive.parquet": "The identities whose images agree least, with their labels.",
        "parts.json": "Names of the parts in `<store>/parts/embedding/` it was put together from.",
    },
    "separation": {
        "code_vectors.safetensors": "The code vectors H, row i for identity i.",
        "curve.parquet": "Loss, gap, neighbours kept and rank correlation by epoch.",
        "distances.parquet": "Histogram of the cosine distances before and after.",
    },
    "tokenization": {
        "codes.duckdb": "The code table: `codes`, `nodes` and `meta`, for any DuckDB client.",
        "codes.parquet": "The table `codes` as Parquet.",
        "quality.parquet": "How good the codes are, level by level.",
    },
    "training": {
        "backbone.safetensors": "Weights of the backbone.",
        "head.safetensors": "Weights of the head: token networks and shared map, or one row per identity.",
        "model.json": "What the weights are: backbone, head, dimensions, code shape.",
        "metrics.parquet": "Metrics by step.",
        "tensorboard/": "The same as TensorBoard events.",
    },
    "evaluation": {
        "scores.json": "All scores, with protocol and flags, for programs.",
        "scores.parquet": "The same as a table.",
        "metrics.parquet": "The headline metrics in the form of training's.",
        "roc.parquet": "Points of the ROC curve of every set and system.",
        "cmc.parquet": "The CMC of every 1:N set.",
        "errors.parquet": "The most confident errors, with both images as JPEG.",
        "identification.json": "Identification of enrolled identities by the three methods, with the thresholds.",
        "pair_scores.parquet": "Scores of single pairs, kept for comparing two models.",
        "searches.parquet": "Scores of single 1:N probes, kept for the same.",
        "parts.json": "Names of the parts in `<store>/parts/evaluation/` that features of IJB sets were read from.",
    },
    "reporting": {"report.html": "The report: one page with everything inside, faces included."},
}
OTHERS = {
    "manifest.json": "the commit point of every artifact",
    "state.json": "the commit point of every checkpoint",
    "optimizer.safetensors": "in checkpoints of training",
    "job.json": "what a process under torchrun gets",
    "start.safetensors": "the vectors that separation starts from, while it runs",
    "comparison.html": "a template",
    "tiny-clip.json": "the encoder that comes with the project",
    "tiny-clip.safetensors": "the same",
}
"""File names of the code that no artifact has."""
INTRODUCTION = """# Artifact files

Every stage publishes one artifact, `<store>/<stage>/<key>/`: a manifest and the files below. The build of this page
fails when the code names a file that is missing here. What is in a store besides artifacts is described in
[Storage](../operations/storage.md); `gif artifacts show ARTIFACT` lists the files of one artifact with sizes and
digests.

The manifest, `manifest.json`, holds the stage, the key, the version of the stage, every setting that the key covers,
the keys and digests of the inputs, the version of the code, the files with their sha256, the headline metrics, when it
was made and how long that took.
"""


def page() -> str:
    """The whole page."""
    known = {name for files in FILES.values() for name in files} | OTHERS.keys()
    if unknown := set(names_in_code()) - known:
        raise ValueError(f"docs/generators/artifact_files.py does not describe {sorted(unknown)}")
    return "\n".join([INTRODUCTION, *(_section(stage) for stage in STAGES)])


def _section(stage: str) -> str:
    inputs = ", ".join(INPUTS[stage]) or "the sources"
    about = f"Version {VERSIONS[stage]}; made from {inputs}."
    rows = ([code(name), meaning] for name, meaning in FILES[stage].items())
    return f"## {stage}\n\n{about}\n\n{table(('file', 'holds'), rows)}"


def names_in_code() -> Iterator[str]:
    """Names of files in the texts of the code."""
    for layer in ("tasks", "gif_core", "schemas"):
        for path in (PROJECT / layer).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(ENDINGS, node.value):
                    yield node.value
