import copy
import math
import os
import resource
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

import pytest
import torch
from torch import nn

from gif_core.backbones import Backbone, WeightsError, build_backbone, open_foreign_backbone, read_weights
from gif_core.backbones.factory import BACKBONES
from gif_core.backbones.iresnet import IResNet, IResNetBlock
from gif_core.backbones.mobilefacenet import mobilefacenet
from gif_core.backbones.vit import DropPath, VisionTransformer
from schemas.training import TrainingConfig


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
        ("vit_tiny", 19_137_792),
        ("vit_small", 76_023_296),
        ("vit_base", 113_833_472),
        ("vit_large", 255_684_352),
    ],
)
def test_parameter_counts_are_insightfaces(name: str, parameters: int) -> None:
    with torch.device("meta"):
        assert count_parameters(build_backbone(name, 512)) == parameters


@pytest.mark.parametrize(("name", "drop_path"), [("vit_tiny", 0.1), ("vit_base", 0.1), ("vit_large", 0.05)])
def test_transformers_leave_out_15_of_144_tokens_as_insightfaces_do(name: str, drop_path: float) -> None:
    """`random_masking` there has a default of 0.1 and is called without the `mask_ratio` that a model is given."""
    with torch.device("meta"):
        model = build_backbone(name, 512)
        assert isinstance(model, VisionTransformer)
        assert model._draw_kept(model.pos_embed).shape == (1, 129)
    assert [block.drop_path.rate for block in model.blocks][:: len(model.blocks) - 1] == [0, drop_path]


Shapes = dict[str, tuple[int, ...]]


def norm_shapes(name: str, width: int) -> Shapes:
    parts = ("weight", "bias", "running_mean", "running_var")
    return {f"{name}.{part}": (width,) for part in parts} | {f"{name}.num_batches_tracked": ()}


def block_shapes(name: str, inputs: int, outputs: int, *, first: bool) -> Shapes:
    shapes = norm_shapes(f"{name}.bn1", inputs) | {f"{name}.conv1.weight": (outputs, inputs, 3, 3)}
    shapes |= norm_shapes(f"{name}.bn2", outputs) | {f"{name}.prelu.weight": (outputs,)}
    shapes |= {f"{name}.conv2.weight": (outputs, outputs, 3, 3)} | norm_shapes(f"{name}.bn3", outputs)
    if first:
        shapes[f"{name}.downsample.0.weight"] = (outputs, inputs, 1, 1)
        shapes |= norm_shapes(f"{name}.downsample.1", outputs)
    return shapes


def iresnet_shapes(
    blocks: Sequence[int], widths: Sequence[int] = (64, 128, 256, 512), side: int = 7, dim: int = 512
) -> Shapes:
    """What is in a `backbone.pth` of insightface's `iresnet.py`, in its order; `side` is that of the last map."""
    inputs = widths[0]
    shapes = {"conv1.weight": (inputs, 3, 3, 3)} | norm_shapes("bn1", inputs) | {"prelu.weight": (inputs,)}
    for stage, (depth, outputs) in enumerate(zip(blocks, widths, strict=True), start=1):
        for number in range(depth):
            shapes |= block_shapes(f"layer{stage}.{number}", inputs, outputs, first=number == 0)
            inputs = outputs
    shapes |= norm_shapes("bn2", inputs) | {"fc.weight": (dim, inputs * side**2), "fc.bias": (dim,)}
    return shapes | norm_shapes("features", dim)


def vit_shapes(width: int, depth: int, dim: int = 512) -> Shapes:
    """The same of its `vit.py`: 12 x 12 patches of 9 x 9 pixels, MLPs four times as wide, no bias for q, k and v."""
    block: Shapes = {"norm1.weight": (width,), "norm1.bias": (width,), "attn.qkv.weight": (3 * width, width)}
    block |= {"attn.proj.weight": (width, width), "attn.proj.bias": (width,)}
    block |= {"norm2.weight": (width,), "norm2.bias": (width,)}
    block |= {"mlp.fc1.weight": (4 * width, width), "mlp.fc1.bias": (4 * width,)}
    block |= {"mlp.fc2.weight": (width, 4 * width), "mlp.fc2.bias": (width,)}
    shapes: Shapes = {"pos_embed": (1, 144, width), "mask_token": (1, 1, width)}
    shapes |= {"patch_embed.proj.weight": (width, 3, 9, 9), "patch_embed.proj.bias": (width,)}
    shapes |= {f"blocks.{number}.{part}": shape for number in range(depth) for part, shape in block.items()}
    shapes |= {"norm.weight": (width,), "norm.bias": (width,)}
    shapes |= {"feature.0.weight": (width, 144 * width)} | norm_shapes("feature.1", width)
    return shapes | {"feature.2.weight": (dim, width)} | norm_shapes("feature.3", dim)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("iresnet18", iresnet_shapes((2, 2, 2, 2))),
        ("iresnet50", iresnet_shapes((3, 4, 14, 3))),
        ("iresnet100", iresnet_shapes((3, 13, 30, 3))),
        ("vit_tiny", vit_shapes(256, 12)),
        ("vit_base", vit_shapes(512, 24)),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_all_names_and_shapes_of_a_state_dict_are_insightfaces(name: str, expected: Shapes) -> None:
    with torch.device("meta"):
        found = {part: tuple(value.shape) for part, value in build_backbone(name, 512).state_dict().items()}
    assert found == expected
    assert list(found) == list(expected)


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
    last = [module for module in model.modules() if isinstance(module, nn.BatchNorm1d)][-1]
    assert last.num_features == 96
    assert [module.out_features for module in model.modules() if isinstance(module, nn.Linear)][-1] == 96


