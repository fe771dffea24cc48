"""What requests share, and the answers to them."""

# Shapes: B faces, D dimensions.

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
import orjson
from fastapi import Response
from numpy.typing import NDArray
from starlette.exceptions import HTTPException

from gif_core.detection import AlignedFace, FaceMode
from gif_core.galleries import EnrolledGallery
from gif_core.images import IMAGE_SIZE, is_small_jpeg
from gif_core.recognition import Identified, Recognizer, read_faces
from gif_core.serving.answers import EmbedQuery, IdentifyQuery, Pair, VerifyQuery
from gif_core.serving.batching import Batcher
from gif_core.serving.models import ServedModels
from schemas.errors import GifError

MOST_FACES: Final = 64
"""Faces of one image that are answered, largest first."""
Result = TypeVar("Result")


class Service:
    """What requests share: models, the batcher, threads that decode images and search."""

    def __init__(self, models: ServedModels, *, threads: int, batch: int) -> None:
        """`threads` images are decoded at once."""
        self.models = models
        self.batcher = Batcher(models.metrics, most=batch)
        self._threads = ThreadPoolExecutor(threads, "gif-decode")

    async def run(self, work: Callable[..., Result], *given: Any) -> Result:
        """Something that takes longer than the event loop may wait."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *given))

    async def read(self, content: bytes, mode: FaceMode, *, every: bool) -> list[AlignedFace]:
        """The faces of an image file, decoded with bounds: an aligned face at once, others in a thread."""
        if mode != "detect" and is_small_jpeg(content, IMAGE_SIZE):
            return read_faces(content, mode)
        self.batcher.coming += 1
        try:
            found = await self.run(read_faces, content, mode)
        finally:
            self.batcher.coming -= 1
        return found[:MOST_FACES] if every else found[:1]

    async def embed(
        self, recognizer: Recognizer, faces: list[AlignedFace], *, flip: bool = True
    ) -> NDArray[np.float32]:
        """Unit features [B, D]."""
        return await self.batcher.embed(recognizer, np.stack([face.pixels_HWC for face in faces]), flip=flip)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=True, cancel_futures=True)


async def answer_embed(service: Service, image: bytes, query: EmbedQuery) -> Response:
    """Features of the largest face, or of all."""
    recognizer = service.models.current.recognizer
    found = await service.read(image, query.faces, every=query.every)
    features_BD = await service.embed(recognizer, found)
    answers = [{**_describe(face), "feature": feature} for face, feature in zip(found, features_BD, strict=True)]
    return to_json({"model": recognizer.model.key, "faces": answers})


async def answer_verify(service: Service, pair: Pair, query: VerifyQuery) -> Response:
    """Whether the largest faces of two images show one identity."""
    recognizer = service.models.current.recognizer
    found = [(await service.read(content, query.faces, every=False))[0] for content in (pair.left, pair.right)]
    known = recognizer.thresholds.get(query.pairs or next(iter(recognizer.thresholds), ""))
    features_BD = await service.embed(recognizer, found, flip=known.flip if known else True)
    answer = recognizer.compare(features_BD, query.pairs)
    return to_json({"model": recognizer.model.key, **asdict(answer), "faces": [_describe(face) for face in found]})


async def answer_identify(service: Service, image: bytes, query: IdentifyQuery) -> Response:
    """Who the largest face shows, or all of them."""
    searched = _gallery(service, query.gallery) if query.gallery is not None else None
    model = service.models.current
    if searched is None and query.by in model.unable:
        raise GifError(model.unable[query.by])
    found = await service.read(image, query.faces, every=query.every)
    if searched is not None:
        recognizer, promise = searched.recognizer, searched.describe()
        answers = await service.run(searched.find, await service.embed(recognizer, found), query.top)
    else:
        recognizer, calibration = model.recognizer, model.recognizer.calibration(query.by)
        promise = calibration.describe()
        features_BD = await service.embed(recognizer, found, flip=calibration.flip)
        answers = await service.run(recognizer.find, features_BD, query.top, query.by)
    rows = [{**_describe(face), **_identified(answer)} for face, answer in zip(found, answers, strict=True)]
    return to_json({"model": recognizer.model.key, "gallery": query.gallery, "promise": promise, "faces": rows})


def _gallery(service: Service, name: str) -> EnrolledGallery:
    found = service.models.galleries.get(name)
    if found is None:
        known = ", ".join(service.models.galleries) or "none"
        raise HTTPException(404, f"there is no gallery {name!r} here; there are: {known} (gif serve --gallery NAME)")
    if not isinstance(found, EnrolledGallery):
        raise HTTPException(404, str(found))
    return found


def _describe(face: AlignedFace) -> dict[str, Any]:
    found = face.detection
    about = {"box": [round(float(each), 1) for each in found.box], "score": round(found.score, 3)} if found else {}
    return {**about, "remarks": list(face.remarks)}


def _identified(answer: Identified) -> dict[str, Any]:
    return {"known": answer.known, "candidates": [asdict(each) for each in answer.candidates]}


def to_json(about: dict[str, Any]) -> Response:
    """Without the model of the answer, whose validation would cost more than all the rest."""
    return Response(orjson.dumps(about, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")
