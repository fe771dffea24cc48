"""The model card: YAML that the hub reads, and what a person must know before using the model."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from gif_core.artifacts import Artifact
from gif_core.protocols import flags_of, read_scores
from gif_core.recognition import PairThreshold, pair_thresholds
from gif_core.runtime import flag_words, metric_name, moment, percent, set_name, thousands
from gif_core.sharing.pulling import origin_of, tag_for
from schemas.files import SCORES_FILE
from schemas.sharing import UNKNOWN_LICENCE, SharedData, SharedModel
from schemas.stages import StageName

NOT_SCORES: Final = ("threshold", "accuracy_std")
"""Metrics of a set that are no scores: the threshold is a squared distance and has its own table."""
TASK: Final = {"type": "face-verification", "name": "Face verification"}
INTENDED: Final = """\
- It compares aligned faces. It does not detect presentation attacks (printed pictures, screens, masks).
- Error rates differ between groups of people, cameras and conditions. They were measured on the sets above only, so
  measure them on your own images before a decision depends on the model.
- Identifying people needs a lawful basis and, in most places, their consent."""


def write_card(shared: SharedModel, name: str, folder: Path, artifacts: Mapping[StageName, Artifact]) -> str:
    """The text of README.md for the files in `folder`."""
    scores = folder / SCORES_FILE
    sets = read_scores(scores) if scores.is_file() else {}
    thresholds = pair_thresholds(scores) if sets else {}
    sections = {
        "Use": _use(name),
        "Training": _training(shared),
        "Scores": "\n".join(_score_rows(sets)) or "This model was not evaluated.",
        "Thresholds": "\n".join(_threshold_rows(thresholds)) or "There is none: no pairs were verified.",
        "Limits": _limits(shared.data),
        "Lineage": "\n".join(_lineage_rows(artifacts)),
        "Licence": _licence(shared.license),
    }
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items())
    return f"---\n{_metadata(shared, name, sets)}---\n\n# {name}\n\n{_summary(shared)}\n\n{body}\n"


def _metadata(shared: SharedModel, name: str, sets: Mapping[str, Mapping[str, Any]]) -> str:
    results = [_result(title, found) for title, found in sets.items() if found["systems"]["model"]]
    about: dict[str, Any] = {
        "license": shared.license,
        "library_name": "gif-face-recognition",
        "pipeline_tag": "image-feature-extraction",
        "tags": ["face-recognition", "face-verification", shared.backbone],
    }
    about |= {"model-index": [{"name": name, "results": results}]} if results else {}
    return yaml.safe_dump(about, sort_keys=False, allow_unicode=True)


def _result(title: str, found: Mapping[str, Any]) -> dict[str, Any]:
    metrics = [{"type": metric, "name": metric_name(metric), "value": value} for metric, value in _scores(found)]
    return {"task": TASK, "dataset": {"name": set_name(title), "type": found["kind"]}, "metrics": metrics}


def _summary(shared: SharedModel) -> str:
    drawn = " It was trained on **drawn faces** and is not fit for photographs." if _is_drawn(shared.data) else ""
    return (
        f"A face recognition network: {shared.backbone}, features of {shared.embedding_dim} dimensions, trained with "
        f"the head {shared.head}.{drawn}"
    )


def _use(name: str) -> str:
    return (
        f"```\ngif pull {name}\ngif verify a.jpg b.jpg --model {tag_for(name)}\n```\n\n"
        "Input: RGB faces aligned by five landmarks to 112×112 pixels, scaled by (x − 127.5) / 127.5, as in "
        "insightface. The feature of a face is the sum over image and mirror image, brought to unit length; features "
        "are compared by their cosine. `model.safetensors` has the parameter names of insightface's networks."
    )


def _training(shared: SharedModel) -> str:
    data = shared.data
    if data.identities is None:
        text = "The faces it was trained on are no longer known."
    else:
        text = (
            f"{thousands(data.images or 0)} images of {thousands(data.identities)} identities; "
            f"{thousands(data.held_out or 0)} other identities were held out. Kinds of sources: "
            f"{', '.join(data.sources) or 'unknown'}."
        )
    settings = ", ".join(f"{name} {value}" for name, value in shared.training.items())
    return f"{text}\n\nSettings: {settings or 'unknown'}."


def _scores(found: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for metric, value in found["systems"]["model"].items():
        if metric not in NOT_SCORES:
            yield metric, value


def _score_rows(sets: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A row for every metric, with the protocol and the flags it was measured with."""
    if not sets:
        return
    yield "| set | metric | value | protocol | flags |\n|---|---|---|---|---|"
    for title, found in sets.items():
        flags = ", ".join(flag_words(flags_of(found, "model")))
        for metric, value in _scores(found):
            about = f"{found['protocol']} | {flags}"
            yield f"| {_cell(set_name(title))} | {metric_name(metric)} | {percent(value)} | {about} |"


def _threshold_rows(thresholds: Mapping[str, PairThreshold]) -> Iterator[str]:
    if not thresholds:
        return
    yield "Two faces count as one identity above this cosine.\n"
    yield "| found on | pairs | cosine | accuracy there | FAR there |\n|---|---|---|---|---|"
    for known in thresholds.values():
        rates = f"{percent(known.accuracy)} | {percent(known.far)}"
        yield f"| {_cell(set_name(known.set))} | {thousands(known.pairs)} | {known.cosine:.4f} | {rates} |"


def _limits(data: SharedData) -> str:
    drawn = "- It has seen drawn faces only: the scores and thresholds above do not hold for photographs.\n"
    return (drawn if _is_drawn(data) else "") + INTENDED


def _lineage_rows(artifacts: Mapping[StageName, Artifact]) -> Iterator[str]:
    yield "| stage | key | content (sha256) | made | by |\n|---|---|---|---|---|"
    for stage, artifact in artifacts.items():
        manifest = artifact.manifest
        made = f"{moment(manifest.created_at)} | {manifest.code_version}"
        yield f"| {stage} | `{artifact.ref.key[:12]}` | `{manifest.digest[:12]}` | {made} |"
    if origin := origin_of(artifacts["training"]):
        yield f"\nThe model was pulled from {origin}."


def _licence(licence: str) -> str:
    if licence == UNKNOWN_LICENCE:
        return "No licence was stated. The terms of the training data also bind whoever uses the weights."
    return f"{licence}. The terms of the training data also bind whoever uses the weights."


def _is_drawn(data: SharedData) -> bool:
    return bool(data.sources) and set(data.sources) == {"synthetic"}


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