@pytest.mark.parametrize("name", ["iresnet_tiny", "iresnet18", "mobilefacenet", "vit_tiny"])
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


@pytest.mark.parametrize("name", ["iresnet_tiny", "mobilefacenet", "vit_tiny"])
def test_features_are_fp32_under_autocast(name: str) -> None:
    model = build_backbone(name, 32)
    with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
        features = model(torch.zeros(2, 3, 112, 112))
    assert features.dtype == torch.float32


def test_unknown_backbone_gets_the_list_of_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown backbone 'resnet'.*iresnet_tiny.*vit_cvlface_base"):
        build_backbone("resnet", 512)


def test_every_backbone_can_be_configured_by_its_name() -> None:
    assert set(get_args(TrainingConfig.model_fields["backbone"].annotation)) == set(BACKBONES)


def test_cvlfaces_transformer_has_its_shape() -> None:
    with torch.device("meta"):
        model = build_backbone("vit_cvlface_base", 512)
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    assert shapes["patch_embed.proj.weight"] == (512, 3, 8, 8)
    assert shapes["pos_embed"] == (1, 196, 512)
    assert shapes["blocks.23.mlp.fc1.weight"] == (1536, 512)
    assert "mask_token" not in shapes
    assert model.blocks[0].attn.heads == 16


def test_mobilefacenets_names_and_shapes_are_insightfaces() -> None:
    """Places in the state dict that tell its layout: nested `layers`, groups, the convolution over the whole map."""
    with torch.device("meta"):
        shapes = {name: tuple(value.shape) for name, value in mobilefacenet(512).state_dict().items()}
    expected = {
        "layers.0.layers.0.weight": (128, 3, 3, 3),
        "layers.0.layers.2.weight": (128,),
        "layers.1.layers.0.weight": (128, 2, 3, 3),
        "layers.2.layers.1.layers.0.weight": (128, 1, 3, 3),
        "layers.3.layers.3.layers.2.layers.0.weight": (128, 128, 1, 1),
        "layers.4.layers.2.layers.1.running_var": (256,),
        "layers.5.layers.5.layers.0.layers.0.weight": (256, 256, 1, 1),
        "layers.6.layers.0.layers.0.weight": (512, 256, 1, 1),
        "layers.7.layers.1.layers.1.layers.2.weight": (256,),
        "conv_sep.layers.0.weight": (512, 256, 1, 1),
        "features.layers.0.layers.0.weight": (512, 1, 7, 7),
        "features.layers.2.weight": (512, 512),
        "features.layers.3.running_mean": (512,),
    }
    assert {name: shapes.get(name) for name in expected} == expected
    with torch.device("meta"):
        assert count_parameters(mobilefacenet(512)) == 2_059_520


def make_small(name: str) -> Backbone:
    """A backbone of each family that is quick on one core."""
    torch.manual_seed(0)
    if name == "vit":
        return VisionTransformer(16, patch=28, width=24, depth=8, heads=3, drop_path=0.5, masked=0.3)
    return build_backbone(name, 16)


