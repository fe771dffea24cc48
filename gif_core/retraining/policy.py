"""What a retraining has to do: is there anything new, are codes extended or made anew, where does training start."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow.parquet as pq

from gif_core.artifacts import Artifact, ArtifactMissingError, ArtifactStore, artifact_key
from gif_core.planning import stage_settings
from gif_core.tokenization import PARQUET_FILE, check_identities
from schemas.artifacts import ArtifactRef
from schemas.errors import GifError
from schemas.retraining import CodesChoice, CodesPolicy, Decision, TrainingPolicy
from schemas.run import LINKS, RunConfig
from schemas.stages import VERSIONS, StageName

LEAST_DISTANCE: Final = "min_distance"
"""The metric of separation that counts."""
BUILT: Final = ("backbone", "head", "hidden_layers", "negatives", "code_map")
"""Settings of training that say how large the weights are."""
BEFORE_CODES: Final[tuple[StageName, ...]] = ("embedding", "separation", "tokenization")


@dataclass(frozen=True)
class Champion:
    """The model in use with what it was made of."""

    training: Artifact
    separation: Artifact
    tokenization: Artifact

    @property
    def ingestion(self) -> str:
        """The key of the faces it was trained on."""
        return self.training.manifest.inputs["ingestion"].key


def open_champion(store: ArtifactStore, training: Artifact) -> Champion:
    """Open what a model was made of; all of it must still be there."""
    made_from = training.manifest.inputs
    stages: tuple[StageName, StageName] = ("separation", "tokenization")
    separation, tokenization = (store.open(store.ref(stage, made_from[stage].key)) for stage in stages)
    return Champion(training, separation, tokenization)


def sources_now(store: ArtifactStore, config: RunConfig) -> ArtifactRef:
    """The faces as ingestion would make them of the sources as they are now, whether they are stored or not."""
    settings = stage_settings(store, config, "ingestion")
    return store.ref("ingestion", artifact_key("ingestion", settings, {}))


def find_verdict(ingestion: str, champion: Champion, history: Sequence[Decision]) -> str | None:
    """Why there is nothing to do for these faces: the champion knows them, or they were decided about; else None."""
    if champion.ingestion == ingestion:
        return f"the sources are as they were when {champion.training.ref} was trained"
    for entry in reversed(history):
        if entry.ingestion == ingestion:
            return f"the sources are as they were at decision {entry.number} ({entry.kind.replace('_', ' ')})"
    return None


def choose_codes(
    store: ArtifactStore, config: RunConfig, champion: Champion, faces: Artifact, policy: CodesPolicy
) -> CodesChoice:
    """Extend the champion's codes, or make codes anew, as far as that can be told before the vectors are placed."""
    identities = pq.read_metadata(faces.path("identities.parquet")).num_rows
    table = champion.tokenization.manifest.metrics
    known, capacity = int(table["identities"]), int(table["vocab_size"]) ** int(table["length"])
    about = {"identities": identities, "new_identities": identities - known, "occupancy": identities / capacity}
    changed = _changed_before_codes(store, config, champion)
    if policy.prefer == "rebuild":
        because = "the policy is to make codes anew"
    elif changed:
        because = f"settings have changed: {', '.join(changed)}"
    elif not _are_more(champion, faces):
        about, because = {"identities": identities}, "they are not the champion's identities and some more"
    elif identities > policy.fullest * capacity:
        because = f"{identities:,} of {capacity:,} codes would be taken, more than {policy.fullest:.0%}"
    else:
        because = f"{identities:,} of {capacity:,} codes would be taken, at most {policy.fullest:.0%}"
        return CodesChoice(action="extend", because=because, **about)
    return CodesChoice(action="rebuild", because=because, **about)


def check_separation(
    store: ArtifactStore, choice: CodesChoice, champion: Champion, extended: Artifact, policy: CodesPolicy
) -> CodesChoice:
    """Whether code vectors are still far enough apart now that new identities are among them."""
    before = _least_distance(_last_rebuilt(store, champion.separation))
    now = _least_distance(extended)
    metrics = {"separation": now, "separation_before": before}
    if before is None or now is None or now >= policy.least_separation * before:
        return choice.model_copy(update=metrics)
    because = f"the least distance would be {now:.3f}, below {policy.least_separation:.0%} of {before:.3f}"
    return choice.model_copy(update={**metrics, "action": "rebuild", "because": because})


def challenger_config(
    config: RunConfig, champion: Champion, choice: CodesChoice, policy: TrainingPolicy
) -> tuple[RunConfig, bool]:
    """The settings of the challenger, and whether it is fine-tuned."""
    extends = choice.action == "extend"
    config = extend_codes(config, champion) if extends else config
    wanted = policy.fine_tune == "always" or (policy.fine_tune == "extended" and extends)
    return (fine_tune(config, champion, policy), True) if wanted and _fits(config, champion) else (config, False)


def extend_codes(config: RunConfig, champion: Champion) -> RunConfig:
    """The same run on the champion's code vectors and codes."""
    separation = config.separation.model_copy(update={"extends": champion.separation.ref.key})
    tokenization = config.tokenization.model_copy(update={"extends": champion.tokenization.ref.key})
    return config.model_copy(update={"separation": separation, "tokenization": tokenization})


def fine_tune(config: RunConfig, champion: Champion, policy: TrainingPolicy) -> RunConfig:
    """The same run from the champion's weights: shorter, and with smaller steps."""
    given = config.training
    changes = {
        "start_from": champion.training.ref.key,
        "epochs": max(1, round(given.epochs * policy.epochs_share)),
        "warmup_steps": int(given.warmup_steps * policy.epochs_share),
        "learning_rate": given.learning_rate * policy.learning_rate_share,
    }
    return config.model_copy(update={"training": given.model_copy(update=changes)})


def _fits(config: RunConfig, champion: Champion) -> bool:
    """Whether the champion's weights are of the network that is configured."""
    settings = champion.training.manifest.settings
    return all(settings.get(name) == getattr(config.training, name) for name in BUILT)


def _are_more(champion: Champion, faces: Artifact) -> bool:
    codes, identities = champion.tokenization.path(PARQUET_FILE), faces.path("identities.parquet")
    try:
        check_identities(codes, identities, more=True)
    except GifError:
        return False
    return True


def _changed_before_codes(store: ArtifactStore, config: RunConfig, champion: Champion) -> list[str]:
    """Settings of the champion's codes that are others now."""
    changed: list[str] = []
    for stage in BEFORE_CODES:
        before = _manifest_of(store, champion, stage)
        if before is None or before.manifest.version != VERSIONS[stage]:
            changed.append(stage)
            continue
        old, new = (_own(some) for some in (before.manifest.settings, stage_settings(store, config, stage)))
        changed += [f"{stage}.{name}" for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    return changed


def _own(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in LINKS}


def _manifest_of(store: ArtifactStore, champion: Champion, stage: StageName) -> Artifact | None:
    known = {"separation": champion.separation, "tokenization": champion.tokenization}
    if stage in known:
        return known[stage]
    source = champion.separation.manifest.inputs[stage]
    try:
        return store.open(store.ref(stage, source.key))
    except ArtifactMissingError:
        return None


def _last_rebuilt(store: ArtifactStore, separation: Artifact) -> Artifact:
    """The separation in which all identities moved, from which this one was extended."""
    while key := separation.manifest.settings.get("extends"):
        try:
            separation = store.open(store.ref("separation", key))
        except ArtifactMissingError:
            break
    return separation


def _least_distance(separation: Artifact) -> float | None:
    value = separation.manifest.metrics.get(LEAST_DISTANCE)
    return float(value) if value is not None else None
