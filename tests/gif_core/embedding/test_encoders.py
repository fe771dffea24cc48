import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

from gif_core.backbones import WeightsError, build_backbone
from gif_core.embedding.encoders import ImageEncoder, build_encoder, open_clip_encoder, timm_encoder
from gif_core.embedding.encoders.files import SHIPPED
from gif_core.embedding.encoders.names import open_clip_models, open_clip_weights, timm_models
from gif_core.embedding.encoders.open_clip_encoder import build_model
from gif_core.embedding.encoders.timm_encoder import timm
from gif_core.sharing import export_torch
from gif_core.synthetic import draw_face
from schemas.embedding import EmbeddingConfig

CPU = torch.device("cpu")
TINY = EmbeddingConfig(model="tiny-clip", pretrained="random")
LARGE = EmbeddingConfig(pretrained="random")
VIT = EmbeddingConfig(encoder="timm", model="vit_tiny_patch16_224", pretrained="random")
CONVOLUTIONS = EmbeddingConfig(encoder="timm", model="resnet18", pretrained="random")
SOFT = EmbeddingConfig(encoder="timm", model="mobilenetv3_small_050", pretrained="random", image_size=None)
BACKBONE = EmbeddingConfig(encoder="backbone", model="iresnet_tiny", pretrained="random")


@pytest.fixture(scope="module")
def faces() -> NDArray[np.uint8]:
    return np.stack([draw_face(3, person, 0) for person in range(12)])


def own_way(encoder: Any, images: NDArray[np.uint8]) -> Tensor:
    """The library's transform, one Pillow image at a time."""
    pixels = torch.stack([encoder.transform(Image.fromarray(image)) for image in images])
    with torch.inference_mode():
        return torch.nn.functional.normalize(encoder.tower(pixels), dim=1)


@pytest.mark.parametrize("config", [TINY, LARGE, VIT, CONVOLUTIONS, SOFT], ids=str)
def test_preprocessing_in_batch_gives_the_features_of_the_encoders_own_transform(
    config: EmbeddingConfig, faces: NDArray[np.uint8]
) -> None:
    encoder = build_encoder(config, CPU)
    cosines = (encoder.encode(faces) * own_way(encoder, faces)).sum(dim=1)
    assert cosines.mean() > 0.999
    assert cosines.min() > 0.998


@pytest.mark.parametrize("config", [TINY, VIT])
def test_pixels_are_those_of_the_encoders_own_transform(config: EmbeddingConfig, faces: NDArray[np.uint8]) -> None:
    encoder: Any = build_encoder(config, CPU)
    expected = torch.stack([encoder.transform(Image.fromarray(image)) for image in faces])
    found = encoder.preprocessing(faces, CPU)
    level = 1 / 255 / min(encoder.preprocessing.std)
    assert found.shape == expected.shape
    assert (found - expected).abs().max() < 2.01 * level
    assert (found - expected).abs().mean() < 0.1 * level


def test_images_that_are_not_square_are_cut_as_the_encoder_does(faces: NDArray[np.uint8]) -> None:
    encoder: Any = build_encoder(VIT, CPU)
    wide = faces[:, 20:90]
    expected = torch.stack([encoder.transform(Image.fromarray(image)) for image in wide])
    assert (encoder.preprocessing(wide, CPU) - expected).abs().mean() < 0.01


def test_features_are_unit_vectors_in_float32(faces: NDArray[np.uint8]) -> None:
    for config in (TINY, VIT):
        features = build_encoder(config, CPU).encode(faces)
        assert features.dtype == torch.float32
        assert torch.allclose(features.norm(dim=1), torch.ones(len(faces)), atol=1e-5)


def test_half_precision_gives_nearly_the_same_features(faces: NDArray[np.uint8]) -> None:
    configs = [TINY.model_copy(update={"precision": precision}) for precision in ("fp32", "bf16")]
    exact, half = (build_encoder(config, CPU).encode(faces) for config in configs)
    assert not torch.equal(exact, half)
    assert (exact * half).sum(dim=1).min() > 0.999