@pytest.mark.parametrize("name", ["iresnet_tiny", "mobilefacenet", "vit"])
def test_checkpointing_changes_neither_features_nor_gradients_nor_statistics(name: str) -> None:
    plain = make_small(name).train()
    saving = copy.deepcopy(plain)
    saving.gradient_checkpointing = True
    images = torch.randn(3, 3, 112, 112)
    for _ in range(2):
        features = []
        for model in (plain, saving):
            torch.manual_seed(1)
            model.zero_grad()
            features.append(model(images))
            features[-1].square().mean().backward()
        assert torch.equal(*features)
        for (part, one), other in zip(plain.named_parameters(), saving.parameters(), strict=True):
            assert one.grad is None or torch.equal(one.grad, other.grad), part
    assert all(torch.equal(value, saving.state_dict()[part]) for part, value in plain.state_dict().items())
    norms = [module for module in saving.modules() if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)]
    assert {int(module.num_batches_tracked) for module in norms if module.num_batches_tracked is not None} == {2}


@pytest.mark.parametrize("name", ["iresnet_tiny", "mobilefacenet", "vit"])
def test_checkpointing_keeps_fewer_tensors_for_the_backward_pass(name: str) -> None:
    kept = []
    for saving in (False, True):
        model, sizes = make_small(name).train(), []
        model.gradient_checkpointing = saving
        with torch.autograd.graph.saved_tensors_hooks(lambda x, s=sizes: (s.append(x.numel()), x)[1], lambda x: x):
            model(torch.randn(2, 3, 112, 112))
        kept.append(sum(sizes))
    assert kept[1] < 0.7 * kept[0]


def take_steps(model: Backbone, network: Callable[[torch.Tensor], torch.Tensor]) -> tuple[list[torch.Tensor], int]:
    """Features and gradients of two steps, the statistics after them, and the numbers kept for backward passes."""
    torch.manual_seed(1)
    found: list[torch.Tensor] = []
    sizes: list[int] = []
    for _ in range(2):
        model.zero_grad()
        with torch.autograd.graph.saved_tensors_hooks(lambda x: (sizes.append(x.numel()), x)[1], lambda x: x):
            features = network(torch.randn(3, 3, 112, 112))
        features.square().mean().backward()
        found += [features.detach(), *(each.grad for each in model.parameters() if each.grad is not None)]
    return [*found, *model.buffers()], sum(sizes)


