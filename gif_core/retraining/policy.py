"""What a retraining has to do: is anything new, are codes extended or rebuilt, is the challenger fine-tuned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow.parquet as pq

from gif_core.artifacts import Artifact, ArtifactMissingError, ArtifactStore, check_version, open_input, source_of
from gif_core.planning import identify_stage, resolve_length, stage_settings
from gif_core.tokenization import check_identities
from schemas.artifacts import ArtifactRef
from schemas.errors import GifError
from schemas.files import CODES_FILE, IDENTITIES_FILE
from schemas.retraining import CodesChoice, CodesPolicy, Decision, TrainingPolicy
from schemas.run import LINKS, RunConfig
from schemas.stages import VERSIONS, StageName

LEAST_DISTANCE: Final = "min_distance"
"""The metric of separation that decides."""
WEIGHT_SETTINGS: Final = ("backbone", "head", "hidden_layers", "negatives", "code_vectors", "map_width")
"""Settings of training that determine the shapes of the weights."""
BEFORE_CODES: Final[tuple[StageName, ...]] = ("embedding", "separation", "tokenization")


@dataclass(frozen=True)
class Champion:
    """The model in use with the artifacts it was made from."""

    training: Artifact
    separation: Artifact
    tokenization: Artifact

    @property
    def ingestion(self) -> str:
        """The key of the faces it was trained on."""
        return source_of(self.training, "ingestion").key


def open_champion(store: ArtifactStore, training: Artifact) -> Champion:
    """Open a model with its separation and tokenization, which must still be stored."""
    check_version(training)
    return Champion(training, open_input(store, training, "separation"), open_input(store, training, "tokenization"))


def current_ingestion(store: ArtifactStore, config: RunConfig) -> ArtifactRef:
    """Return the ingestion of the sources in their current state, whether it is stored or not."""
    return identify_stage(store, config, "ingestion", {}).ref


def find_earlier_verdict(ingestion: str, champion: Champion, history: Sequence[Decision]) -> str | None:
    """Return why these faces need no retraining: the champion or an earlier decision used them; else None."""
    if champion.ingestion == ingestion:
        return f"the sources have not changed since {champion.training.ref} was trained"
    for entry in reversed(history):
        if entry.ingestion == ingestion:
            return f"the sources have not changed since decision {entry.number} ({entry.kind.replace('_', ' ')})"
    return None


def choose_codes(
    store: ArtifactStore, config: RunConfig, champion: Champion, faces: Artifact, policy: CodesPolicy
) -> CodesChoice:
    """Decide whether the champion's codes are extended or rebuilt, as far as known before new vectors are placed."""
    identities = pq.read_metadata(faces.path(IDENTITIES_FILE)).num_rows
    table = champion.tokenization.manifest.metrics
    known, capacity = int(table["identities"]), int(table["vocab_size"]) ** int(table["length"])
    about = {"identities": identities, "new_identities": identities - known, "occupancy": identities / capacity}
    changed = _changed_before_codes(store, config, champion)
    if policy.prefer == "rebuild":
        because = "the policy is to rebuild codes"
    elif changed:
        because = f"settings have changed: {', '.join(changed)}"
    elif not _begins_with_champion(champion, faces):
        about, because = {"identities": identities}, "the identities do not begin with those of the champion"
    elif identities > policy.fullest * capacity:
        because = f"{identities:,} of {capacity:,} codes would be used, more than {policy.fullest:.0%}"
    else:
        because = f"{identities:,} of {capacity:,} codes would be used, at most {policy.fullest:.0%}"
        return CodesChoice(action="extend", because=because, **about)
    return CodesChoice(action="rebuild", because=because, **about)


def check_separation(
    store: ArtifactStore, choice: CodesChoice, champion: Champion, extended: Artifact, policy: CodesPolicy
) -> CodesChoice:
    """Switch to rebuilding codes if the code vectors of the new identities are too close to others."""
    before = _least_distance(_last_rebuilt(store, champion.separation))
    now = _least_distance(extended)
    metrics = {"separation": now, "separation_before": before}
    if before is None or now is None or now >= policy.least_separation * before:
        return choice.model_copy(update=metrics)
    because = f"the minimum distance would be {now:.3f}, below {policy.least_separation:.0%} of {before:.3f}"
    return choice.model_copy(update={**metrics, "action": "rebuild", "because": because})


