"""What a stage's key is computed from: its settings, the contents of its files, and the artifacts it reads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from gif_core.artifacts import Artifact, ArtifactStore, artifact_key
from gif_core.backbones import describe_file
from gif_core.embedding.encoders import describe_weights
from gif_core.ingestion import describe_readers, describe_relabelling, find_base
from gif_core.protocols.sets import describe_set
from gif_core.readers import open_reader
from gif_core.reporting import Scored, find_comparable
from gif_core.tokenization import code_shape
from schemas.artifacts import ArtifactRef, MadeFrom
from schemas.run import RunConfig
from schemas.stages import StageName
from schemas.tokenization import TokenizationConfig

Settings = dict[str, Any]


@dataclass(frozen=True)
class StageIdentity:
    """The artifact that a stage makes, stored or not, and what its key is computed from."""

    ref: ArtifactRef
    settings: Mapping[str, Any]
    made_from: Mapping[StageName, MadeFrom]
    """Contents of the inputs that are stored."""


Inputs = Mapping[StageName, Artifact | StageIdentity]
"""The artifacts that a stage reads; in a dry run some may have only an identity."""
LENGTH_SETTINGS: Final = ("length", "max_vocab_size")
"""The settings of tokenization from which a code length follows."""
NO_INPUTS: Final[Inputs] = MappingProxyType({})


def identify_stage(store: ArtifactStore, config: RunConfig, stage: StageName, inputs: Inputs) -> StageIdentity:
    """Compute the identity of the artifact that these settings make from these inputs."""
    return make_identity(store, stage, stage_settings(store, config, stage, inputs), inputs)


def make_identity(store: ArtifactStore, stage: StageName, settings: Mapping[str, Any], inputs: Inputs) -> StageIdentity:
    """The identity of the artifact with these settings, whose files are described already."""
    keys = {name: given.ref.key for name, given in inputs.items()}
    return StageIdentity(store.ref(stage, artifact_key(stage, settings, keys)), settings, contents_of(inputs))


def contents_of(inputs: Inputs) -> dict[StageName, MadeFrom]:
    """Contents of the inputs that are stored."""
    return {name: given.made_from for name, given in inputs.items() if isinstance(given, Artifact)}


def stage_settings(
    store: ArtifactStore, config: RunConfig, stage: StageName, inputs: Inputs = NO_INPUTS
) -> dict[str, Any]:
    """The settings in a stage's key, with files described by content instead of location."""
    describe = CONTENTS.get(stage)
    settings = config.settings(stage)
    return describe(store, config, settings, inputs) if describe else settings


def _with_sources(store: ArtifactStore, config: RunConfig, settings: Settings, inputs: Inputs) -> Settings:
    """Add fingerprints of sources, digests of lists of labels, and the faces that an incremental ingestion extends."""
    readers = [open_reader(source) for source in config.ingestion.sources]
    incremental = settings.pop("incremental")
    settings["sources"] = describe_readers(readers)
    if config.ingestion.relabel:
        settings["relabel"] = describe_relabelling(config.ingestion.relabel)
    return settings | {"grown_from": find_base(store, settings, readers) if incremental else None}


def _with_weights(store: ArtifactStore, config: RunConfig, settings: Settings, inputs: Inputs) -> Settings:
    """Add the digest of a local weights file; a library's tag is used as it is."""
    return settings | {"pretrained": describe_weights(config.embedding)}


def _with_length(store: ArtifactStore, config: RunConfig, settings: Settings, inputs: Inputs) -> Settings:
    """Resolve the code length; it stays null in a dry run whose faces are not stored yet."""
    given = inputs.get("ingestion")
    faces = store.look_up(given.ref) if isinstance(given, StageIdentity) else given
    identities = faces.manifest.metrics.get("identities") if faces else None
    return resolve_length(config.tokenization, settings, identities if isinstance(identities, int) else None)


def resolve_length(config: TokenizationConfig, settings: Settings, identities: int | None) -> Settings:
    """Replace how the code length is chosen by the length itself, so that null and the equal number share a key.

    Extended codes keep the length of the codes that they extend. Null stays null while `identities` is unknown.
    """
    others = {name: value for name, value in settings.items() if name not in LENGTH_SETTINGS}
    if config.extends:
        return others
    if config.length is None and identities is None:
        return settings
    return others | {"length": config.length or code_shape(identities or 0, config).length}


def _with_weight_files(store: ArtifactStore, config: RunConfig, settings: Settings, inputs: Inputs) -> Settings:
    """Replace the files that training starts from and learns from by their digests."""
    files = {"start_from": config.training.start_file, "teacher": config.training.teacher}
    given = {name: address for name, address in files.items() if address is not None}
    return settings | {name: describe_file(address, f"training.{name}") for name, address in given.items()}


def _with_sets(store: ArtifactStore, config: RunConfig, settings: Settings, inputs: Inputs) -> Settings:
    """Add the contents of every evaluation set."""
    return settings | {"sets": [describe_set(given) for given in config.evaluation.sets]}


def _with_comparable(store: ArtifactStore, config: RunConfig, settings: Settings, inputs: Inputs) -> Settings:
    """Add the other evaluations that a report shows: those comparable with the one it reads."""
    if "evaluation" not in inputs or not config.reporting.compare:
        return settings | {"beside": {}}
    evaluation = inputs["evaluation"]
    scored = Scored(evaluation.ref.key, inputs["ingestion"].ref.key, evaluation.settings)
    return settings | {"beside": find_comparable(store, scored)}


CONTENTS: Final[Mapping[StageName, Callable[[ArtifactStore, RunConfig, Settings, Inputs], Settings]]] = {
    "ingestion": _with_sources,
    "embedding": _with_weights,
    "tokenization": _with_length,
    "training": _with_weight_files,
    "evaluation": _with_sets,
    "reporting": _with_comparable,
}
"""The stages whose keys also depend on the contents of files or of other artifacts."""