def compile_whole(model: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    """All that a compiler does but writing machine code, which alone rounds otherwise."""
    torch.compiler.reset()
    return torch.compile(model, backend="aot_eager", fullgraph=True)


@pytest.mark.parametrize(("name", "share"), [("iresnet_tiny", 0.7), ("vit", math.inf)])
def test_compiled_checkpointing_is_exact_and_keeps_fewer_numbers(name: str, share: float) -> None:
    """Of the small transformer a compiler keeps hardly more than the weights anyway."""
    plain = make_small(name).train()
    compiled, saving = copy.deepcopy(plain), copy.deepcopy(plain)
    saving.gradient_checkpointing = True
    expected, _ = take_steps(plain, plain)
    without, kept = take_steps(compiled, compile_whole(compiled))
    found, kept_less = take_steps(saving, compile_whole(saving))
    assert all(map(torch.equal, without, expected))
    assert all(map(torch.equal, found, expected))
    assert kept_less < share * kept


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_checkpointing_is_exact_where_the_compiler_cannot_trace_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    def forward_untraced(block: IResNetBlock, x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return forward(block, x)

    forward = IResNetBlock.forward
    monkeypatch.setattr(IResNetBlock, "forward", forward_untraced)
    plain = make_small("iresnet_tiny").train()
    saving = copy.deepcopy(plain)
    saving.gradient_checkpointing = True
    expected, _ = take_steps(plain, plain)
    torch.compiler.reset()
    found, _ = take_steps(saving, torch.compile(saving, backend="aot_eager"))
    assert all(map(torch.equal, found, expected))


def test_every_part_of_a_transformer_is_learned() -> None:
    model = make_small("vit").train()
    model(torch.randn(8, 3, 112, 112)).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name


def test_drop_path_keeps_the_mean_and_is_off_in_evaluation() -> None:
    torch.manual_seed(0)
    drop, branch = DropPath(0.25), torch.ones(4000, 1, 1)
    dropped = drop(branch)
    assert dropped.unique().tolist() == [0.0, pytest.approx(1 / 0.75)]
    assert dropped.mean().item() == pytest.approx(1, abs=0.04)
    assert torch.equal(drop.eval()(branch), branch)


def test_a_transformer_is_random_in_training_by_the_seed_alone_and_not_in_evaluation() -> None:
    model, images = make_small("vit"), torch.randn(4, 3, 112, 112)

    def features(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        with torch.no_grad():
            return copy.deepcopy(model)(images)

    assert torch.equal(features(1), features(1))
    assert not torch.equal(features(1), features(2))
    model.eval()
    assert torch.equal(features(1), features(2))


def test_masked_tokens_are_replaced_by_the_learned_one() -> None:
    model = make_small("vit")
    x, kept = torch.randn(2, 3, 24), torch.tensor([[5, 0, 2], [1, 15, 3]])
    full = model._fill_up(x, kept)
    for image in range(2):
        for token in range(16):
            place = (kept[image] == token).nonzero()
            expected = x[image, place[0, 0]] if len(place) else model.mask_token[0, 0]
            assert torch.equal(full[image, token], expected)


@pytest.mark.parametrize("prefix", ["", "module.", "net."])
def test_weights_of_others_load_strictly(tmp_path: Path, prefix: str) -> None:
    shapes = iresnet_shapes((1, 1, 1, 1), (16, 32, 64, 128), side=4, dim=32)
    there = {name: torch.randn(shape) if shape else torch.tensor(7) for name, shape in shapes.items()}
    torch.save({prefix + name: value for name, value in there.items()}, tmp_path / "backbone.pth")
    here = open_foreign_backbone("iresnet_tiny", tmp_path / "backbone.pth")
    assert here.state_dict().keys() == there.keys()
    assert all(torch.equal(value, there[name]) for name, value in here.state_dict().items())
    missing = dict(list(there.items())[1:])
    torch.save({prefix + name: value for name, value in missing.items()}, tmp_path / "backbone.pth")
    with pytest.raises(WeightsError, match=r"conv1.weight is missing"):
        open_foreign_backbone("iresnet_tiny", tmp_path / "backbone.pth")


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.full((32,), torch.nan), "not finite"),
        (torch.full((32,), torch.inf), "not finite"),
        (torch.ones(32, dtype=torch.bool), "is bool, not floating point"),
        (torch.ones(32, dtype=torch.int8), "is int8, not floating point"),
        (torch.ones(32, dtype=torch.complex64), "is complex64, not floating point"),
        (torch.ones(32, dtype=torch.int64), r"is torch.int64 where the model has torch.float32"),
        (torch.ones(32).to_sparse(), "is sparse_coo"),
        (torch.ones(32, device="meta"), "has no values"),
        (torch.ones(1).expand(32), "is 128 bytes of which the file holds 4"),
    ],
)
def test_weights_with_tensors_that_are_no_weights_are_refused_by_name(
    tmp_path: Path, tensor: torch.Tensor, words: str
) -> None:
    torch.save(build_backbone("iresnet_tiny", 32).state_dict() | {"features.bias": tensor}, tmp_path / "backbone.pth")
    with pytest.raises(WeightsError, match=f"backbone.pth .*features.bias {words}|features.bias .*{words}"):
        open_foreign_backbone("iresnet_tiny", tmp_path / "backbone.pth")


def test_a_file_of_weights_of_a_few_kilobytes_does_not_become_gigabytes(tmp_path: Path) -> None:
    bomb, before = tmp_path / "backbone.pth", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    torch.save({"features.bias": torch.ones(1).expand(40_000, 100_000)}, bomb)
    with pytest.raises(WeightsError, match=r"features\.bias is 16,000,000,000 bytes of which the file holds 4"):
        read_weights(bomb)
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("archive/data/0", "w") as file:
        for _ in range(1000):
            file.write(bytes(2**20))
    with pytest.raises(WeightsError, match=r"cannot be read as weights: it inflates from .* to 1,048,576,000 bytes"):
        read_weights(bomb)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18


def test_weights_with_numbers_for_names_are_refused(tmp_path: Path) -> None:
    torch.save({1: torch.zeros(3), "a": torch.zeros(3)}, tmp_path / "backbone.pth")
    with pytest.raises(WeightsError, match="whose names are not text: 1"):
        open_foreign_backbone("iresnet_tiny", tmp_path / "backbone.pth")
    os.mkfifo(tmp_path / "fifo.pth")
    with pytest.raises(WeightsError, match="is not a file of weights"):
        open_foreign_backbone("iresnet_tiny", tmp_path / "fifo.pth")


def test_weights_that_do_not_fit_are_refused_by_name(tmp_path: Path) -> None:
    weights = build_backbone("iresnet_tiny", 32).state_dict()
    weights |= {"extra": torch.zeros(1), "features.bias": torch.zeros(16)}
    del weights["prelu.weight"]
    torch.save(weights, tmp_path / "backbone.pth")
    with pytest.raises(
        WeightsError, match=r"prelu.weight is missing; features.bias is \[16\] where the model has \[32\]; .* no extra"
    ):
        open_foreign_backbone("iresnet_tiny", tmp_path / "backbone.pth")
