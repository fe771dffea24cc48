"""The training task: its files and metrics, carried on after a failure, made anew on demand, shared by processes."""

import json
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file

from gif_core.artifacts import Artifact, ArtifactDamagedError, ArtifactStore, Draft, StoreAwayError
from gif_core.protocols.sets import write_synthetic_bin
from gif_core.runtime import ProcessGroup
from gif_core.tokenization import CodeShape, write_code_table
from gif_core.training import TrainingReport, load_backbone, open_checkpoints, run_job, save_model
from gif_core.training import stage as training_stage
from gif_core.training.headlines import describe_report
from gif_core.training.step import Stepper
from schemas.artifacts import ArtifactRef
from schemas.errors import GifError
from schemas.run import RunConfig
from schemas.stages import StageName
from schemas.training import TrainingJob
from tasks.training import training

IDENTITIES, SAMPLES, DIM = 12, 4, 16
Run = Callable[..., Artifact]


def publish(
    store: ArtifactStore, stage: StageName, fill: Callable[[Path], None], key: str | None = None
) -> ArtifactRef:
    key = key or (stage[0] * 64 if stage[0] in "abcdef" else "0" * 64)
    with store.draft(store.ref(stage, key), {}, {}) as draft:
        fill(draft.folder)
        return store.publish(draft)


def identities(count: int, name: str = "p") -> pa.Table:
    labels = [f"{name}{number}" for number in range(count)]
    return pa.table({"identity_id": np.arange(count), "label": labels, "num_samples": np.full(count, SAMPLES)})


