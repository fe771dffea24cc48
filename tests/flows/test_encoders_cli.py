from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from gif_core.synthetic import draw_jpeg

Gif = Callable[..., str]


@pytest.fixture
def gif(run_gif: Gif) -> Gif:
    return run_gif


@pytest.fixture
def images(tmp_path: Path) -> list[str]:
    paths = [tmp_path / f"{number}.jpg" for number in range(3)]
    for path, person in zip(paths, (1, 1, 2), strict=True):
        path.write_bytes(draw_jpeg(0, person, int(path.stem)))
    return [str(path) for path in paths]


def test_images_are_encoded_and_compared(gif: Gif, images: list[str]) -> None:
    printed = gif("encode", *images)
    assert "first of 128 numbers" in printed
    assert printed.count("1.00") == 3, "all identities is like themselves"


def test_vectors_are_saved(gif: Gif, images: list[str], tmp_path: Path) -> None:
    assert "3 vectors of 128 numbers" in gif("encode", *images, "--out", str(tmp_path / "v.parquet"))
    table = pq.read_table(tmp_path / "v.parquet")
    assert table["image"].to_pylist() == images
    gif("encode", *images, "--out", str(tmp_path / "v.npy"))
    vectors = np.load(tmp_path / "v.npy")
    assert np.array_equal(vectors, table["vector"].combine_chunks().flatten().to_numpy().reshape(3, 128))
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_clip_is_asked_in_words(gif: Gif, images: list[str]) -> None:
    printed = gif("encode", *images, "--ask", "a face with glasses", "--ask", "a face with no glasses")
    assert "a face with no glasses" in printed
    assert printed.count("%") == 6


def test_other_encoders_are_tried_by_name(gif: Gif, images: list[str]) -> None:
    timm = ("--encoder", "timm", "--model", "resnet18", "--pretrained", "random")
    assert "first of 512 numbers" in gif("encode", *images, *timm)
    assert "--ask needs an encoder with a text tower" in gif("encode", *images, *timm, "--ask", "a face", code=2)


def test_mistakes_are_told(gif: Gif, images: list[str], tmp_path: Path) -> None:
    (tmp_path / "bad.jpg").write_bytes(b"no image")
    assert "bad.jpg: not a JPEG" in gif("encode", images[0], str(tmp_path / "bad.jpg"), code=2)
    assert "must end with .npy or .parquet" in gif("encode", images[0], "--out", "v.txt", code=2)
    assert "neither a file nor a tag" in gif("encode", images[0], "--pretrained", "nowhere.pt", code=2)


def test_tiny_clip_is_trained_and_tested_by_a_command(gif: Gif, tmp_path: Path) -> None:
    out = tmp_path / "tiny.safetensors"
    assert str(out) in gif("tiny-clip", "train", "--identities", "130", "--epochs", "1", "--out", str(out))
    assert load_file(out)["token_embedding.weight"].dtype == np.float16
    printed = gif("tiny-clip", "test", "--pretrained", str(out), "--identities", "50")
    assert all(name in printed for name in ("hair_colour", "beard", "glasses", "skin_tone", "always the commonest"))
    assert "verification of 50 of these identities by the cosine of two images: " in printed
