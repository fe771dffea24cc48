"""Data to train heads on: vectors drawn from a formula, drawn faces, and photographs in a folder.

A world has images (or vectors), labels, and the features of an encoder that knows the identities more or less well. A
`Split` of it has identities to train on, with their code vectors and codes, and others to verify.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from head_variants import ROW_OPTIMIZERS, build_variant, retokenize
from numpy.typing import NDArray
from torch import Tensor, nn

from gif_core.backbones.factory import BACKBONES
from gif_core.backbones.iresnet import iresnet_tiny
from gif_core.embedding.encoders import build_encoder
from gif_core.heads import Head, build_head
from gif_core.images import normalize_pixels
from gif_core.runtime import ProcessGroup
from gif_core.separation import separated
from gif_core.synthetic import draw_face
from gif_core.tokenization import align_tokens, code_shape, sum_by_prefix, tokenize
from gif_core.training.data.loader import Batch
from gif_core.training.data.sampler import plan_batches
from gif_core.training.schedules import learning_rate, row_learning_rate
from gif_core.training.step import Stepper
from gif_core.training.trainer import build_optimizer, build_state, common_parameters
from schemas.embedding import EmbeddingConfig
from schemas.separation import SeparationConfig
from schemas.tokenization import TokenizationConfig
from schemas.training import TrainingConfig

CPU = ProcessGroup(torch.device("cpu"))
SIDE = 112
DRAWN = 7
"""Seed of drawn faces; tiny-clip and the demo know others."""
TEACHER = 1000
"""Seed of the network whose features serve as an encoder."""


@dataclass(frozen=True)
class Split:
    """Images to train on with labels from 0, their code vectors and codes, and images of other identities."""

    train: NDArray[np.int64]
    labels: NDArray[np.int64]
    vectors: NDArray[np.float32]
    codes: NDArray[np.int32]
    test: NDArray[np.int64]
    test_labels: NDArray[np.int64]


class World(Protocol):
    """What a head is trained on."""

    labels: NDArray[np.int64]
    encoded: NDArray[np.float32]
    dimension: int
    """Of the code vectors."""

    def train(self, split: Split, config: TrainingConfig, seed: int, variant: str = "") -> Tensor:
        """Train with a head, or a variant of it (`head_variants`); the features of the test images."""


def split_world(world: World, held_out: int, seed: int, cache: Path | None = None) -> Split:
    """Hold so many identities out, separate the mean vectors of the others (Eq. 3 to 6) and tokenize them (Alg. 1).

    Code vectors and codes are computed once and kept in the file `cache`.
    """
    train, test = hold_out(world.labels, held_out, seed)
    _, labels = np.unique(world.labels[train], return_inverse=True)
    if cache is None or not cache.exists():
        vectors = code_vectors(world, train, labels, seed)
        codes = make_codes(vectors, seed)
        if cache:
            part = part_of(cache)
            np.savez(part, vectors=vectors, codes=codes)
            part.rename(cache)
    else:
        stored = np.load(cache)
        vectors, codes = stored["vectors"], stored["codes"]
    return Split(train, labels, vectors, codes, test, world.labels[test])


def hold_out(labels: NDArray[np.int64], count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Images of the identities to train on, and of those held out."""
    aside = np.random.default_rng([seed, 77]).permutation(np.unique(labels))[:count]
    is_aside = np.isin(labels, aside)
    return np.flatnonzero(~is_aside), np.flatnonzero(is_aside)


def code_vectors(world: World, train: NDArray[np.int64], labels: NDArray[np.int64], seed: int) -> NDArray[np.float32]:
    """H of these images' identities."""
    means = mean_vectors(world, train, labels)
    config = SeparationConfig(batch_size=min(2048, len(means)), epochs=30 if len(means) < 20_000 else 3)
    vectors, _ = separated(project(means, world.dimension), config, seed=seed)
    return vectors.numpy()


def mean_vectors(world: World, train: NDArray[np.int64], labels: NDArray[np.int64]) -> Tensor:
    """The mean encoder feature of every identity (Eq. 3)."""
    unit = F.normalize(torch.from_numpy(world.encoded[train]), dim=1)
    sums = torch.zeros(int(labels.max()) + 1, unit.shape[1]).index_add_(0, torch.from_numpy(labels), unit)
    return F.normalize(sums, dim=1)


def project(vectors: Tensor, dimension: int) -> Tensor:
    """Onto the leading directions, where the network has fewer dimensions than the encoder."""
    if vectors.shape[1] <= dimension:
        return vectors
    _, _, directions = torch.pca_lowrank(vectors, dimension, niter=4)
    return F.normalize((vectors - vectors.mean(dim=0)) @ directions, dim=1)