def test_untrained_weights_are_the_same_every_time_and_leave_the_random_state_alone(faces: NDArray[np.uint8]) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    for config in (TINY, VIT, BACKBONE):
        torch.manual_seed(5)
        first = build_encoder(config, CPU).encode(faces)
        assert torch.equal(torch.rand(3), expected)
        assert torch.equal(first, build_encoder(config, CPU).encode(faces))


def test_the_size_of_the_input_can_be_chosen(faces: NDArray[np.uint8]) -> None:
    for config in (TINY, VIT):
        encoder: Any = build_encoder(config.model_copy(update={"image_size": 96}), CPU)
        assert encoder.preprocessing(faces, CPU).shape[2:] == (96, 96)
        assert encoder.encode(faces).shape[0] == len(faces)


def test_weights_trained_with_another_size_of_input_are_resampled(tmp_path: Path, faces: NDArray[np.uint8]) -> None:
    for config in (LARGE, VIT):
        trained: Any = build_encoder(config, CPU)
        save_file(trained.model.state_dict(), tmp_path / "w.safetensors")
        larger = {"image_size": 192, "pretrained": str(tmp_path / "w.safetensors")}
        features = build_encoder(config.model_copy(update=larger), CPU).encode(faces)
        assert (features * trained.encode(faces)).sum(dim=1).mean() > 0.9


