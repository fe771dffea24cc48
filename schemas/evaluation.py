"""Settings of evaluation: the sets on which a model is evaluated."""

from pathlib import PurePosixPath
from typing import Annotated, Final, Literal

from pydantic import Field, PositiveInt, model_validator

from schemas.addresses import Address
from schemas.base import Frozen, Seed

SetLabel = Annotated[str, Field(pattern=r"^[\w .+-]{1,60}$")]
Network = Literal["encoder", "model"]
System = Literal["raw_pixels", Network]
ADDRESSES: Final = ("path", "folder", "pairs", "images", "landmarks")
"""Settings of sets that name files or folders."""


class _Set(Frozen):
    label: SetLabel | None = None
    """Name of the set in results; null: a default that depends on the kind. Two sets need different names."""

    @property
    def title(self) -> str:
        """Name of the set in results."""
        return self.label or self.default_label

    @property
    def default_label(self) -> str:
        """Name of a set without `label`."""
        raise NotImplementedError


class _FileSet(_Set):
    optional: bool = False
    """Leave the set out when its files are not there; false: a run without them is refused."""


class _Grouped(_Set):
    group: SetLabel | None = None
    """Benchmark that this set is one group of, for instance RFW for its set of each ethnicity. Sets with the same value
    are compared: the worst group, their spread, and error rates at one common threshold; null: no such comparison."""


class HeldOutSet(_Set):
    """Pairs drawn from the held-out identities (`ingestion.held_out`)."""

    kind: Literal["held_out"] = "held_out"

    @property
    def default_label(self) -> str:
        """Always the same."""
        return "held_out"


class PairFileSet(_FileSet, _Grouped):
    """A verification file in insightface's `.bin` format: LFW, CFP-FP, AgeDB, CALFW, CPLFW."""

    kind: Literal["bin"] = "bin"
    path: Address
    """The `.bin` file."""

    @property
    def default_label(self) -> str:
        """The file's name without its ending."""
        return PurePosixPath(self.path).stem


class LfwSet(_FileSet, _Grouped):
    """LFW's own format: images `Name/Name_0001.jpg` in a folder, and a `pairs.txt` that lists pairs of them."""

    kind: Literal["lfw"] = "lfw"
    folder: Address
    """Folder of the images."""
    pairs: Address
    """The `pairs.txt`: the number of folds and of pairs of each kind per fold on the first line, then lines of
    `name n m` (same identity) or `name n other m`."""
    landmarks: Address | None = None
    """Text file with lines of `Name/Name_0001.jpg x1 y1 … x5 y5`, by which images are aligned; null: the images are
    aligned already."""

    @property
    def default_label(self) -> str:
        """Always `LFW`."""
        return "LFW"


class PairTableSet(_FileSet, _Grouped):
    """A Parquet file with one pair per row: `left`, `right`, and `same`, whether both show one identity."""

    kind: Literal["parquet"] = "parquet"
    path: Address
    """The Parquet file of pairs."""
    images: Address | None = None
    """Parquet file with a column `image`, into whose rows `left` and `right` point (from 0). null: `left` and `right`
    hold the images themselves, as bytes or as a struct with the field `bytes`."""

    @property
    def default_label(self) -> str:
        """The file's name without its ending."""
        return PurePosixPath(self.path).stem


class _TemplateSet(_Set):
    flip: bool = True
    """Add the feature of the mirrored image to the feature of the image."""
    detector_score: bool = True
    """Weight each image of a template by its face detector's score."""
    norm: bool = True
    """Weight each image of a template by its feature norm; false: normalise features to unit length first."""


class IjbSet(_FileSet, _TemplateSet):
    """IJB-B or IJB-C in insightface's layout: a folder with `meta/` and `loose_crop/`."""

    kind: Literal["ijb"] = "ijb"
    path: Address
    """The folder."""
    name: Literal["IJB-B", "IJB-C"]
    """Which of the two sets the folder holds."""

    @property
    def default_label(self) -> str:
        """`IJB-B` or `IJB-C`."""
        return self.name


