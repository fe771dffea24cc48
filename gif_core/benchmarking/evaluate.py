"""What evaluation spends its time on: features with mirrored images, raw pixels, drawn probes, search."""

# Shapes: B images, D dimensions.

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gif_core.backbones import build_backbone, embed_images
from gif_core.benchmarking.inputs import DISTINCT, draw_faces, draw_vectors, number_codes
from gif_core.benchmarking.memory import watched_memory
from gif_core.benchmarking.setting import Setting, code_dimension, without_weights
from gif_core.embedding.encoders import build_encoder
from gif_core.evaluation import encode_images, pixel_distances
from gif_core.heads import TokenHeads
from gif_core.images import Faces
from gif_core.protocols import draw_pairs
from gif_core.recognition import METHODS, RANKS, DrawnFaces, Gallery
from gif_core.tokenization import CodeShape
from schemas.benchmarks import BenchmarkResult

IMAGES: Final = 2048
IDENTITIES: Final = 512
"""Identities of these images."""
FIRST: Final = 8
"""Images from which the size of a batch is found."""
PAIRS: Final = 1024
PROBES: Final = 256
"""Features that are searched among all identities."""
Chunks = Iterable[NDArray[np.float32]]
Embed = Callable[[NDArray[np.int64], int], Chunks]
"""Features of rows of images, in batches of a size."""


def bench_evaluate(setting: Setting) -> BenchmarkResult:
    """Images per second through the trained network, and seconds of what else evaluation does."""
    config, dim = setting.config, code_dimension(setting.config)
    faces = draw_faces(setting.folder, IMAGES, IDENTITIES, config.execution.workers)
    passes = 2 if config.evaluation.flip else 1
    with watched_memory(setting.device) as memory:
        batch, model = _seconds_per_image(_model_features(setting, faces, dim), setting)
        _, encoder = _seconds_per_image(_encoder_features(setting, faces), setting)
        found, shape = _seconds_of_search(setting, dim)
    phases = {"model": model, "encoder": encoder, "a pair's pixels": _seconds_of_pixels(faces)}
    phases |= {"a drawn face": _seconds_of_drawing()} | found
    given = config.embedding
    return setting.result(
        "evaluate",
        f"{config.training.backbone} and {given.model}",
        settings={"backbone": config.training.backbone, "encoder": given.encoder, "model": given.model}
        | {"identities": setting.identities, "dimension": dim, "passes": passes}
        | {"beam": _beam(setting), "length": shape.length, "values": shape.vocab_size},
        per_second=1 / model,
        peak_memory=memory.peak,
        phases=phases,
        figures={"forward_per_second": passes / model, "encoder_per_second": passes / encoder, "batch": batch},
    )


def _model_features(setting: Setting, faces: Faces, dim: int) -> Embed:
    model = build_backbone(setting.config.training.backbone, dim).to(setting.device)
    flip = setting.config.evaluation.flip
    return lambda rows, batch: embed_images(model, faces, rows, flip=flip, device=setting.device, batch_size=batch)


def _encoder_features(setting: Setting, faces: Faces) -> Embed:
    encoder = build_encoder(without_weights(setting.config.embedding), setting.device)
    flip = setting.config.evaluation.flip
    return lambda rows, batch: encode_images(encoder, faces, rows, flip, batch)


def _seconds_per_image(embed: Embed, setting: Setting) -> tuple[int, float]:
    """The batch, that of the stage unless it takes longer than may be measured; and seconds of an image in it."""

    def measure(images: int, batch: int) -> float:
        began = time.perf_counter()
        for _ in embed(np.arange(images), batch):
            pass
        return (time.perf_counter() - began) / images

    measure(FIRST, FIRST)
    fits = setting.seconds / 2 / max(measure(FIRST, FIRST), 1e-9)
    batch = int(min(max(fits, FIRST), setting.config.execution.encode_batch, IMAGES))
    batches = max(int(min(fits, IMAGES) / batch), 1)
    return batch, measure(batches * batch, batch)


def _seconds_of_pixels(faces: Faces) -> float:
    """Seconds of a pair of images without a network."""
    pairs = draw_pairs(faces.labels_N, pairs=PAIRS // 2, seed=0, folds=1)
    return _seconds(partial(pixel_distances, faces, pairs)) / len(pairs)


def _seconds_of_drawing() -> float:
    """Seconds of a probe image of a synthetic source, which one thread draws."""
    images = DrawnFaces(np.array([[0, identity, 0] for identity in range(DISTINCT)]))
    return _seconds(partial(images.load, np.arange(DISTINCT))) / DISTINCT


def _seconds_of_search(setting: Setting, dim: int) -> tuple[dict[str, float], CodeShape]:
    """Seconds of a probe by each method among identities, and the shape of their codes."""
    given = setting.config.training
    codes_NL, shape = number_codes(setting.identities, setting.config.tokenization)
    heads = TokenHeads(
        shape.length,
        shape.vocab_size,
        dim,
        scale=given.scale_of_head,
        hidden_layers=given.hidden_layers,
        map_width=given.map_width if given.maps_code_vectors(setting.identities) else 0,
    )
    vectors_ND = draw_vectors(setting.folder, setting.identities, dim)
    gallery = Gallery(heads, codes_NL, shape, vectors_ND, beam=_beam(setting), device=setting.device)
    probes_BD = np.ascontiguousarray(vectors_ND[np.arange(PROBES) % setting.identities])
    ways = {method: partial(gallery.find, probes_BD, max(RANKS), method) for method in METHODS}
    return {f"search {method}": _seconds(find) / PROBES for method, find in ways.items()}, shape


def _beam(setting: Setting) -> int:
    identification = setting.config.evaluation.identification
    return identification.beam if identification else 64


def _seconds(work: Callable[[], Any]) -> float:
    """Seconds of the second of two calls; all of them wait for the device."""
    work()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
