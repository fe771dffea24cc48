import pytest
import torch
from torch import nn

from gif_core.backbones.building import BACKBONES, build_backbone
from gif_core.backbones.iresnet import IResNet, IResNetBlock


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("iresnet18", 24_025_600),
        ("iresnet34", 34_139_328),
        ("iresnet50", 43_590_848),
        ("iresnet100", 65_156_160),
        ("iresnet200", 118_833_920),
    ],
)
def test_parameter_counts_are_insightfaces(name: str, parameters: int) -> None:
    with torch.device("meta"):
        assert count_parameters(build_backbone(name, 512)) == parameters


def test_state_dict_names_are_insightfaces() -> None:
    with torch.device("meta"):
        names = list(build_backbone("iresnet18", 512).state_dict())
    norm = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    first_block = [
        *(f"layer1.0.bn1.{part}" for part in norm),
        "layer1.0.conv1.weight",
        *(f"layer1.0.bn2.{part}" for part in norm),
        "layer1.0.prelu.weight",
        "layer1.0.conv2.weight",
        *(f"layer1.0.bn3.{part}" for part in norm),
        "layer1.0.downsample.0.weight",
        *(f"layer1.0.downsample.1.{part}" for part in norm),
    ]
    stem = ["conv1.weight", *(f"bn1.{part}" for part in norm), "prelu.weight"]
    tail = [
        *(f"bn2.{part}" for part in norm),
        "fc.weight",
        "fc.bias",
        *(f"features.{part}" for part in norm),
    ]
    assert names[: len(stem) + len(first_block)] == stem + first_block
    assert names[-len(tail) :] == tail


def test_shortcut_is_a_convolution_only_in_the_first_block_of_a_stage() -> None:
    with torch.device("meta"):
        names = build_backbone("iresnet50", 512).state_dict()
    with_convolution = {name.split(".downsample")[0] for name in names if "downsample" in name}
    assert with_convolution == {"layer1.0", "layer2.0", "layer3.0", "layer4.0"}


def test_stride_is_in_the_second_convolution_of_a_stage() -> None:
    with torch.device("meta"):
        model = build_backbone("iresnet18", 512)
    assert isinstance(model, IResNet)
    for stage in (model.layer1, model.layer2, model.layer3, model.layer4):
        first, second = stage
        assert isinstance(first, IResNetBlock)
        assert isinstance(second, IResNetBlock)
        strides = [block.conv1.stride + block.conv2.stride for block in (first, second)]
        assert strides == [(1, 1, 2, 2), (1, 1, 1, 1)]


@pytest.mark.parametrize("name", list(BACKBONES))
def test_every_backbone_ends_in_the_asked_dimension(name: str) -> None:
    with torch.device("meta"):
        model = build_backbone(name, 96)
    assert isinstance(model, IResNet)
    assert model.fc.out_features == model.features.num_features == 96


@pytest.mark.parametrize("name", ["iresnet_tiny", "iresnet18"])
def test_faces_become_features(name: str) -> None:
    with torch.inference_mode():
        assert build_backbone(name, 96)(torch.zeros(2, 3, 112, 112)).shape == (2, 96)


def test_tiny_is_tiny() -> None:
    assert 0.3e6 < count_parameters(build_backbone("iresnet_tiny", 128)) < 1e6


def test_last_norm_keeps_its_weight_at_one() -> None:
    model = build_backbone("iresnet_tiny", 32)
    assert isinstance(model, IResNet)
    assert not model.features.weight.requires_grad
    assert torch.equal(model.features.weight, torch.ones(32))
    assert model.features.bias.requires_grad


def test_convolutions_start_as_normals_of_a_tenth() -> None:
    model = build_backbone("iresnet_tiny", 32)
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 1000:
            assert module.weight.std().item() == pytest.approx(0.1, rel=0.1)


def test_features_are_fp32_under_autocast() -> None:
    model = build_backbone("iresnet_tiny", 32)
    with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
        features = model(torch.zeros(2, 3, 112, 112))
    assert features.dtype == torch.float32


def test_unknown_backbone_gets_the_list_of_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no backbone 'resnet'.*iresnet_tiny.*iresnet200"):
        build_backbone("resnet", 512)
