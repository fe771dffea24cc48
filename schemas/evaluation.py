"""Settings of evaluation: the sets on which a model is measured."""

from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from schemas.addresses import Address
from schemas.base import Frozen

SetLabel = Annotated[str, Field(pattern=r"^[\w .+-]{1,60}$")]
System = Literal["raw_pixels", "encoder", "model"]


class _Set(Frozen):
    label: SetLabel | None = None
    """What results call the set; None: a name of its own."""

    @property
    def title(self) -> str:
        """What results call the set."""
        return self.label or self.default_label

    @property
    def default_label(self) -> str:
        """What results call a set that is given no label."""
        raise NotImplementedError


class HeldOutSet(_Set):
    """Pairs drawn from the identities whom ingestion kept aside."""

    kind: Literal["held_out"] = "held_out"

    @property
    def default_label(self) -> str:
        """Always the same."""
        return "held_out"


class PairFileSet(_Set):
    """A verification file as insightface has them: LFW, CFP-FP, AgeDB, CALFW, CPLFW."""

    kind: Literal["bin"] = "bin"
    path: Address

    @property
    def default_label(self) -> str:
        """The file's name without its ending."""
        return PurePosixPath(self.path).stem


class LfwSet(_Set):
    """Aligned images `Name/Name_0001.jpg` in a folder, and a `pairs.txt` that names pairs of them."""

    kind: Literal["lfw"] = "lfw"
    folder: Address
    pairs: Address
    """The file: folds and pairs of each kind in a fold on its first line, then `name n m` or `name n other m`."""
    landmarks: Address | None = None
    """Lines of `Name/Name_0001.jpg x1 y1 … x5 y5`, by which images that are not aligned yet are."""

    @property
    def default_label(self) -> str:
        """The set that has such files."""
        return "LFW"


class PairTableSet(_Set):
    """A Parquet file with a pair in each row: `left`, `right`, and whether they are the `same` person."""

    kind: Literal["parquet"] = "parquet"
    path: Address
    images: Address | None = None
    """A Parquet file with a column `image`. With it `left` and `right` are numbers of its rows, from 0 on; without it
    they are images themselves: bytes, or a struct with the field `bytes`."""

    @property
    def default_label(self) -> str:
        """The file's name without its ending."""
        return PurePosixPath(self.path).stem


class _TemplateSet(_Set):
    flip: bool = True
    """Add the features of the mirror image."""
    detector_score: bool = True
    """Weigh an image by its detector's score."""
    norm: bool = True
    """Weigh an image by the length of its feature; without it, all features are brought to one length first."""


class IjbSet(_TemplateSet):
    """IJB-B or IJB-C: a folder with `meta/` and `loose_crop/`."""

    kind: Literal["ijb"] = "ijb"
    path: Address
    name: Literal["IJB-B", "IJB-C"]

    @property
    def default_label(self) -> str:
        """The set's own name."""
        return self.name


class SyntheticPairsSet(_Set):
    """A small `.bin` of drawn identities who are in no other dataset."""

    kind: Literal["synthetic_bin"] = "synthetic_bin"
    identities: int = Field(default=60, ge=2)
    pairs: PositiveInt = 300
    """Pairs of one person, and as many of two."""
    seed: int = Field(default=0, ge=0)

    @property
    def default_label(self) -> str:
        """Says what it is."""
        return "synthetic-LFW"


class SyntheticIjbSet(_TemplateSet):
    """A small tree like that of IJB-C, of drawn identities who are in no other dataset."""

    kind: Literal["synthetic_ijb"] = "synthetic_ijb"
    identities: int = Field(default=40, ge=4)
    seed: int = Field(default=0, ge=0)

    @property
    def default_label(self) -> str:
        """Says what it is."""
        return "synthetic-IJB-C"


SET_KINDS = ("held_out", "bin", "lfw", "parquet", "ijb", "synthetic_bin", "synthetic_ijb")

PairFiles = PairFileSet | LfwSet | PairTableSet
PairSettings = HeldOutSet | PairFiles | SyntheticPairsSet
TemplateSettings = IjbSet | SyntheticIjbSet
EvaluationSet = Annotated[PairSettings | TemplateSettings, Field(discriminator="kind")]


class IdentificationConfig(Frozen):
    """How well the model finds enrolled identities by their codes, and knows who is not enrolled."""

    images: PositiveInt = 1000
    """Of enrolled identities, and of identities who were held out; fewer when there are no more."""
    beam: PositiveInt = 64
    """Prefixes of codes that are followed at a time."""
    fpir: float = Field(default=0.01, gt=0, lt=1)
    """False positive identification rate, at which the threshold between known and unknown is set."""


class EvaluationConfig(Frozen):
    """Model + sets → scores."""

    sets: tuple[EvaluationSet, ...] = Field(default=(HeldOutSet(),), min_length=1)
    systems: tuple[System, ...] = Field(default=("raw_pixels", "encoder", "model"), min_length=1)
    """Whose features verify pairs of images; templates are made of the model's alone."""
    pairs: PositiveInt = 3000
    """Of held-out identities: pairs of one person, and as many of two; fewer when the faces do not give so many."""
    folds: int = Field(default=10, ge=2)
    flip: bool = True
    """In pairs of images and in identification, add the features of the mirror image."""
    identification: IdentificationConfig | None = IdentificationConfig()
    """Of enrolled identities by their codes; null: none. Only models with the head `gif` know codes."""
    seed: int = Field(default=0, ge=0)
    """Which pairs and images of held-out identities are drawn; independent of the run's seed."""

    @model_validator(mode="after")
    def _check_labels(self) -> "EvaluationConfig":
        titles = [each.title for each in self.sets]
        twice = sorted({title for title in titles if titles.count(title) > 1})
        if twice:
            raise ValueError(f"two sets are called {twice[0]!r}: give one of them a label of its own")
        if len(set(self.systems)) < len(self.systems):
            raise ValueError(f"a system is there twice: {', '.join(self.systems)}")
        return self
