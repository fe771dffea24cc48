"""Fine-tuning from a file of weights, a frozen or slower backbone, and learning from a teacher."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from safetensors.torch import save_file
from torch import Tensor, nn

from gif_core.backbones import build_backbone, describe_file, find_weights
from gif_core.images import Faces
from gif_core.runtime import ProcessGroup
from gif_core.synthetic import draw_jpeg
from gif_core.training.checkpoints import load_weights
from gif_core.training.distillation import distillation_loss, open_teacher
from gif_core.training.trainer import Training, begin_training, build_state
from schemas.errors import GifError
from schemas.run import RunConfig
from schemas.training import TrainingConfig, TrainingStart, TrainingTeacher

ALONE = ProcessGroup(torch.device("cpu"))
DIM, IDENTITIES = 16, 6


def make_config(**settings: object) -> TrainingConfig:
    return TrainingConfig.model_validate(
        {"backbone": "iresnet_tiny", "head": "cosface", "optimizer": "adamw", "learning_rate": 0.002}
        | {"epochs": 2, "batch_size": 6, "negatives": 0, **settings}
    )


def make_training(faces: Faces, config: TrainingConfig, seed: int = 0) -> Training:
    codes = np.stack([np.arange(IDENTITIES) // 4, np.arange(IDENTITIES) % 4], axis=1)
    vectors = np.random.default_rng(0).normal(size=(IDENTITIES, DIM)).astype(np.float32)
    return begin_training(faces, codes, vectors, config, seed=seed, group=ALONE, num_values=4)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone().contiguous() for name, tensor in model.state_dict().items()}


def make_network(seed: int, dim: int = DIM) -> nn.Module:
    torch.manual_seed(seed)
    return build_backbone("iresnet_tiny", dim).eval()


@pytest.fixture
def faces(tmp_path: Path, write_shard: Callable[..., Path]) -> Faces:
    rows = [
        (person, f"{person}-{shot}", draw_jpeg(0, person, shot)) for person in range(IDENTITIES) for shot in range(4)
    ]
    return Faces([write_shard(tmp_path / "faces.arrow", rows, 8)])


@pytest.mark.parametrize("wrapper", ["plain", "state_dict_backbone", "module", "safetensors"])
def test_published_weights_of_every_layout_are_started_from(tmp_path: Path, wrapper: str) -> None:
    weights = weights_of(make_network(5))
    path = tmp_path / ("weights.safetensors" if wrapper == "safetensors" else "weights.pt")
    if wrapper == "safetensors":
        save_file(weights, path)
    elif wrapper == "state_dict_backbone":
        torch.save({"epoch": 3, "global_step": 7, wrapper: weights, "state_dict_softmax_fc": {}}, path)
    else:
        prefix = "module." if wrapper == "module" else ""
        torch.save({f"{prefix}{name}": tensor for name, tensor in weights.items()}, path)
    codes = np.stack([np.arange(IDENTITIES) // 4, np.arange(IDENTITIES) % 4], axis=1)
    vectors = np.eye(IDENTITIES, DIM, dtype=np.float32)
    state = build_state(codes, vectors, make_config(), seed=0, group=ALONE, num_values=4)
    load_weights(state, TrainingStart(backbone=str(path)))
    assert all(torch.equal(tensor, weights[name]) for name, tensor in state.model.state_dict().items())


def test_a_file_that_runs_code_or_does_not_fit_is_refused(tmp_path: Path) -> None:
    codes = np.stack([np.arange(IDENTITIES) // 4, np.arange(IDENTITIES) % 4], axis=1)
    state = build_state(
        codes, np.eye(IDENTITIES, DIM, dtype=np.float32), make_config(), seed=0, group=ALONE, num_values=4
    )
    torch.save(make_network(0), tmp_path / "pickled.pt")
    with pytest.raises(GifError, match="cannot be read as weights"):
        load_weights(state, TrainingStart(backbone=str(tmp_path / "pickled.pt")))
    torch.save(weights_of(make_network(0, dim=32)), tmp_path / "wide.pt")
    with pytest.raises(GifError, match="the backbone of the model to start from is another"):
        load_weights(state, TrainingStart(backbone=str(tmp_path / "wide.pt")))


def test_a_frozen_backbone_stays_for_its_epochs_while_the_head_learns(faces: Faces) -> None:
    training = make_training(faces, make_config(freeze=1))
    before, head = weights_of(training.state.model), weights_of(training.state.head)
    steps = training.steps_per_epoch
    for report in training.run(lambda: training.state.step == steps):
        assert np.isfinite(report.metrics["loss"])
    assert training.state.step == steps
    after = training.state.model.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items()), "batch statistics too"
    assert any(not torch.equal(training.state.head.state_dict()[name], tensor) for name, tensor in head.items())
    for _ in training.run():
        pass
    assert training.state.step == 2 * steps
    assert any(not torch.equal(training.state.model.state_dict()[name], tensor) for name, tensor in before.items())


def test_a_slower_backbone_has_a_share_of_the_rate(faces: Faces) -> None:
    def moved(**settings: object) -> float:
        training = make_training(faces, make_config(optimizer="sgd", learning_rate=0.01, epochs=1, **settings))
        before = weights_of(training.state.model)
        next(iter(training.run()))
        name = "layer1.0.conv1.weight"
        return float((training.state.model.state_dict()[name] - before[name]).norm())

    assert moved(backbone_rate=0.1) == pytest.approx(0.1 * moved(), rel=0.01)


def test_a_student_comes_nearer_to_its_teacher(faces: Faces, tmp_path: Path) -> None:
    torch.save(weights_of(make_network(9)), tmp_path / "teacher.pt")
    given = TrainingTeacher(backbone="iresnet_tiny", file=str(tmp_path / "teacher.pt"))
    training = make_training(faces, make_config(epochs=4, teacher="teacher.pt", teacher_weight=100.0))
    training.teacher = open_teacher(given, DIM, ALONE.device)
    before = weights_of(training.teacher)
    distances = [report.metrics["loss_teacher"] for report in training.run()]
    assert np.mean(distances[-4:]) < 0.8 * distances[0]
    assert all(torch.equal(tensor, before[name]) for name, tensor in training.teacher.state_dict().items())


def test_the_loss_of_distillation_is_one_minus_the_cosine() -> None:
    teacher, images = make_network(1), torch.randn(3, 3, 112, 112)
    with torch.inference_mode():
        features = teacher(images)
    assert float(distillation_loss(3 * features, teacher, images)) == pytest.approx(0, abs=1e-5)
    other = torch.randn(3, DIM)
    assert float(distillation_loss(other, teacher, images)) == pytest.approx(
        float((1 - F.cosine_similarity(other, features)).mean()), abs=1e-6
    )


def test_a_teacher_with_other_dimensions_is_refused(tmp_path: Path) -> None:
    torch.save(weights_of(make_network(0, dim=32)), tmp_path / "wide.pt")
    given = TrainingTeacher(backbone="iresnet_tiny", file=str(tmp_path / "wide.pt"))
    with pytest.raises(GifError, match=r"have 32 dimensions and those of this model 16: set separation\.dimension=32"):
        open_teacher(given, DIM, ALONE.device)


def test_files_are_found_downloaded_once_and_described_by_their_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "a.pth").write_bytes(b"weights")
    asked: list[str] = []

    class Files(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200 if self.path == "/a.pth" else 404)
            self.end_headers()
            self.wfile.write(b"weights")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Files) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        here = describe_file(str(tmp_path / "a.pth"), "training.start_from")
        assert here == describe_file(f"{url}/a.pth", "x") == describe_file(f"{url}/a.pth", "x")
        assert asked == ["/a.pth"]
        with pytest.raises(GifError, match=r"training\.teacher: .* cannot be downloaded .*404"):
            find_weights(f"{url}/b.pth", "training.teacher")
        server.shutdown()
    with pytest.raises(GifError, match=r"training\.start_from: there is no file"):
        find_weights(str(tmp_path / "none.pth"), "training.start_from")


def test_settings_say_what_cannot_be_and_keys_do_not_change_without_them() -> None:
    for settings, reason in (
        ({"start_from": "4f2a"}, "neither the key of a training"),
        ({"freeze": 2}, "the backbone must learn in some of the 2 epochs"),
        ({"freeze": 1, "head": "dul"}, r"dul works neither with training\.freeze"),
    ):
        with pytest.raises(ValidationError, match=reason):
            make_config(**settings)
    assert make_config(start_from="a.pth").start_file == "a.pth"
    assert make_config(start_from="f" * 64).start_file is None
    tuned = {"freeze", "backbone_rate", "teacher", "teacher_backbone", "teacher_weight", "start_from"}
    assert not tuned & RunConfig().settings("training").keys()