def make_codes(vectors: NDArray[np.float32], seed: int) -> NDArray[np.int32]:
    """Codes as the pipeline makes them."""
    settings = TokenizationConfig()
    shape = code_shape(len(vectors), settings)
    *_, step = tokenize(vectors, shape, iterations=settings.iterations, seed=seed)
    assert step.codes_NL is not None
    *_, aligned = align_tokens(vectors, step.codes_NL, sum_by_prefix(vectors, step.codes_NL, shape), shape, seed=seed)
    assert aligned.codes_NL is not None
    return np.asarray(aligned.codes_NL, np.int32)


class FaceWorld:
    """Images of faces, an encoder and the project's smallest network."""

    dimension = 128

    def __init__(self, images: NDArray[np.uint8], labels: NDArray[np.int64], encoded: NDArray[np.float32]) -> None:
        """Images of any size."""
        self.images, self.labels, self.encoded = images, labels, encoded

    def train(self, split: Split, config: TrainingConfig, seed: int, variant: str = "") -> Tensor:
        """Train with the project's own steps on images in memory; features of images and their mirror images, added."""
        if variant:
            raise ValueError(f"variants of heads are for the world of vectors: {variant}")
        BACKBONES["iresnet_tiny"] = partial(iresnet_tiny, image_size=self.images.shape[1])
        state = build_state(split.codes, split.vectors, config, seed=seed, group=CPU)
        steps = config.epochs * (len(split.train) // config.batch_size)
        stepper = Stepper(state, config, CPU, seed=seed, steps=steps)
        for batch in self._batches(split, config, seed):
            stepper.take(batch)
        state.model.eval()
        parts = np.array_split(split.test, max(1, len(split.test) // 256))
        return torch.cat([_embed(state.model, self.images[part]) for part in parts])

    def _batches(self, split: Split, config: TrainingConfig, seed: int) -> Iterator[Batch]:
        for plan in plan_batches(len(split.train), config, seed=seed):
            images = self.images[split.train[plan.indices]]
            images[plan.flips] = images[plan.flips, :, ::-1]
            yield Batch(plan.epoch, torch.from_numpy(images), torch.from_numpy(split.labels[plan.indices]))


@torch.inference_mode()
def _embed(model: nn.Module, images: NDArray[np.uint8]) -> Tensor:
    both = [
        normalize_pixels(torch.from_numpy(np.ascontiguousarray(each)), CPU.device)
        for each in (images, images[:, :, ::-1])
    ]
    return model(both[0]) + model(both[1])


def read_folder(folder: Path, cache: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """All images of a folder with one folder per identity, decoded once."""
    paths = sorted(path for path in folder.glob("*/*") if path.is_file())
    names = sorted({path.parent.name for path in paths})
    labels = np.array([names.index(path.parent.name) for path in paths])
    if not cache.exists():
        images = [cv2.imread(str(path), cv2.IMREAD_COLOR_RGB) for path in paths]
        _save(cache, np.stack([cv2.resize(image, (SIDE, SIDE), interpolation=cv2.INTER_AREA) for image in images]))
    return np.load(cache, mmap_mode="r"), labels


def draw_faces(people: int, each: int, cache: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Synthetic faces, drawn once."""
    labels = np.repeat(np.arange(people), each)
    if not cache.exists():
        part = part_of(cache)
        images = np.lib.format.open_memmap(part, "w+", np.uint8, (people * each, SIDE, SIDE, 3))
        for number, label in enumerate(labels):
            images[number] = draw_face(DRAWN, int(label), number % each)
        images.flush()
        part.rename(cache)
    return np.load(cache, mmap_mode="r"), labels


def shrink(images: NDArray[np.uint8], side: int, cache: Path) -> NDArray[np.uint8]:
    """Images with fewer pixels for the network, which costs as much less; the encoder sees all of them."""
    if side == images.shape[1]:
        return images
    if not cache.exists():
        _save(cache, np.stack([cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA) for image in images]))
    return np.load(cache, mmap_mode="r")


def encode(images: NDArray[np.uint8], config: EmbeddingConfig, cache: Path) -> NDArray[np.float32]:
    """Features of an encoder, computed once."""
    if not cache.exists():
        encoder = build_encoder(config, CPU.device)
        parts = [encoder.encode(np.array(images[start : start + 256])) for start in range(0, len(images), 256)]
        _save(cache, torch.cat(parts).float().numpy())
    return np.load(cache)


def encode_by_own_network(
    images: NDArray[np.uint8], labels: NDArray[np.int64], train: NDArray[np.int64], config: TrainingConfig, cache: Path
) -> NDArray[np.float32]:
    """Features of a face network that is trained on the identities to train on: an encoder that knows faces."""
    if not cache.exists():
        _, own = np.unique(labels[train], return_inverse=True)
        people = int(own.max()) + 1
        vectors, codes = np.zeros((people, FaceWorld.dimension), np.float32), np.zeros((people, 1), np.int32)
        split = Split(train, own, vectors, codes, np.arange(len(labels)), labels)
        features = FaceWorld(images, labels, vectors).train(split, config, seed=TEACHER)
        _save(cache, F.normalize(features, dim=1).numpy())
    return np.load(cache)


def part_of(path: Path) -> Path:
    """Where a process writes a file before it has its name: other processes may make the same one."""
    return path.with_suffix(f".{os.getpid()}.part{path.suffix}")


def _save(path: Path, array: NDArray[np.generic]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = part_of(path)
    np.save(part, array)
    part.rename(path)


class VectorWorld:
    """Observations of identities in 128 dimensions: an identity and a nuisance of as many dimensions, mixed and folded.

    The encoder is a fixed random projection of the observations: it knows identities far from perfectly. The network is
    a multilayer perceptron.
    """

    dimension = 64
    hidden, inputs, latent, noise = 256, 128, 32, 0.5

    def __init__(self, people: int, each: int, *, knows: float = 0.0, seed: int = 0) -> None:
        """Draw `each` observations of every identity; `knows` is the weight of the identity itself in the encoder."""
        fixed, drawn = torch.Generator().manual_seed(1000), torch.Generator().manual_seed(seed)
        mix = torch.randn(2 * self.latent, self.hidden, generator=fixed) / math.sqrt(2 * self.latent)
        fold = torch.randn(self.hidden, self.inputs, generator=fixed) / math.sqrt(self.hidden)
        look = torch.randn(self.inputs, self.dimension, generator=fixed) / math.sqrt(self.inputs)
        self.labels = np.repeat(np.arange(people), each)
        who = torch.randn(people, self.latent, generator=drawn)
        self.observed = torch.empty(len(self.labels), self.inputs)
        for start in range(0, people, 4096):
            part = who[start : start + 4096].repeat_interleave(each, dim=0)
            both = torch.cat([part, torch.randn(part.shape, generator=drawn)], dim=1)
            rows = slice(start * each, start * each + len(part))
            self.observed[rows] = F.relu(both @ mix) @ fold
        self.observed += self.noise * torch.randn(self.observed.shape, generator=drawn)
        known = torch.randn(self.latent, self.dimension, generator=fixed) / math.sqrt(self.latent)
        seen = self.observed @ look + knows * (who @ known).repeat_interleave(each, dim=0)
        self.encoded = (seen - seen.mean(dim=0)).numpy()

    def train(self, split: Split, config: TrainingConfig, seed: int, variant: str = "") -> Tensor:
        """Train a perceptron with the head; the features of the test vectors."""
        model, _ = self.fit(split, config, seed, variant)
        return self.embed(model, split.test)

    def embed(self, model: nn.Module, which: NDArray[np.int64]) -> Tensor:
        """The features of these vectors."""
        with torch.inference_mode():
            return model.eval()(self.observed[which])

    def fit(self, split: Split, config: TrainingConfig, seed: int, variant: str = "") -> tuple[nn.Module, Head]:
        """Train a perceptron with the head, which it returns too: the steps of `Stepper`, without images."""
        torch.manual_seed(seed)
        model = perceptron(self.inputs, self.hidden, self.dimension).train()
        build = partial(build_variant, variant) if variant else build_head
        head = build(config, split.codes, split.vectors, seed=seed)
        rows = head.row_optimizer()
        optimizer = build_optimizer([*model.parameters(), *common_parameters(head)], config)
        head.attach(optimizer)
        optimizers = [optimizer, rows] if rows else [optimizer]
        steps = config.epochs * (len(split.train) // config.batch_size)
        without_warmup = config.model_copy(update={"warmup_steps": 0})
        for step, plan in enumerate(plan_batches(len(split.train), config, seed=seed)):
            if variant == "retokenize" and step in (steps // 3, 2 * steps // 3):
                retokenize(head, partial(make_codes, seed=seed))
            labels = torch.from_numpy(split.labels[plan.indices])
            rate = learning_rate(step, without_warmup, steps=steps, peak=config.learning_rate)
            own = row_learning_rate(step, without_warmup, steps=steps)
            if variant in ROW_OPTIMIZERS:
                own = learning_rate(step, without_warmup, steps=steps, peak=config.row_rate)
            for each, its_rate in zip(optimizers, (rate, own), strict=False):
                each.param_groups[0]["lr"] = its_rate
                each.zero_grad(set_to_none=True)
            head.begin_step(labels, step)
            features = model(self.observed[split.train[plan.indices]])
            output = head(features, labels)
            if head.sample_negatives:
                loss_samples = head.sample_negatives(features, labels, head.rows_of(labels))
                output = output.plus("loss_samples", loss_samples, config.sample_weight)
            output.loss.backward()
            for each in optimizers:
                each.step()
            head.end_step()
            del output  # its graph knows the number of rows of this step
        return model, head


def perceptron(inputs: int, hidden: int, outputs: int) -> nn.Module:
    """Two hidden layers, each with batch normalisation, and batch normalisation of the features."""
    widths = [inputs, hidden, hidden, outputs]
    layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])
