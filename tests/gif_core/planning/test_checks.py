"""What would fail hours later is said before the first stage."""

import shutil
from pathlib import Path

import pytest
import torch

from gif_core.artifacts import ArtifactMissingError, ArtifactStore, move_tag
from gif_core.backbones import build_backbone
from gif_core.embedding.encoders import check_encoder
from gif_core.ingestion import NotEnoughDataError, check_enough
from gif_core.planning import check_before_run, leave_out_missing_sets
from gif_core.planning.checks import CannotRunError
from gif_core.planning.evaluation_sets import sets_without_scores
from schemas.embedding import EmbeddingConfig
from schemas.errors import GifError
from schemas.loading import load_config
from schemas.stages import STAGES
from tests.flows.stored import store_everything


def check(tmp_path: Path, *overrides: str, stages: tuple[str, ...] = STAGES) -> list[str]:
    config = load_config("demo", [f"store={tmp_path}/store", *overrides])
    return check_before_run(ArtifactStore(config.store), config, stages)  # type: ignore[arg-type]


def photographs(folder: Path, identities: int, each: int) -> Path:
    for person in range(identities):
        (folder / f"p{person}").mkdir(parents=True)
        for image in range(each):
            (folder / f"p{person}/{image}.jpg").write_bytes(b"x")
    return folder


def test_the_demo_can_run(tmp_path: Path) -> None:
    assert check(tmp_path) == []


def test_everything_that_is_missing_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(CannotRunError) as caught:
        check(
            tmp_path,
            "ingestion.sources=[{kind: folder, path: no/photos}, {kind: recordio, path: no.rec}]",
            "evaluation.sets=[{kind: bin, path: no/lfw.bin}, {kind: ijb, path: no/ijb, name: IJB-C}]",
            "embedding.model=tinyclip",
            "embedding.pretrained=weights/no.pth",
        )
    for words in ("no/photos", "no.rec", "no/lfw.bin, the path of the set lfw", "no/ijb", "did you mean 'tiny-clip'?"):
        assert words in str(caught.value), words
    assert "Error" not in str(caught.value)


def test_a_missing_file_of_weights_or_landmarks_is_said(tmp_path: Path) -> None:
    with pytest.raises(CannotRunError, match=r"weights/no\.pth': there is no such file of weights"):
        check(tmp_path, "embedding.pretrained=weights/no.pth")
    folder = photographs(tmp_path / "photos", 3, 2)
    with pytest.raises(CannotRunError, match=r"there is no landmarks file no\.txt"):
        check(tmp_path, f"ingestion.sources=[{{kind: folder, path: {folder}, landmarks: no.txt}}]")


@pytest.mark.parametrize("setting", ["embedding.pretrained", "training.start_from", "training.teacher"])
def test_weights_that_are_no_numbers_or_of_another_network_are_refused_before_work(
    tmp_path: Path, setting: str
) -> None:
    file, backbone = tmp_path / "backbone.pth", "embedding.encoder=backbone"
    settings = [backbone, "embedding.model=iresnet_tiny", "training.backbone=iresnet_tiny", f"{setting}={file}"]
    settings += [] if setting == "embedding.pretrained" else ["embedding.pretrained=random"]
    weights = build_backbone("iresnet_tiny", 32).state_dict()
    torch.save(weights, file)
    assert check(tmp_path, *settings) == []
    torch.save(weights | {"features.bias": torch.full((32,), torch.nan)}, file)
    with pytest.raises(CannotRunError, match=f"{setting}: .*features.bias has values that are not finite"):
        check(tmp_path, *settings)
    torch.save(build_backbone("iresnet18", 32).state_dict(), file)
    with pytest.raises(CannotRunError, match=f"{setting}: .*does not fit the model: conv1.weight is"):
        check(tmp_path, *settings)


@pytest.mark.parametrize("setting", ["start_from", "teacher"])
def test_weights_with_features_of_other_dimensions_than_the_run_has_are_refused(tmp_path: Path, setting: str) -> None:
    file = tmp_path / "backbone.pth"
    torch.save(build_backbone("iresnet_tiny", 32).state_dict(), file)
    settings = ["training.backbone=iresnet_tiny", f"training.{setting}={file}"]
    assert check(tmp_path, *settings, "separation.dimension=32") == []
    with pytest.raises(CannotRunError, match=f"training.{setting}: .* gives features of 32 dimensions, not of 64"):
        check(tmp_path, *settings, "separation.dimension=64")


def test_weights_of_stages_that_are_stored_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "backbone.pth"
    torch.save(build_backbone("iresnet_tiny", 32).state_dict(), file)
    settings = ["training.backbone=iresnet_tiny", f"training.teacher={file}"]
    store_everything(load_config("demo", [f"store={tmp_path}/store", *settings]))
    monkeypatch.setattr("gif_core.backbones.weights.read_weights", pytest.fail)
    assert check(tmp_path, *settings) == []


def test_only_what_the_selected_stages_need_is_checked(tmp_path: Path) -> None:
    folder = photographs(tmp_path / "photos", 3, 2)
    sources, sets = f"ingestion.sources=[{{kind: folder, path: {folder}}}]", "evaluation.sets=[{kind: held_out}]"
    store = store_everything(load_config("demo", [f"store={tmp_path}/store", sources, sets]))
    move_tag(store, "latest", store.refs("ingestion")[0])
    shutil.rmtree(folder)
    assert check(tmp_path, sources, sets, stages=("training",)) == []
    with pytest.raises(CannotRunError, match="there is no folder"):
        check(tmp_path, sources, sets)


