"""The paper's claims about training, on the demo's faces: verification accuracy on unseen identities by variant.

Every variant trains as long as the demo. The demo's encoder was trained on synthetic faces, not on photographs, so
claims about the encoder are also tested on photographs where available, in four epochs.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from flows.pipeline import gif
from gif_core.artifacts import Artifact, ArtifactStore
from gif_core.protocols import read_scores
from gif_core.separation import separation_scores
from schemas.artifacts import RunRecord
from schemas.loading import load_config

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600), pytest.mark.usefixtures("prefect")]
LITERAL = ("training.negatives=0",)
CODES_ALONE = ("training.gamma=0",)
LONG_TAIL = ("ingestion.sources.0.smallest=1", "ingestion.sources.0.largest=120", "ingestion.sources.0.identities=300")
FACES = Path(__file__).parents[3] / "shared" / "data" / "faces_299"
PHOTOGRAPHS = (
    f"ingestion.sources=[{{kind: folder, path: '{FACES}'}}]",
    "ingestion.held_out=0.2",
    "training.epochs=4",
)
needs_photographs = pytest.mark.skipif(not FACES.is_dir(), reason="needs photographs")
Train = Callable[..., RunRecord]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ArtifactStore:
    """One store for all tests, so that shared stages are computed once."""
    return ArtifactStore(str(tmp_path_factory.mktemp("store")))


@pytest.fixture
def train(store: ArtifactStore) -> Train:
    address = store.storage.url.removeprefix("file://")

    def run(*settings: str) -> RunRecord:
        quick = ["training.epochs=6", "training.val_pairs=0", "reporting.compare=false"]
        quick += ["evaluation.sets=[{kind: held_out}]", "evaluation.identification=null"]
        return gif(load_config("demo", [f"store={address}", *quick, *settings]))

    return run


def stage(store: ArtifactStore, record: RunRecord, name: str) -> Artifact:
    return store.open(store.ref(name, record.stages[name].key))  # type: ignore[arg-type,index]


def scores(store: ArtifactStore, record: RunRecord) -> dict[str, dict[str, float]]:
    path = stage(store, record, "evaluation").path("scores.json")
    found: dict[str, dict[str, float]] = read_scores(path)["held_out"]["systems"]
    print({system: metrics["accuracy"] for system, metrics in found.items()}, file=sys.stderr)  # noqa: T201
    return found


def model_accuracy(store: ArtifactStore, record: RunRecord) -> float:
    """Return the verification accuracy of the trained model."""
    return scores(store, record)["model"]["accuracy"]


def test_training_with_codes_beats_raw_pixels_by_a_wide_margin(store: ArtifactStore, train: Train) -> None:
    accuracy = {system: metrics["accuracy"] for system, metrics in scores(store, train()).items()}
    assert accuracy["model"] > accuracy["raw_pixels"] + 0.25


def test_training_with_codes_beats_a_classifier_over_all_identities(store: ArtifactStore, train: Train) -> None:
    classifier = train("training.head=cosface", "training.scale=16", "training.margin=0.2")
    assert model_accuracy(store, train()) > model_accuracy(store, classifier)


def test_codes_and_alignment_beat_codes_alone(store: ArtifactStore, train: Train) -> None:
    alone = model_accuracy(store, train(*CODES_ALONE))
    assert model_accuracy(store, train()) > alone
    assert model_accuracy(store, train(*LITERAL)) > alone


def test_structured_codes_beat_atomic_codes_where_there_are_codes_alone(store: ArtifactStore, train: Train) -> None:
    atomic = train(*CODES_ALONE, "tokenization.mode=atomic")
    assert model_accuracy(store, train(*CODES_ALONE)) > model_accuracy(store, atomic)


def test_training_with_codes_beats_the_encoders_own_vectors(store: ArtifactStore, train: Train) -> None:
    accuracy = {system: metrics["accuracy"] for system, metrics in scores(store, train()).items()}
    assert accuracy["model"] > accuracy["encoder"]


@needs_photographs
def test_on_photographs_training_with_codes_beats_the_encoder_and_pixels_by_a_wide_margin(
    store: ArtifactStore, train: Train
) -> None:
    accuracy = {system: metrics["accuracy"] for system, metrics in scores(store, train(*PHOTOGRAPHS)).items()}
    assert accuracy["model"] > max(accuracy["encoder"], accuracy["raw_pixels"]) + 0.1


def test_optimised_code_vectors_beat_those_straight_from_the_encoder(store: ArtifactStore, train: Train) -> None:
    straight = train("separation.epochs=0")
    assert model_accuracy(store, train()) > model_accuracy(store, straight)


@needs_photographs
def test_on_photographs_optimised_code_vectors_beat_those_straight_from_the_encoder_under_the_papers_own_loss(
    store: ArtifactStore, train: Train
) -> None:
    """With the defaults rows learn, and both starts end level: 78.8 and 79.0 %."""
    straight = train(*PHOTOGRAPHS, *LITERAL, "separation.epochs=0")
    assert model_accuracy(store, train(*PHOTOGRAPHS, *LITERAL)) > model_accuracy(store, straight)


@pytest.mark.xfail(
    strict=True, reason="not visible in six epochs: minimum distance 0.72 between the classifier's rows, 0.69 in H"
)
def test_centres_of_identities_with_few_images_collapse_under_a_classifier_and_code_vectors_do_not(
    store: ArtifactStore, train: Train
) -> None:
    """Compare the minimum cosine distance between the centres of the 10 % of identities with the fewest images."""
    classifier = train(*LONG_TAIL, "training.head=arcface", "training.scale=32", "training.margin=0.3")
    counts = stage(store, classifier, "ingestion").path("identities.parquet")
    few = np.argsort(pq.read_table(counts)["num_samples"].to_numpy(), kind="stable")[:30]
    centres = load_file(stage(store, classifier, "training").path("head.safetensors"))["weight_MD"]
    vectors = load_file(stage(store, classifier, "separation").path("code_vectors.safetensors"))["code_vectors"]
    collapsed, separated = (minimum_distance(rows[torch.from_numpy(few)]) for rows in (centres, vectors))
    print(f"minimum distance: classifier {collapsed:.3f}, code vectors {separated:.3f}", file=sys.stderr)  # noqa: T201
    assert separated > 2 * collapsed


def minimum_distance(rows: torch.Tensor) -> float:
    return separation_scores(torch.nn.functional.normalize(rows, dim=1)).min