class TinyFaceSet(_FileSet):
    """TinyFace's test set: probes that are searched in a gallery with distractors; images are low in resolution."""

    kind: Literal["tinyface"] = "tinyface"
    path: Address
    """The folder with `Testing_Set`, or a folder with `Gallery_Match`, `Gallery_Distractor` and `Probe`; the names of
    images begin with the label of the identity, as in `17_2.jpg`."""
    flip: bool = True
    """Add the feature of the mirrored image to the feature of the image."""

    @property
    def default_label(self) -> str:
        """Always `TinyFace`."""
        return "TinyFace"


class SyntheticPairsSet(_Grouped):
    """A small generated `.bin` set of synthetic identities that occur in no synthetic source."""

    kind: Literal["synthetic_bin"] = "synthetic_bin"
    identities: int = Field(default=60, ge=2)
    """Number of identities."""
    pairs: PositiveInt = 300
    """Number of genuine pairs, and of impostor pairs."""
    seed: Seed = 0
    """Seed of the drawn faces and pairs; independent of the run's seed."""

    @property
    def default_label(self) -> str:
        """Always `synthetic-LFW`."""
        return "synthetic-LFW"


class SyntheticIjbSet(_TemplateSet):
    """A small generated set in the layout of IJB-C, of synthetic identities that occur in no synthetic source."""

    kind: Literal["synthetic_ijb"] = "synthetic_ijb"
    identities: int = Field(default=40, ge=4)
    """Number of identities."""
    seed: Seed = 0
    """Seed of the drawn faces; independent of the run's seed."""

    @property
    def default_label(self) -> str:
        """Always `synthetic-IJB-C`."""
        return "synthetic-IJB-C"


PairFiles = PairFileSet | LfwSet | PairTableSet
PairSettings = HeldOutSet | PairFiles | SyntheticPairsSet
TemplateSettings = IjbSet | SyntheticIjbSet
EvaluationSet = Annotated[PairSettings | TemplateSettings | TinyFaceSet, Field(discriminator="kind")]


class IdentificationConfig(Frozen):
    """Identification by codes: finding enrolled identities, and rejecting identities that are not enrolled."""

    images: PositiveInt = 1000
    """Probe images of enrolled identities, and as many of held-out identities; fewer if the faces have fewer."""
    beam: PositiveInt = 64
    """Width of the beam search: code prefixes kept at each token. Wider is slower and finds more."""
    fpir: float = Field(default=0.01, gt=0, lt=1)
    """False positive identification rate at which the threshold between known and unknown is set."""


class EvaluationConfig(Frozen):
    """Model + sets → scores."""

    sets: tuple[EvaluationSet, ...] = Field(default=(HeldOutSet(),), min_length=1)
    """The sets, each with its own `kind`."""
    systems: tuple[System, ...] = Field(default=("raw_pixels", "encoder", "model"), min_length=1)
    """Systems that are scored; `raw_pixels` and `encoder` are baselines. Template sets and TinyFace are
    scored with the encoder and the model only."""
    pairs: PositiveInt = 3000
    """Genuine pairs drawn from held-out identities, and as many impostor pairs; fewer if the faces have fewer."""
    folds: int = Field(default=10, ge=2)
    """Folds of the cross-validated accuracy of pair sets."""
    flip: bool = True
    """Add the feature of the mirrored image in pair verification and identification, for the encoder and the model."""
    identification: IdentificationConfig | None = IdentificationConfig()
    """Settings of identification by codes; null: skip it. Only models with the head `gif` predict codes."""
    seed: Seed = 0
    """Seed of the pairs and probe images drawn from held-out identities; independent of the run's seed."""

    @model_validator(mode="after")
    def _check_labels(self) -> "EvaluationConfig":
        titles = [each.title for each in self.sets]
        twice = sorted({title for title in titles if titles.count(title) > 1})
        if twice:
            raise ValueError(f"two sets are called {twice[0]!r}: give one of them another label")
        if len(set(self.systems)) < len(self.systems):
            raise ValueError(f"a system is listed twice: {', '.join(self.systems)}")
        return self
