"""Trains `tiny-clip`, a small CLIP on synthetic faces and captions of their attributes.

Both towers and the contrastive loss are open_clip's. The model learns the attributes (hair, skin, beard, glasses and
finer features), so that similar faces get similar vectors. At the end its vectors get their share of the scene, as
CLIP's have it, so that they know what a face looks like and not well whose it is.
"""

# Shapes: N images in total, B images of a batch, H height, W width, C channels, Q questions, K candidate sentences,
# T text tokens, D dimensions.

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn

from gif_core.embedding.encoders.open_clip_encoder import OpenClipEncoder, open_clip, quiet
from gif_core.embedding.encoders.scene import lengthen_scene
from gif_core.synthetic import TEMPLATES, answers, caption, describe, draw_face, identity_attributes, prompts, questions

MARGIN: Final = 4
"""Pixels around the network's input, so that crops can be shifted."""
TRAINING_SEED: Final = 20_253
TEST_SEED: Final = 20_254
"""Seeds of two disjoint populations of synthetic identities; neither is the default of a run."""
LARGEST_SCALE: Final = 100.0
UNKNOWN: Final = -1
"""The answer to a question that does not apply; it is ignored in the loss."""


@dataclass(frozen=True)
class Recipe:
    """How the shipped checkpoint was trained."""

    identities: int = 16_000
    samples: int = 2
    epochs: int = 12
    batch_size: int = 256
    learning_rate: float = 2e-3
    weight_decay: float = 0.1
    warmup_steps: int = 100
    scene_pairs: int = 2000
    """Identities of which two images show what a scene changes."""
    scene_directions: int = 16
    scene_gain: float = 32.0
    seed: int = 0

    @property
    def images(self) -> int:
        """Number of images drawn."""
        return self.identities * self.samples

    @property
    def steps(self) -> int:
        """Number of training steps; images that do not fill a batch are left out of their epoch."""
        return self.images // self.batch_size * self.epochs


@dataclass(frozen=True)
class TinyClipStep:
    """Progress of the training."""

    step: int
    total: int
    loss: float


@dataclass(frozen=True)
class ZeroShot:
    """How often the prompt closest to an image names its attribute."""

    accuracy: float
    commonest: float
    """Accuracy of always answering with the most common word."""
    recall: float
    """Mean accuracy per word, so that rare words count as much as common ones."""
    chance: float
    """Recall of guessing, and of always answering with one word."""
    identities: int


def new_model(seed: int = 0) -> Any:
    """Build an untrained tiny-clip."""
    with torch.random.fork_rng(devices=[]), quiet():
        torch.default_generator.manual_seed(seed)
        return open_clip.create_model("tiny-clip", load_weights=False)


def save_model(model: nn.Module, path: Path) -> None:
    """Write the checkpoint atomically, in half precision."""
    partial = path.with_name(f".{path.name}")
    halves = {name: each.half() if each.is_floating_point() else each for name, each in model.state_dict().items()}
    weights = {name: each.cpu().contiguous() for name, each in halves.items()}
    save_file(weights, partial)
    partial.replace(path)


def draw_examples(recipe: Recipe, model: Any) -> Iterator[NDArray[np.uint8]]:
    """Yield the images of each identity, [samples, H, W, C], slightly larger than the model's input."""
    size = int(np.max(model.visual.image_size)) + MARGIN
    for identity in range(recipe.identities):
        faces = [draw_face(TRAINING_SEED, identity, sample) for sample in range(recipe.samples)]
        yield np.stack([cv2.resize(face, (size, size), interpolation=cv2.INTER_AREA) for face in faces])