def challenger_config(
    config: RunConfig, champion: Champion, choice: CodesChoice, policy: TrainingPolicy
) -> tuple[RunConfig, bool]:
    """Return the settings of the challenger, and whether it is fine-tuned."""
    extends = choice.action == "extend"
    config = extend_codes(config, champion) if extends else config
    wanted = policy.fine_tune == "always" or (policy.fine_tune == "extended" and extends)
    return (fine_tune(config, champion, policy), True) if wanted and _fits(config, champion) else (config, False)


def extend_codes(config: RunConfig, champion: Champion) -> RunConfig:
    """Return the settings of the same run with the champion's code vectors and codes extended."""
    separation = config.separation.model_copy(update={"extends": champion.separation.ref.key})
    tokenization = config.tokenization.model_copy(update={"extends": champion.tokenization.ref.key})
    return config.model_copy(update={"separation": separation, "tokenization": tokenization})


def fine_tune(config: RunConfig, champion: Champion, policy: TrainingPolicy) -> RunConfig:
    """Return the settings of the same run from the champion's weights: fewer epochs, smaller learning rate."""
    given = config.training
    changes = {
        "start_from": champion.training.ref.key,
        "epochs": max(1, round(given.epochs * policy.epochs_share)),
        "warmup_steps": int(given.warmup_steps * policy.epochs_share),
        "learning_rate": given.learning_rate * policy.learning_rate_share,
        "row_rate": given.row_rate * policy.learning_rate_share,
    }
    return config.model_copy(update={"training": given.model_copy(update=changes)})


def _fits(config: RunConfig, champion: Champion) -> bool:
    """Whether the champion's weights fit the configured network."""
    settings = champion.training.manifest.settings
    return all(settings.get(name) == getattr(config.training, name) for name in WEIGHT_SETTINGS)


def _begins_with_champion(champion: Champion, faces: Artifact) -> bool:
    """Whether the identities are those of the champion's codes, in order, possibly followed by new ones."""
    codes, identities = champion.tokenization.path(CODES_FILE), faces.path(IDENTITIES_FILE)
    try:
        check_identities(codes, identities, more=True)
    except GifError:
        return False
    return True


def _changed_before_codes(store: ArtifactStore, config: RunConfig, champion: Champion) -> list[str]:
    """Return the settings up to tokenization that differ from those of the champion's codes."""
    changed: list[str] = []
    for stage in BEFORE_CODES:
        before = _manifest_of(store, champion, stage)
        if before is None or before.manifest.version != VERSIONS[stage]:
            changed.append(stage)
            continue
        old, new = (_own(some) for some in (before.manifest.settings, _settings_at(store, config, before)))
        changed += [f"{stage}.{name}" for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    return changed


def _settings_at(store: ArtifactStore, config: RunConfig, before: Artifact) -> dict[str, Any]:
    """The settings of a stage as they would be in the key of the earlier artifact.

    A code length that is null is resolved for the identities of that time: more of them are no other setting.
    """
    settings, made = stage_settings(store, config, before.ref.stage), before.manifest
    if before.ref.stage != "tokenization":
        return settings
    asked = config.tokenization.model_copy(update={"extends": made.settings.get("extends")})
    return resolve_length(asked, settings, int(made.metrics["identities"]))


def _own(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in LINKS}


def _manifest_of(store: ArtifactStore, champion: Champion, stage: StageName) -> Artifact | None:
    known = {"separation": champion.separation, "tokenization": _last_rebuilt(store, champion.tokenization)}
    if stage in known:
        return known[stage]
    try:
        return open_input(store, champion.separation, stage)
    except ArtifactMissingError:
        return None


def _last_rebuilt(store: ArtifactStore, artifact: Artifact) -> Artifact:
    """Return the last separation or tokenization that was not an extension."""
    while key := artifact.manifest.settings.get("extends"):
        try:
            artifact = store.open(store.ref(artifact.ref.stage, key))
        except ArtifactMissingError:
            break
    return artifact


def _least_distance(separation: Artifact) -> float | None:
    value = separation.manifest.metrics.get(LEAST_DISTANCE)
    return float(value) if value is not None else None