def write_codes(folder: Path, count: int = IDENTITIES, name: str = "p") -> None:
    codes = np.stack([np.arange(count) // 9, np.arange(count) // 3 % 3, np.arange(count) % 3], axis=1)
    write_code_table(folder, codes, CodeShape(3, 3), identities(count, name))


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(str(tmp_path / "store"))


@pytest.fixture
def inputs(store: ArtifactStore, write_shard: Callable[..., Path]) -> dict[StageName, ArtifactRef]:
    rng = np.random.default_rng(0)

    def write_faces(folder: Path) -> None:
        for split, count in (("identities", IDENTITIES), ("held_out", 5)):
            images = rng.integers(0, 255, size=(count * SAMPLES, 112, 112, 3)).astype(np.uint8)
            encoded = [cv2.imencode(".png", image)[1].tobytes() for image in images]
            rows = [(row // SAMPLES, f"{row}.png", image) for row, image in enumerate(encoded)]
            write_shard(folder / f"{split}-00000.arrow", rows, len(rows))
            pq.write_table(identities(count), folder / f"{split}.parquet")

    def write_vectors(folder: Path) -> None:
        vectors = rng.normal(size=(IDENTITIES, DIM)).astype(np.float32)
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        save_file({"code_vectors": unit}, folder / "code_vectors.safetensors")

    return {
        "ingestion": publish(store, "ingestion", write_faces),
        "separation": publish(store, "separation", write_vectors),
        "tokenization": publish(store, "tokenization", write_codes),
    }


@pytest.fixture
def run(store: ArtifactStore, inputs: dict[StageName, ArtifactRef], prefect: str, tmp_path: Path) -> Run:
    def make(refresh: bool = False, **changes: Any) -> Artifact:
        given = {
            "backbone": "iresnet_tiny",
            "epochs": 3,
            "batch_size": 16,
            "learning_rate": 0.001,
            "val_pairs": 20,
        }
        settings = {
            "store": str(tmp_path / "store"),
            "training": given | changes.pop("training", {}),
            "evaluation": changes.pop("evaluation", {}),
            "execution": {"device": "cpu", "workers": 1, **changes},
        }
        return store.open(training.fn(RunConfig.model_validate(settings), inputs, refresh=refresh))

    return make


def weights(artifact: Artifact) -> dict[str, torch.Tensor]:
    return load_file(artifact.path("backbone.safetensors"))


def test_files_of_pairs_that_evaluation_has_are_verified_after_every_epoch(run: Run, tmp_path: Path) -> None:
    path = write_synthetic_bin(tmp_path / "pairs", identities=8, pairs=20, seed=1)
    sets = [{"kind": "held_out"}, {"kind": "bin", "path": str(path), "label": "LFW"}, {"kind": "synthetic_bin"}]
    metrics = pq.read_table(run(evaluation={"sets": sets}).path("metrics.parquet"))
    verified = {name for name in metrics["name"].to_pylist() if name.startswith("val_accuracy")}
    assert verified == {"val_accuracy", "val_accuracy/LFW"}
    rows = metrics.filter(pa.compute.equal(metrics["name"], "val_accuracy/LFW"))
    assert rows["step"].to_pylist() == [3, 6, 9]


def test_it_publishes_weights_metrics_events_and_what_they_belong_to(
    run: Run, inputs: dict[StageName, ArtifactRef], tmp_path: Path
) -> None:
    artifact = run()
    names = [name for name in artifact.names() if not name.startswith("tensorboard/")]
    weights = ["backbone.safetensors", "code_vectors.safetensors", "head.safetensors"]
    assert names == [*weights, "metrics.parquet", "model.json"]
    assert len(artifact.names("tensorboard/events")) == 1
    known = json.loads(artifact.path("model.json").read_text())
    assert (known["backbone"], known["embedding_dim"], known["length"], known["vocab_size"]) == (
        "iresnet_tiny",
        DIM,
        3,
        3,
    )
    assert known["codes"] == inputs["tokenization"].key
    assert known["settings"]["epochs"] == 3
    metrics = pq.read_table(artifact.path("metrics.parquet"))
    steps = metrics.filter(pa.compute.equal(metrics["name"], "loss"))["step"].to_pylist()
    assert steps == list(range(1, 10))
    verified = metrics.filter(pa.compute.equal(metrics["name"], "val_accuracy"))
    assert verified["step"].to_pylist() == [3, 6, 9]
    metrics = artifact.manifest.metrics
    assert metrics["steps"] == 9
    assert 0 <= metrics["val_accuracy"] <= 1
    assert {"loss", "code_accuracy", "alignment", "images_per_second"} < set(metrics)
    model = load_backbone(artifact.path("backbone.safetensors"), artifact.path("model.json"))
    assert model(torch.zeros(1, 3, 112, 112)).shape == (1, DIM)
    assert not list((tmp_path / "store" / "checkpoints").rglob("*.*"))


def test_a_failed_run_is_carried_on_from_its_checkpoint_and_a_refreshed_one_is_made_anew(
    run: Run, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = run()
    expected = weights(undisturbed)
    store.remove(undisturbed.ref)
    take, taken, failed = Stepper.take, [], []

    def fail_once(self: Stepper, batch: Any) -> None:
        taken.append(self.state.step)
        if taken == [0, 1, 2, 3, 4, 5] and not failed:
            failed.append(True)
            raise ConnectionError
        take(self, batch)

    monkeypatch.setattr(Stepper, "take", fail_once)
    with pytest.raises(ConnectionError):
        run(checkpoint_steps=2)
    again = weights(run(checkpoint_steps=2))
    assert taken == [0, 1, 2, 3, 4, 5, 4, 5, 6, 7, 8]
    assert all(torch.equal(again[name], tensor) for name, tensor in expected.items())
    taken.clear()
    run(refresh=True)
    assert taken == list(range(9))


def test_codes_of_other_identities_are_refused_before_the_first_step(
    run: Run, store: ArtifactStore, inputs: dict[StageName, ArtifactRef]
) -> None:
    for count, name, said in [
        (IDENTITIES, "q", r"identity 0 \(q0\) where the faces have 0 \(p0\)"),
        (11, "p", "11 .* 12"),
    ]:
        store.remove(inputs["tokenization"])
        publish(store, "tokenization", lambda folder, count=count, name=name: write_codes(folder, count, name))
        with pytest.raises(GifError, match=said):
            run()


@pytest.mark.slow
def test_a_fault_in_a_process_is_told_as_it_is_and_not_tried_again(run: Run) -> None:
    with pytest.raises(GifError, match=r"batch_size=16.*shared equally by 3 processes|multiple of 3"):
        run(processes=3)


@pytest.mark.slow
def test_two_processes_publish_what_one_does(run: Run) -> None:
    gentle = {"learning_rate": 1e-5, "epochs": 2}
    alone = run(training=gentle)
    shared = run(refresh=True, training=gentle, processes=2)
    assert alone.ref == shared.ref, "how it is executed is no part of the key"
    for name, tensor in weights(alone).items():
        torch.testing.assert_close(weights(shared)[name], tensor, rtol=1e-3, atol=1e-4)


class OtherMachine:
    """One that trains together with this one, and is done while this one is about to save the model."""

    def __init__(self, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store, self.publishes = store, True
        self.after_the_last_step: Callable[[], None] = lambda: None
        monkeypatch.setattr(training_stage, "_run", self.run)
        monkeypatch.setattr(training_stage, "save_model", self.end)

    def run(self, job: TrainingJob, config: RunConfig, draft: Draft) -> Generator[TrainingReport, None, None]:
        self.job, self.draft = job, draft
        yield from run_job(job, ProcessGroup(torch.device("cpu")))
        self.after_the_last_step()

    def publish(self) -> None:
        with self.store.draft(self.draft.ref, self.draft.settings, self.draft.inputs) as draft:
            (draft.folder / "model.json").write_text("theirs")
            self.store.publish(draft, replace=True)

    def end(self, *given: Any) -> None:
        if self.publishes:
            self.publish()
        self.store.storage.remove(self.job.checkpoints)
        save_model(*given)


@pytest.mark.parametrize("refresh", [False, True])
def test_the_model_of_another_machine_is_used_when_it_removes_the_checkpoints_while_this_one_saves_them(
    run: Run, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, refresh: bool
) -> None:
    if refresh:
        run(training={"epochs": 1})
    OtherMachine(store, monkeypatch)
    assert run(refresh, training={"epochs": 1}, nodes="2").path("model.json").read_text() == "theirs"


def test_the_model_of_another_machine_is_used_when_it_has_removed_the_last_checkpoint_and_not_yet_the_one_before(
    run: Run, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = OtherMachine(store, monkeypatch)

    def lose_the_last() -> None:
        other.publish()
        last = open_checkpoints(other.job).newest()
        assert last is not None
        store.storage.remove(f"{last.folder}/state.json")

    other.after_the_last_step = lose_the_last
    again = run(training={"epochs": 1}, nodes="2", checkpoint_steps=1)
    assert again.path("model.json").read_text() == "theirs"


@pytest.mark.parametrize(
    ("nodes", "refresh", "publishes"), [("2", False, False), ("2", True, False), ("1", True, True)]
)
def test_checkpoints_that_are_lost_are_a_fault_when_no_other_machine_has_published(
    run: Run, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, nodes: str, refresh: bool, publishes: bool
) -> None:
    if refresh:
        run(training={"epochs": 1})
    OtherMachine(store, monkeypatch).publishes = publishes
    with pytest.raises(ArtifactDamagedError, match="is missing"):
        run(refresh, training={"epochs": 1}, nodes=nodes)


@pytest.mark.parametrize("head", ["gif", "cosface"])
def test_when_the_codes_of_the_model_to_start_from_are_gone_its_backbone_alone_is_used(
    run: Run, store: ArtifactStore, inputs: dict[StageName, ArtifactRef], head: str
) -> None:
    short = {"epochs": 1, "head": head}
    first = run(training=short)
    known = run(training={**short, "start_from": first.ref.key})
    assert known.manifest.metrics["started_from"] == "backbone and head"
    store.remove(inputs["tokenization"])
    inputs["tokenization"] = publish(store, "tokenization", write_codes, key="1" * 64)
    after = run(training={**short, "start_from": first.ref.key})
    assert after.ref != known.ref
    assert after.manifest.metrics["started_from"] == "backbone"


def test_a_training_starts_from_a_file_and_learns_from_a_teacher_and_its_key_has_their_digests(
    run: Run, tmp_path: Path
) -> None:
    weights = load_file(run(training={"epochs": 1}).path("backbone.safetensors"))
    torch.save(weights, tmp_path / "backbone.pth")
    torch.save({"state_dict_backbone": weights, "epoch": 2}, tmp_path / "checkpoint_gpu_0.pt")
    files = {"start_from": str(tmp_path / "backbone.pth"), "teacher": str(tmp_path / "checkpoint_gpu_0.pt")}
    tuned = run(training={"epochs": 2, "freeze": 1, "backbone_rate": 0.1, **files})
    assert tuned.manifest.metrics["started_from"] == "backbone"
    assert "loss_teacher" in pq.read_table(tuned.path("metrics.parquet"))["name"].to_pylist()
    assert {name: tuned.manifest.settings[name][:7] for name in files} == {
        "start_from": "sha256:",
        "teacher": "sha256:",
    }


def test_a_store_that_is_away_is_not_taken_for_one_without_the_codes_of_the_model_to_start_from(
    run: Run, store: ArtifactStore, inputs: dict[StageName, ArtifactRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, gone, open_artifact = run(training={"epochs": 1}), inputs["tokenization"], ArtifactStore.open
    inputs["tokenization"] = publish(store, "tokenization", write_codes, key="1" * 64)

    def fail(self: ArtifactStore, ref: ArtifactRef) -> Artifact:
        if ref == gone:
            raise StoreAwayError("the store is away")
        return open_artifact(self, ref)

    monkeypatch.setattr(ArtifactStore, "open", fail)
    with pytest.raises(StoreAwayError):
        run(training={"epochs": 1, "start_from": first.ref.key})


def test_the_metrics_of_a_report_are_said_in_a_line() -> None:
    tokens = {"token_accuracy/1": 0.91, "token_accuracy/2": 0.84, "token_accuracy/3": 0.62}
    report = TrainingReport(5, 9, 0, {"loss": 2.1134, "alignment": 0.712, **tokens, "code_accuracy": 0.55})
    assert describe_report(report) == "loss 2.113  tokens 91 84 62%  code 55%  z·h 0.71"


def test_wandb_that_is_not_installed_is_said(run: Run) -> None:
    with pytest.raises(GifError, match="pip install wandb"):
        run(wandb="faces")


def test_processes_of_a_machine_share_its_decoding_workers(
    store: ArtifactStore, inputs: dict[StageName, ArtifactRef], prefect: str, tmp_path: Path, monkeypatch: Any
) -> None:
    jobs: list[TrainingJob] = []

    def note(module: str, arguments: list[str], *_: object) -> list[dict[str, Any]]:
        jobs.append(TrainingJob.model_validate_json(Path(arguments[0]).read_text()))
        raise GifError("enough is known")

    monkeypatch.setattr("gif_core.runtime.jobs.run_module", note)
    for workers in (7, 1):
        execution = {"device": "cpu", "workers": workers, "processes": 2}
        config = RunConfig.model_validate({"store": str(tmp_path / "store"), "execution": execution})
        with pytest.raises(GifError, match="enough is known"):
            training.fn(config, inputs)
    assert [job.workers for job in jobs] == [3, 1]