class TestLocalFiles:
    """A checkpoint given by its path."""

    @pytest.fixture(params=[TINY, VIT, CONVOLUTIONS, BACKBONE], ids=lambda config: config.model)
    def config(self, request: pytest.FixtureRequest) -> EmbeddingConfig:
        return request.param  # type: ignore[no-any-return]

    @pytest.fixture
    def trained(self, config: EmbeddingConfig) -> Any:
        """The same architecture with other weights."""
        encoder: Any = build_encoder(config, CPU)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in encoder.model.parameters():
                parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
        return encoder

    def load(self, config: EmbeddingConfig, path: Path) -> ImageEncoder:
        return build_encoder(config.model_copy(update={"pretrained": str(path)}), CPU)

    @pytest.mark.parametrize("ending", ["safetensors", "pt"])
    def test_it_is_used(
        self, config: EmbeddingConfig, trained: Any, tmp_path: Path, ending: str, faces: NDArray[np.uint8]
    ) -> None:
        path, state = tmp_path / f"weights.{ending}", trained.model.state_dict()
        if ending == "safetensors":
            save_file(state, path)
        else:
            torch.save({"epoch": 3, "state_dict": {f"module.{name}": each for name, each in state.items()}}, path)
        loaded = self.load(config, path).encode(faces)
        assert torch.equal(loaded, trained.encode(faces))
        assert not torch.allclose(loaded, build_encoder(config, CPU).encode(faces), atol=1e-3)

    def test_a_safetensors_file_is_known_by_its_content(
        self, config: EmbeddingConfig, trained: Any, tmp_path: Path, faces: NDArray[np.uint8]
    ) -> None:
        save_file(trained.model.state_dict(), tmp_path / "weights.ckpt")
        assert torch.equal(self.load(config, tmp_path / "weights.ckpt").encode(faces), trained.encode(faces))

    @pytest.mark.parametrize("ending", ["safetensors", "pt"])
    @pytest.mark.parametrize("keep", [0, 5, 0.999])
    def test_one_that_is_cut_off_is_refused(
        self, config: EmbeddingConfig, trained: Any, tmp_path: Path, ending: str, keep: float
    ) -> None:
        path, buffer = tmp_path / f"weights.{ending}", io.BytesIO()
        if ending == "safetensors":
            save_file(trained.model.state_dict(), path)
            content = path.read_bytes()
        else:
            torch.save(trained.model.state_dict(), buffer)
            content = buffer.getvalue()
        path.write_bytes(content[: int(keep * len(content)) if keep < 1 else int(keep)])
        with pytest.raises(WeightsError, match=rf"weights\.{ending} cannot be read as weights: \S+"):
            self.load(config, path)

    @pytest.mark.filterwarnings("ignore:Detected pickle protocol")
    def test_one_that_runs_code_is_refused_and_its_code_is_not_run(
        self, config: EmbeddingConfig, tmp_path: Path
    ) -> None:
        class Evil:
            def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
                return os.mkdir, (str(tmp_path / "owned"),)

        torch.save({"state_dict": Evil()}, tmp_path / "evil.pt")
        (tmp_path / "plain.pt").write_bytes(pickle.dumps(Evil()))
        for name in ("evil.pt", "plain.pt"):
            with pytest.raises(WeightsError, match="cannot be read as weights"):
                self.load(config, tmp_path / name)
        assert not (tmp_path / "owned").exists()

    def test_one_that_does_not_fit_is_refused_with_the_names_of_the_first_tensors(
        self, config: EmbeddingConfig, trained: Any, tmp_path: Path
    ) -> None:
        state = {name: tensor.clone() for name, tensor in trained.model.state_dict().items()}
        first, second = [name for name, tensor in state.items() if tensor.ndim > 1][2:4]
        removed, shape = state.pop(first), list(state[second].shape)
        state[second] = torch.zeros(3, 5)
        save_file(state | {"another.weight": removed}, tmp_path / "other.safetensors")
        with pytest.raises(WeightsError) as refused:
            self.load(config, tmp_path / "other.safetensors")
        assert "other.safetensors does not fit the model" in str(refused.value)
        assert f"{first} is missing" in str(refused.value)
        assert f"{second} is [3, 5] where the model has {shape}" in str(refused.value)
        assert "the model has no another.weight" in str(refused.value)

    def test_a_flipped_bit_in_a_state_dict_is_noticed(
        self, config: EmbeddingConfig, trained: Any, tmp_path: Path
    ) -> None:
        torch.save(trained.model.state_dict(), tmp_path / "w.pt")
        content = bytearray((tmp_path / "w.pt").read_bytes())
        content[len(content) // 2] ^= 1
        (tmp_path / "w.pt").write_bytes(content)
        with pytest.raises(WeightsError, match=r"w\.pt cannot be read as weights: .* in it is damaged"):
            self.load(config, tmp_path / "w.pt")

    def test_one_of_quite_another_model_is_refused_with_a_few_names(
        self, config: EmbeddingConfig, tmp_path: Path
    ) -> None:
        save_file({"layer.weight": torch.zeros(3)}, tmp_path / "other.safetensors")
        with pytest.raises(WeightsError) as refused:
            self.load(config, tmp_path / "other.safetensors")
        assert str(refused.value).count("is missing") == 5
        assert str(refused.value).endswith("; …")

    def test_what_holds_no_tensors_is_refused(self, config: EmbeddingConfig, tmp_path: Path) -> None:
        for content in ({"epoch": 3}, [torch.zeros(3)], {}):
            torch.save(content, tmp_path / "w.pt")
            with pytest.raises(WeightsError, match=r"w\.pt holds no state dict"):
                self.load(config, tmp_path / "w.pt")


def test_a_timm_checkpoint_may_have_the_classifier_that_the_encoder_has_not(
    tmp_path: Path, faces: NDArray[np.uint8]
) -> None:
    for config in (VIT, CONVOLUTIONS):
        torch.manual_seed(3)
        classifier = timm.create_model(config.model, num_classes=10).eval()
        torch.save(classifier.state_dict(), tmp_path / "w.pth")
        encoder = build_encoder(config.model_copy(update={"pretrained": str(tmp_path / "w.pth")}), CPU)
        with torch.inference_mode():
            pooled = classifier.forward_head(
                classifier.forward_features(encoder.preprocessing(faces, CPU)), pre_logits=True
            )
        expected = torch.nn.functional.normalize(pooled, dim=1)
        assert torch.allclose(encoder.encode(faces), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("config", "name", "shape"),
    [
        (VIT, "patch_embed.proj.weight", (192, 3, 8, 8)),
        (VIT, "patch_embed.proj.weight", (3, 5)),
        (VIT, "pos_embed", (1, 52, 192)),
        (TINY, "positional_embedding", (3, 5)),
        (TINY, "logit_scale", (3,)),
    ],
)
def test_tensors_that_the_libraries_would_convert_are_refused_by_name_when_they_do_not_fit(
    config: EmbeddingConfig, name: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    encoder: Any = build_encoder(config, CPU)
    save_file(encoder.model.state_dict() | {name: torch.zeros(shape)}, tmp_path / "w.safetensors")
    with pytest.raises(
        WeightsError, match=rf"does not fit the model: {name} is \[{', '.join(map(str, shape))}\] where"
    ):
        build_encoder(config.model_copy(update={"pretrained": str(tmp_path / "w.safetensors")}), CPU)


@pytest.mark.parametrize(
    ("config", "places"),
    [
        (EmbeddingConfig(), ("timm/vit_base_patch32_clip_224.openai", "ViT-B-32-quickgelu")),
        (EmbeddingConfig(model="RN50", pretrained="openai"), ("resnet50_clip.openai", "RN50-quickgelu")),
        (
            EmbeddingConfig(encoder="timm", model="vit_small_patch14_dinov2", pretrained="lvd142m"),
            ("huggingface.co/timm/vit_small_patch14_dinov2.lvd142m",),
        ),
    ],
)
def test_weights_that_cannot_be_fetched_are_named_with_where_to_get_them(
    config: EmbeddingConfig, places: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        WeightsError, match=r"cannot be downloaded .* fetch .*set embedding\.pretrained to the path"
    ) as refused:
        build_encoder(config, CPU)
    assert all(place in str(refused.value) for place in places)


@pytest.mark.parametrize(
    "config",
    [EmbeddingConfig(), EmbeddingConfig(encoder="timm", model="vit_small_patch14_dinov2", pretrained="lvd142m")],
)
def test_weights_of_a_host_that_cannot_be_reached_fail_without_waiting_for_another_try(
    config: EmbeddingConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "https://127.0.0.1:9")
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    monkeypatch.delenv("https_proxy", raising=False)
    offline = huggingface_hub.constants.HF_HUB_OFFLINE
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    with pytest.raises(WeightsError, match="cannot be downloaded") as refused:
        build_encoder(config, CPU)
    assert sum(slept) < 5
    assert "Error:" not in str(refused.value)
    assert offline == huggingface_hub.constants.HF_HUB_OFFLINE


def test_a_convolutional_network_takes_another_size_of_input(faces: NDArray[np.uint8]) -> None:
    config = SOFT.model_copy(update={"image_size": 64})
    encoder = build_encoder(config, CPU)
    assert encoder.preprocessing.size == 64
    assert encoder.encode(faces).shape[0] == len(faces)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")  # of timm's own models
def test_every_family_of_timm_takes_a_size_of_input_or_says_that_it_cannot() -> None:
    """One small model of each family, without values, which need neither time nor memory."""
    built: list[str] = []
    refused: dict[str, str] = {}
    left = ("giant", "huge", "large", "xlarge", "_l_", "_xl", "so400m", "base", "eva02_e", "gigantic")
    for module in timm_encoder.timm.list_modules():
        names = [name for name in timm_encoder.timm.list_models(module=module) if not any(map(name.__contains__, left))]
        if names:
            name = min(names, key=len)
            try:
                with torch.device("meta"):
                    timm_encoder._create(name, 224)
                built.append(name)
            except WeightsError as error:
                refused[name] = str(error)
    assert len(built) > 80
    assert all(name in reason for name, reason in refused.items())


def test_the_names_that_are_checked_before_a_run_are_those_that_the_libraries_have() -> None:
    assert set(timm.list_models()) <= set(timm_models())
    assert all(map(timm.is_model, timm_models()))
    assert set(open_clip_models()) == {*open_clip_encoder.open_clip.list_models()}
    weights = {(name, tag) for name, tags in open_clip_weights().items() for tag in tags}
    library = {tuple(pair) for pair in open_clip_encoder.open_clip.list_pretrained()}
    assert {pair for pair in library if not pair[0].endswith("-quickgelu")} == weights


def test_an_unknown_architecture_or_tag_gets_the_list_of_known_ones() -> None:
    with pytest.raises(ValueError, match=r"open_clip has no such model; did you mean .*'ViT-B-\d"):
        open_clip_encoder.check_names(EmbeddingConfig(model="ViT-B-99"))
    with pytest.raises(ValueError, match=r"neither a file nor a tag of ViT-B-32; tags are: random, openai"):
        open_clip_encoder.check_names(EmbeddingConfig(model="ViT-B-32", pretrained="nowhere.pt"))
    with pytest.raises(ValueError, match=r"tags are: random, synthetic$"):
        open_clip_encoder.check_names(EmbeddingConfig(model="tiny-clip", pretrained="openai"))
    with pytest.raises(ValueError, match=r"timm has no such model; did you mean .*vit_"):
        timm_encoder.check_names(EmbeddingConfig(encoder="timm", model="vit_huge"))
    with pytest.raises(ValueError, match=r"tags are: random, .*lvd142m"):
        timm_encoder.check_names(EmbeddingConfig(encoder="timm", model="vit_small_patch14_dinov2", pretrained="x"))


@pytest.mark.parametrize(("name", "dimensions"), [("iresnet_tiny", 24), ("mobilefacenet", 96), ("vit_tiny", 32)])
def test_a_trained_network_is_an_encoder_with_features_as_long_as_its_own(
    tmp_path: Path, faces: NDArray[np.uint8], name: str, dimensions: int
) -> None:
    network = build_backbone(name, dimensions).eval()
    export_torch(network, tmp_path / "backbone.pth")
    config = EmbeddingConfig(encoder="backbone", model=name, pretrained=str(tmp_path / "backbone.pth"))
    images = torch.from_numpy(faces).permute(0, 3, 1, 2) / 127.5 - 1
    with torch.inference_mode():
        expected = torch.nn.functional.normalize(network(images), dim=1)
    found = build_encoder(config, CPU).encode(faces)
    assert found.shape == (len(faces), dimensions)
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_backbone_without_a_file_of_weights_or_with_another_size_is_refused() -> None:
    with pytest.raises(WeightsError, match=r"'openai' is not a file: .*gif export torch"):
        build_encoder(BACKBONE.model_copy(update={"pretrained": "openai"}), CPU)
    with pytest.raises(ValueError, match=r"image_size = 96: backbones accept faces of 112"):
        build_encoder(BACKBONE.model_copy(update={"image_size": 96}), CPU)
    with pytest.raises(ValueError, match=r"unknown backbone 'resnet'; known backbones: .*iresnet100"):
        build_encoder(BACKBONE.model_copy(update={"model": "resnet"}), CPU)


def test_a_model_of_openais_weights_has_their_activation() -> None:
    activations = {type(module).__name__ for module in build_model(EmbeddingConfig()).modules()}
    assert "QuickGELU" in activations
    assert "QuickGELU" not in {type(module).__name__ for module in build_model(TINY).modules()}


def test_the_shipped_checkpoint_is_small_and_its_weights_are_trained(faces: NDArray[np.uint8]) -> None:
    assert SHIPPED["tiny-clip", "synthetic"].stat().st_size < 8e6
    trained = build_encoder(EmbeddingConfig(model="tiny-clip", pretrained="synthetic"), CPU)
    untrained = build_encoder(TINY, CPU)
    assert (trained.encode(faces) * untrained.encode(faces)).sum(dim=1).max() < 0.5