def train_tiny_clip(
    model: nn.Module, images_NHWC: NDArray[np.uint8], recipe: Recipe, device: torch.device
) -> Iterator[TinyClipStep]:
    """Train both towers with the contrastive loss, one step per iteration."""
    if not recipe.steps:
        fewest = -(-recipe.batch_size // recipe.samples)
        raise ValueError(
            f"{recipe.identities} identities do not fill a batch of {recipe.batch_size}: use at least {fewest}"
        )
    model.to(device).train()
    identities_N = np.repeat(np.arange(recipe.identities), recipe.samples)
    optimizer = _optimizer(model, recipe)
    step = 0
    answers_NQ = np.array([_answers(identity) for identity in range(recipe.identities)])[identities_N]
    for epoch in range(recipe.epochs):
        rng = np.random.default_rng([recipe.seed, epoch])
        order = rng.permutation(len(images_NHWC))
        for start in range(0, len(order) - recipe.batch_size + 1, recipe.batch_size):
            rows = order[start : start + recipe.batch_size]
            pixels = _augment(model, images_NHWC[rows], rng).to(device)
            texts_BT = _tokens(model, _captions(identities_N[rows], rng)).to(device)
            choices_KT = _tokens(model, _choices(rng)).to(device)
            _set_learning_rate(optimizer, recipe, step)
            loss = _contrastive_step(
                model, optimizer, pixels, texts_BT, choices_KT, torch.from_numpy(answers_NQ[rows]).to(device)
            )
            step += 1
            yield TinyClipStep(step, recipe.steps, loss)
    add_scene(model, images_NHWC, recipe)


@torch.inference_mode()
def add_scene(model: Any, images_NHWC: NDArray[np.uint8], recipe: Recipe) -> None:
    """Let vectors keep how a picture was taken, as CLIP's do (`scene`), measured on images of the training."""
    model.eval()
    if recipe.samples < 2:
        return
    device = next(model.parameters()).device
    rows = np.arange(min(recipe.scene_pairs, recipe.identities)) * recipe.samples
    halves = [_features(model, images_NHWC[rows + sample], device) for sample in (0, 1)]
    words_KD = model.encode_text(_tokens(model, _every_sentence()).to(device), normalize=True)
    lengthen_scene(model, torch.stack(halves), words_KD.double().cpu(), recipe.scene_directions, recipe.scene_gain)


def _features(model: Any, images_NHWC: NDArray[np.uint8], device: torch.device) -> Tensor:
    """Sums of the features of the middle of an image and of its mirror image: what is left is no turn of the head."""
    size, start = images_NHWC.shape[1] - MARGIN, MARGIN // 2
    crops = images_NHWC[:, start : start + size, start : start + size]
    parts = [part for each in (crops, crops[:, :, ::-1]) for part in np.array_split(each, -(-len(crops) // 256))]
    encoded = [model.encode_image(_normalise(model, part).to(device), normalize=True).double().cpu() for part in parts]
    return torch.cat(encoded).view(2, len(crops), -1).sum(dim=0)


def _every_sentence() -> list[str]:
    return [template.format(phrase) for phrases in questions() for phrase in phrases for template in TEMPLATES]


def zero_shot(encoder: OpenClipEncoder, identities: int, *, batch_size: int = 256) -> dict[str, ZeroShot]:
    """Measure zero-shot accuracy by attribute on identities outside the training, one image each."""
    words = [describe(identity_attributes(TEST_SEED, identity)) for identity in range(identities)]
    parts = range(0, identities, batch_size)
    faces = (np.stack([draw_face(TEST_SEED, p, 0) for p in range(s, min(s + batch_size, identities))]) for s in parts)
    features_ND = torch.cat([encoder.encode(images).cpu() for images in faces])
    return {name: _ask(encoder, features_ND, words, name) for name in ("hair_colour", "beard", "glasses", "skin_tone")}


def _ask(encoder: OpenClipEncoder, features_ND: Tensor, words: list[dict[str, str]], attribute: str) -> ZeroShot:
    """Measure one attribute; hair colour is only measured on identities with hair."""
    rows = [row for row, word in enumerate(words) if attribute != "hair_colour" or word["hair_length"] != "bald"]
    choices = prompts(attribute)
    prompts_KD = torch.stack([encoder.encode_text(sentences).mean(0).cpu() for sentences in choices.values()])
    nearest = (features_ND[rows] @ nn.functional.normalize(prompts_KD, dim=1).T).argmax(1).tolist()
    truth = [list(choices).index(words[row][attribute]) for row in rows]
    correct, counts = np.equal(nearest, truth), np.bincount(truth, minlength=len(choices))
    recall = np.bincount(truth, correct, len(choices)) / np.maximum(counts, 1)
    return ZeroShot(
        accuracy=float(correct.mean()),
        commonest=float(counts.max() / len(truth)),
        recall=float(recall.mean()),
        chance=1 / len(choices),
        identities=len(rows),
    )


def _contrastive_step(
    model: Any,
    optimizer: torch.optim.Optimizer,
    images: Tensor,
    texts_BT: Tensor,
    choices_KT: Tensor,
    answers_BQ: Tensor,
) -> float:
    """Take one step: match an image to its caption in the batch, and to the true sentence of each question.

    Without these hard negatives, colours, which separate most identities, dominate features such as beards.
    """
    image_BD, text_BD, scale = model(images, texts_BT)
    choices_KD = model.encode_text(choices_KT, normalize=True)
    loss = open_clip.ClipLoss()(image_BD, text_BD, scale) + _choice_loss(scale * image_BD @ choices_KD.T, answers_BQ)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    with torch.no_grad():
        model.logit_scale.clamp_(0, math.log(LARGEST_SCALE))
    return float(loss.item())


def _choice_loss(logits_BK: Tensor, answers_BQ: Tensor) -> Tensor:
    """Return the cross-entropy over the sentences of each question, summed over the questions."""
    parts = torch.split(logits_BK, [len(phrases) for phrases in questions()], dim=1)
    losses = [
        nn.functional.cross_entropy(part, answers, ignore_index=UNKNOWN)
        for part, answers in zip(parts, answers_BQ.T, strict=True)
    ]
    return torch.stack(losses).sum()


def _optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Return AdamW without weight decay on biases, norms and the logit scale."""
    groups: Mapping[bool, list[nn.Parameter]] = {True: [], False: []}
    for parameter in model.parameters():
        groups[parameter.ndim >= 2].append(parameter)
    return torch.optim.AdamW(
        [
            {"params": groups[True], "weight_decay": recipe.weight_decay},
            {"params": groups[False], "weight_decay": 0.0},
        ],
        lr=recipe.learning_rate,
        betas=(0.9, 0.98),
    )


def _set_learning_rate(optimizer: torch.optim.Optimizer, recipe: Recipe, step: int) -> None:
    """Set the learning rate: linear warm-up, then cosine decay."""
    warmup = min(1.0, (step + 1) / recipe.warmup_steps)
    decay = 0.5 * (1 + math.cos(math.pi * step / recipe.steps))
    for group in optimizer.param_groups:
        group["lr"] = recipe.learning_rate * min(warmup, decay)


def _augment(model: Any, images_BHWC: NDArray[np.uint8], rng: np.random.Generator) -> Tensor:
    """Crop at a random shift, mirror at random and normalise."""
    size = images_BHWC.shape[1] - MARGIN
    top, left = rng.integers(0, MARGIN + 1, 2)
    crop = images_BHWC[:, top : top + size, left : left + size].copy()
    mirrored = rng.random(len(crop)) < 0.5
    crop[mirrored] = crop[mirrored, :, ::-1]
    return _normalise(model, crop)


def _normalise(model: Any, images_BHWC: NDArray[np.uint8]) -> Tensor:
    pixels = torch.from_numpy(np.ascontiguousarray(images_BHWC)).permute(0, 3, 1, 2).float()
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (model.visual.image_mean, model.visual.image_std))
    return (pixels / 255 - mean) / std


def _captions(identities: NDArray[np.int64], rng: np.random.Generator) -> list[str]:
    return [caption(identity_attributes(TRAINING_SEED, identity), rng) for identity in identities.tolist()]


def _choices(rng: np.random.Generator) -> list[str]:
    """Return every phrase of every question as a sentence."""
    return [str(rng.choice(TEMPLATES)).format(phrase) for phrases in questions() for phrase in phrases]


def _answers(identity: int) -> list[int]:
    given = answers(identity_attributes(TRAINING_SEED, identity))
    return [UNKNOWN if answer is None else answer for answer in given]


def _tokens(model: Any, texts: list[str]) -> Tensor:
    tokens: Tensor = open_clip.tokenize(texts, context_length=model.context_length)
    return tokens
