import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from gif_core.embedding.encoders import OpenClipEncoder, Recipe, draw_examples
from gif_core.embedding.encoders.tiny_clip import add_scene
from schemas.embedding import EmbeddingConfig


@pytest.mark.usefixtures("one_thread")
def test_a_lengthened_scene_changes_cosines_of_images_and_no_answer_to_a_prompt() -> None:
    recipe = Recipe(identities=60, scene_directions=4, scene_gain=5)
    model = OpenClipEncoder(EmbeddingConfig(model="tiny-clip", pretrained="synthetic"), torch.device("cpu")).model
    images = np.concatenate(list(draw_examples(recipe, model)))
    pixels = torch.from_numpy(images[:12, 2:-2, 2:-2]).permute(0, 3, 1, 2) / 255
    texts = torch.arange(1, 6)[:, None].repeat(1, model.context_length)

    def measure() -> tuple[torch.Tensor, torch.Tensor]:
        with torch.inference_mode():
            features, words = model.encode_image(pixels), model.encode_text(texts)
        return features @ words.T, normalize(features, dim=1) @ normalize(features, dim=1).T

    products, cosines = measure()
    add_scene(model, images, recipe)
    after, others = measure()
    torch.testing.assert_close(after, products, rtol=1e-3, atol=1e-3)
    assert (others - cosines).abs().max() > 0.05