def test_a_stage_alone_whose_inputs_nobody_has_made_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ArtifactMissingError, match=r"needs ingestion, separation, tokenization, which .* --from ingest"
    ):
        check(tmp_path, stages=("training",))


def test_one_identity_is_refused_before_work(tmp_path: Path) -> None:
    folder = photographs(tmp_path / "photos", 1, 30)
    source = f"ingestion.sources=[{{kind: folder, path: {folder}}}]"
    with pytest.raises(NotEnoughDataError, match="the faces are of 1 identity: training needs at least two"):
        check(tmp_path, source, "ingestion.held_out=0")


def test_an_epoch_of_one_step_is_a_warning_with_a_proposal() -> None:
    config = load_config("demo", ["training.batch_size=512", "training.warmup_steps=0"])
    (warning,) = check_enough(config, 30, 628)
    assert "an epoch of 628 images in batches of 512 has 1 step" in warning
    assert "for instance to 16 (39 steps an epoch)" in warning
    assert check_enough(load_config("demo", ["training.batch_size=32"]), 30, 628) == []


def test_a_warm_up_that_is_longer_than_the_training_is_refused_without_a_class_name() -> None:
    config = load_config("demo", ["training.batch_size=512", "training.warmup_steps=100", "training.epochs=12"])
    with pytest.raises(NotEnoughDataError, match=r"training\.warmup_steps = 100, but the whole training has 12 steps"):
        check_enough(config, 30, 628)


def test_a_smaller_batch_is_proposed_only_when_it_is_smaller_and_gives_enough_steps() -> None:
    settings = ["training.batch_size=512", "training.epochs=12"]
    with pytest.raises(NotEnoughDataError, match=r"or lower training\.batch_size, for instance to 16 \(39 steps"):
        check_enough(load_config("demo", [*settings, "training.warmup_steps=100"]), 30, 628)
    for others in (["training.warmup_steps=10000"], ["training.warmup_steps=3000", "training.batch_size=8"]):
        with pytest.raises(NotEnoughDataError, match=r"lower it$"):
            check_enough(load_config("demo", [*settings, *others]), 30, 628)


@pytest.mark.parametrize(
    ("model", "hint"), [("ViT-B32", "ViT-B-32"), ("tiny_clip", "tiny-clip"), ("TinyClip", "tiny-clip")]
)
def test_a_misspelt_encoder_gets_the_nearest_name(model: str, hint: str) -> None:
    with pytest.raises(GifError, match=f"open_clip has no such model; did you mean .*{hint!r}"):
        check_encoder(EmbeddingConfig(model=model, pretrained="random"))


def test_a_misspelt_model_of_timm_and_misspelt_weights_get_the_nearest_names() -> None:
    with pytest.raises(GifError, match="timm has no such model; did you mean 'vit_small_patch14_dinov2'"):
        check_encoder(EmbeddingConfig(encoder="timm", model="vit_small_patch14_dino2", pretrained="random"))
    with pytest.raises(GifError, match=r"no such weights of ViT-B-32, and it is no file; did you mean 'laion2b"):
        check_encoder(EmbeddingConfig(model="ViT-B-32", pretrained="laion2b"))
    check_encoder(EmbeddingConfig(model="ViT-B-32-quickgelu", pretrained="openai"))


def test_weights_that_tiny_clip_does_not_have_are_refused_with_those_it_has() -> None:
    with pytest.raises(GifError, match="tiny-clip has the weights synthetic and random"):
        check_encoder(EmbeddingConfig(model="tiny-clip", pretrained="openai"))


def test_a_run_that_can_score_nothing_is_refused_with_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(CannotRunError, match=r"score nothing: no identity is held out.*Set ingestion.held_out"):
        check(tmp_path, "ingestion.held_out=0", "evaluation.sets=[{kind: held_out}]")
    config = load_config("ms1mv2", [f"data={tmp_path}/data"])
    assert leave_out_missing_sets(config) is config
    with pytest.raises(
        CannotRunError, match=rf"none of its sets is there: LFW \({tmp_path}/data/lfw.bin\).*\$GIF_DATA"
    ):
        check_before_run(ArtifactStore(str(tmp_path)), config, ("evaluation",))


def test_sets_of_a_preset_that_are_not_there_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lfw", "calfw"):
        (tmp_path / f"{name}.bin").write_bytes(b"x")
    monkeypatch.setenv("GIF_DATA", str(tmp_path))
    config = leave_out_missing_sets(load_config("paper/ms1mv2-r100"))
    assert [each.title for each in config.evaluation.sets] == ["LFW", "CALFW"]
    assert list(sets_without_scores(config)) == []
    assert load_config(config) == config, "it stays so in the flow"
    needed = load_config("ms1mv2", ["evaluation.sets=[{kind: bin, path: '{data}/lfw.bin'}, {kind: bin, path: no.bin}]"])
    assert leave_out_missing_sets(needed) is needed
    with pytest.raises(CannotRunError, match=r"there is no file or folder no\.bin"):
        check_before_run(ArtifactStore(str(tmp_path)), needed, ("evaluation",))
