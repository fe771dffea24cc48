"""A small store with everything that a report reads, made in a second."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, settings
from numpy.typing import NDArray
from safetensors.numpy import save_file

from gif_core.artifacts import Artifact, ArtifactStore, Draft, MetricsWriter, artifact_key
from gif_core.evaluation import SetResult, SystemResult
from gif_core.evaluation import results as score_files
from gif_core.ingestion import ingest
from gif_core.protocols import Roc
from gif_core.readers import open_reader
from gif_core.reporting import write_report
from gif_core.reporting.scored_runs import ScoredRun
from gif_core.tokenization import code_quality, code_shape, write_code_table
from schemas.files import CODE_QUALITY_FILE
from schemas.run import RunConfig
from schemas.stages import INPUTS, StageName

# The same examples in every run, and no example fails for the time it takes; --hypothesis-profile=default explores.
settings.register_profile("gif", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gif")

HOSTILE = "<script>alert(1)</script>"
STEPS = 1200
ONE_CLASS = "all pairs are of one identity, so FAR is undefined"
NOTHING_HELD_OUT = "no identity was held out, so there are no pairs to verify: set ingestion.held_out above 0"


class SmallRun:
    """A store with small artifacts of all stages that the report reads."""

    def __init__(
        self,
        folder: Path,
        *,
        held_out: float = 0.5,
        title: str = "A small run",
        head: str = "gif",
        seed: int = 0,
        skipped: Mapping[int, int] | None = None,
        dimension: int | None = None,
        gpu_seconds: float | None = None,
    ) -> None:
        source = {"kind": "synthetic", "identities": 14, "smallest": 2, "largest": 5}
        self.config = RunConfig.model_validate(
            {
                "store": str(folder),
                "seed": seed,
                "separation": {"dimension": dimension},
                "training": {"head": head},
                "ingestion": {"sources": [source], "held_out": held_out},
                "embedding": {"model": "tiny-clip", "pretrained": "random"},
                "reporting": {"title": title},
            }
        )
        self.store = ArtifactStore(str(folder))
        self.inputs: dict[StageName, Artifact] = {}
        self.skipped = skipped or {}
        self.gpu_seconds = gpu_seconds
        for write in (
            write_faces,
            write_vectors,
            write_separation,
            write_codes,
            write_training,
            write_scores,
        ):
            write(self)

    @contextmanager
    def publish(self, stage: StageName) -> Iterator[Draft]:
        settings = self.config.settings(stage)
        inputs = {name: self.inputs[name] for name in INPUTS[stage]}
        keys = {name: artifact.ref.key for name, artifact in inputs.items()}
        ref = self.store.ref(stage, artifact_key(stage, settings, keys))
        made_from = {name: artifact.made_from for name, artifact in inputs.items()}
        with self.store.draft(ref, settings, made_from) as draft:
            yield draft
            if stage == "training" and self.gpu_seconds:
                draft.gpu_seconds, draft.peak_gpu_memory = self.gpu_seconds, 21 * 10**9
            self.store.publish(draft)
        self.inputs[stage] = self.store.open(ref)

    @property
    def identities(self) -> pa.Table:
        return pq.read_table(self.inputs["ingestion"].path("identities.parquet"))

    def report(self, path: Path, runs: Sequence[ScoredRun] = ()) -> str:
        write_report(path, self.config, self.inputs, runs)
        return path.read_text(encoding="utf-8")


def write_faces(run: SmallRun) -> None:
    with run.publish("ingestion") as draft:
        readers = [open_reader(source) for source in run.config.ingestion.sources]
        list(ingest(run.config.ingestion, readers, draft.folder))
        path = draft.folder / "identities.parquet"
        identities = pq.read_table(path)
        labels = [HOSTILE, *identities["label"].to_pylist()[1:]]
        place = identities.column_names.index("label")
        pq.write_table(identities.set_column(place, "label", pa.array(labels)), path)


def write_vectors(run: SmallRun) -> None:
    with run.publish("embedding") as draft:
        pq.write_table(pa.table({"identity_id": [0]}), draft.folder / "vectors.parquet")
        low = {"identity_id": [3, 5], "label": [HOSTILE, "p5"], "num_samples": [4, 2], "cohesion": [0.123, 0.4]}
        pq.write_table(pa.table(low), draft.folder / "least_cohesive.parquet")
        draft.metrics |= {"dimensions": 16, "mean_cosine": 0.912, "mean_cohesion": 0.876}


def draw_unit_rows(rows: int, seed: int = 0) -> NDArray[np.float32]:
    drawn = np.random.default_rng(seed).standard_normal((rows, 16), dtype=np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def write_separation(run: SmallRun) -> None:
    kept = [1.0, 0.9, 0.8, None, 0.7, None, 0.6]
    gaps = [2.0, 1.0, 0.5, 0.3, 0.2, 0.1, 0.05]
    with run.publish("separation") as draft:
        curve = {
            "epoch": list(range(7)),
            "loss": gaps,
            "gap": gaps,
            "mean_cosine": gaps,
            "neighbours_kept": kept,
            "spearman": kept,
        }
        pq.write_table(pa.table(curve), draft.folder / "curve.parquet")
        counts = np.arange(200) % 7
        save_file({"code_vectors": draw_unit_rows(len(run.identities))}, draft.folder / "code_vectors.safetensors")
        distances = {"distance": np.arange(200) / 100, "before": counts, "after": counts[::-1]}
        pq.write_table(pa.table(distances), draft.folder / "distances.parquet")
        before = {"min_distance_before": 0.001, "mean_distance_before": 0.1, "max_distance_before": 0.4}
        after = {"min_distance": 0.71, "mean_distance": 1.05, "max_distance": 1.3}
        draft.metrics |= before | after | {"gap": 0.05, "epochs": 6, "neighbours_kept": 0.6}


def write_codes(run: SmallRun) -> None:
    identities = run.identities
    shape = code_shape(len(identities), run.config.tokenization.model_copy(update={"length": 2}))
    codes = np.array([divmod(i, shape.vocab_size) for i in range(len(identities))], np.int32)
    with run.publish("tokenization") as draft:
        write_code_table(draft.folder, codes, shape, identities)
        vectors = np.eye(len(identities), 16, dtype=np.float32) + 0.1
        quality = code_quality(codes, shape, vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
        pq.write_table(quality, draft.folder / CODE_QUALITY_FILE)
        draft.metrics |= {"identities": len(identities), "length": shape.length, "vocab_size": shape.vocab_size}
        draft.metrics["occupancy"] = len(identities) / shape.capacity(0)


def write_training(run: SmallRun) -> None:
    if run.config.training.head == "gif":
        names = ["loss", "loss_codes", "loss_alignment", "alignment", "token_accuracy/1", "token_accuracy/2"]
        last = {"code_accuracy": 0.25, "alignment": 0.75}
    else:
        names, last = ["loss", "accuracy", "cosine", "gradient_norm"], {"accuracy": 0.3125}
    with run.publish("training") as draft:
        with MetricsWriter(draft.folder / "metrics.parquet", "training") as writer:
            for step in range(1, STEPS + 1):
                curves = dict.fromkeys((*names, *last, "images_per_second"), 1 / step)
                writer.add(step, curves | {"skipped": run.skipped.get(step, 0)})
            writer.add(STEPS, {"val_accuracy": 0.75})
        write_head(run, draft.folder)
        draft.metrics |= {"steps": STEPS, "images_per_second": 1234.5, "loss": 0.5} | last


def write_head(run: SmallRun, folder: Path) -> None:
    """Rows that have learned, and for codes a map that moves them further."""
    rows = draw_unit_rows(len(run.identities), seed=1)
    if run.config.training.head == "gif":
        save_file({"code_vectors": rows}, folder / "code_vectors.safetensors")
        save_file(
            {"map_in_DW": draw_unit_rows(16, 2), "map_out_WD": draw_unit_rows(16, 3)}, folder / "head.safetensors"
        )
    else:
        save_file({"weight_MD": 3 * rows}, folder / "head.safetensors")


def write_scores(run: SmallRun) -> None:
    roc = Roc(np.array([0.0, 0.01, 0.1, 1.0]), np.array([0.0, 0.5, 0.9, 1.0]), np.array([np.inf, 0.3, 0.2, 0.1]))
    held_out = SetResult("held_out", "held_out", "pairs-1", {"folds": 10}, {"pairs": 1500, "same": 750})
    if run.config.ingestion.held_out:
        rates = {"tar_at_far_0.1": 0.9, "tar_at_far_0.001": 0.5}
        for system, accuracy in {"raw_pixels": 0.6125, "encoder": 0.7, "model": 0.98765}.items():
            metrics = {"accuracy": accuracy, "accuracy_std": 0.01, "threshold": 1.2}
            held_out.systems[system] = SystemResult(metrics | rates, {"flip": system == "model"}, roc)
        held_out.errors = [error(same=same, distance=distance) for same, distance in ((False, 0.11), (True, 3.33))]
    else:
        held_out.undefined = NOTHING_HELD_OUT
    with run.publish("evaluation") as draft:
        score_files.write_scores(draft.folder, [held_out, *other_sets(roc)], "0" * 64)
        draft.metrics |= {f"{name}_accuracy": metrics["accuracy"] for name, metrics in held_out.metrics.items()}


def other_sets(roc: Roc) -> list[SetResult]:
    lfw = SetResult("lfw", "bin", "pairs-1", {"flip": True}, {"pairs": 6000, "same": 3000})
    lfw.systems = {"model": SystemResult({"accuracy": 0.91234}, roc=roc)}
    flags = {"flip": True, "detector_score": False, "norm": True}
    ijb = SetResult("IJB-C", "ijb", "ijb-1", flags, {"templates": 40, "pairs": 900})
    metrics = {"tar_at_far_0.0001": 0.5432, "tpir_at_fpir_0.01": 0.4, "rank_1": 0.66}
    ijb.systems = {"model": SystemResult(metrics, roc=roc, cmc=np.array([0.66, 0.7, 0.8]))}
    one_class = SetResult(
        "synthetic sets", "parquet", "pairs-1", {"flip": True}, {"pairs": 8, "same": 8}, undefined=ONE_CLASS
    )
    return [lfw, ijb, one_class]


def error(*, same: bool, distance: float) -> dict[str, object]:
    image = cv2.imencode(".jpg", np.full((112, 112, 3), 90, np.uint8))[1].tobytes()
    images = {"left": 1, "right": 2, "left_image": image, "right_image": image}
    return {"system": "model", "same": same, "distance": distance, "threshold": 1.2} | images


@pytest.fixture(scope="session")
def small_run() -> type[SmallRun]:
    """Makes such a store."""
    return SmallRun
