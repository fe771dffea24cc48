"""The HTTP application: embed, verify, identify, health, metrics."""

# Shapes: B faces, D dimensions.

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Final, TypeVar

import numpy as np
import orjson
from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from numpy.typing import NDArray
from starlette.exceptions import HTTPException

from gif_core.detection import AlignedFace, DetectorMissingError, FaceMode
from gif_core.galleries import EnrolledGallery
from gif_core.recognition import Identified, Method, NotAnImageError, Recognizer, read_faces
from gif_core.runtime import code_version
from gif_core.serving.answers import (
    IMAGE_BODY,
    EmbedAnswer,
    Health,
    IdentifyAnswer,
    Pair,
    Problem,
    VerifyAnswer,
)
from gif_core.serving.batching import Batcher
from gif_core.serving.guard import FAULT, App, Guard, Limits
from gif_core.serving.models import ServedModels
from schemas.errors import GifError

MOST_FACES: Final = 64
"""Faces of one image that are answered, largest first."""
NO_DETECTOR: Final = (
    "the image is not an aligned face of 112×112 pixels, and this service has no face detector: 'gif detector install' "
    "on its machine gives it one; if the image is aligned and only its size differs, ask with faces=aligned"
)
PATHS: Final = frozenset({"/embed", "/verify", "/identify", "/health", "/metrics", "/docs", "/openapi.json"})
Every = Annotated[bool, Query(alias="all", description="Answer for every face, not for the largest only.")]
Faces = Annotated[FaceMode, Query(description="How faces are found; auto takes images of 112×112 as aligned.")]
Top = Annotated[int, Query(ge=1, le=100, description="Candidates of a face.")]
Result = TypeVar("Result")
PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": Problem, "description": text}
    for status, text in {
        400: "The client has gone.",
        401: "The token is missing or wrong.",
        404: "There is no such thing.",
        408: "The body came too slowly.",
        413: "The body is too large.",
        421: "The host of the request is not this machine.",
        422: "The request or the image cannot be used.",
        503: "Too many requests at once.",
        504: "There was no answer in time.",
    }.items()
}


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
        """The faces of an image file, decoded with bounds."""
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


def build_app(
    models: ServedModels,
    limits: Limits | None = None,
    *,
    token: str | None = None,
    threads: int = 2,
    batch: int = 8,
    follow: float = 10.0,
) -> App:
    """The application with its limits around it; it looks for a new champion every `follow` seconds."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.service = service = Service(models, threads=threads, batch=batch)
        follower = asyncio.create_task(_follow(models, follow))
        try:
            async with service.batcher:
                yield
        finally:
            follower.cancel()
            await asyncio.gather(follower, return_exceptions=True)
            service.close()

    app = FastAPI(
        title="GIF",
        description="Face recognition with a trained model: read-only, nothing that is sent is stored.",
        version=code_version(),
        lifespan=lifespan,
        redoc_url=None,
    )
    _add_paths(app)
    _add_errors(app)
    return Guard(app, limits or Limits(), models.metrics, token, PATHS)


async def _follow(models: ServedModels, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        await asyncio.to_thread(models.refresh)


def _add_paths(app: FastAPI) -> None:
    shared: dict[str, Any] = {"responses": PROBLEMS}
    app.post("/embed", response_model=EmbedAnswer, openapi_extra=IMAGE_BODY, **shared)(embed)
    app.post("/verify", response_model=VerifyAnswer, **shared)(verify)
    app.post("/identify", response_model=IdentifyAnswer, openapi_extra=IMAGE_BODY, **shared)(identify)
    app.get("/health", response_model=Health, **shared)(health)
    app.get("/metrics", response_class=PlainTextResponse, **shared)(metrics)


async def embed(request: Request, faces: Faces = "auto", every: Every = False) -> Response:
    """Features of the largest face of an image, or of all."""
    service: Service = request.app.state.service
    recognizer = service.models.current.recognizer
    found = await service.read(await request.body(), faces, every=every)
    features_BD = await service.embed(recognizer, found)
    answers = [{**_describe(face), "feature": feature} for face, feature in zip(found, features_BD, strict=True)]
    return _json({"model": recognizer.model.key, "faces": answers})


async def verify(
    request: Request,
    pair: Pair,
    faces: Faces = "auto",
    pairs: Annotated[str | None, Query(alias="set", description="Take the threshold of this evaluated set.")] = None,
) -> Response:
    """Whether two images show one identity, by the largest face of each."""
    service: Service = request.app.state.service
    recognizer = service.models.current.recognizer
    found = [(await service.read(content, faces, every=False))[0] for content in (pair.left, pair.right)]
    known = recognizer.thresholds.get(pairs or next(iter(recognizer.thresholds), ""))
    features_BD = await service.embed(recognizer, found, flip=known.flip if known else True)
    answer = recognizer.compare(features_BD, pairs)
    return _json({"model": recognizer.model.key, **asdict(answer), "faces": [_describe(face) for face in found]})


async def identify(
    request: Request,
    gallery: Annotated[
        str | None, Query(description="A gallery; else the identities the model was trained on.")
    ] = None,
    faces: Faces = "auto",
    every: Every = False,
    top: Top = 5,
    by: Annotated[
        Method, Query(description="How identities are found; galleries are always searched exactly.")
    ] = "reranked",
) -> Response:
    """Who the largest face of an image shows, or all of them: enrolled identities, or unknown."""
    service: Service = request.app.state.service
    searched = _gallery(service, gallery) if gallery is not None else None
    model = service.models.current
    if searched is None and by in model.unable:
        raise GifError(model.unable[by])
    found = await service.read(await request.body(), faces, every=every)
    if searched is not None:
        recognizer, promise = searched.recognizer, searched.describe()
        answers = await service.run(searched.find, await service.embed(recognizer, found), top)
    else:
        recognizer, calibration = model.recognizer, model.recognizer.calibration(by)
        promise = calibration.describe()
        features_BD = await service.embed(recognizer, found, flip=calibration.flip)
        answers = await service.run(recognizer.find, features_BD, top, by)
    rows = [{**_describe(face), **_identified(answer)} for face, answer in zip(found, answers, strict=True)]
    return _json({"model": recognizer.model.key, "gallery": gallery, "promise": promise, "faces": rows})


async def health(request: Request) -> Response:
    """Which model and galleries answer, and whether the store can be followed."""
    models = request.app.state.service.models
    opened = {name: each for name, each in models.galleries.items() if isinstance(each, EnrolledGallery)}
    about = {"status": "ok", "model": models.current.key, "reason": models.current.reason, "fault": models.fault}
    return _json({**about, "galleries": {name: len(each.labels) for name, each in opened.items()}})


async def metrics(request: Request) -> Response:
    """Counters in Prometheus' text format."""
    return PlainTextResponse(request.app.state.service.models.metrics.text(), media_type="text/plain; version=0.0.4")


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


def _json(about: dict[str, Any]) -> Response:
    """Without the model of the answer, whose validation would cost more than all the rest."""
    return Response(orjson.dumps(about, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")


def _add_errors(app: FastAPI) -> None:
    def refuse(status: int, text: str, headers: Any = None) -> JSONResponse:
        return JSONResponse({"error": text}, status, headers)

    async def on_http(_: Request, error: Any) -> JSONResponse:
        hint = ": /docs lists what there is" if error.detail in ("Not Found", "Method Not Allowed") else ""
        return refuse(error.status_code, f"{error.detail}{hint}", error.headers)

    async def on_request(_: Request, error: Any) -> JSONResponse:
        first = error.errors()[0]
        return refuse(422, f"{'.'.join(map(str, first['loc']))}: {first['msg']}; /docs shows what is expected")

    async def on_mistake(_: Request, error: Any) -> JSONResponse:
        return refuse(422, str(error))

    async def on_missing(_: Request, error: Any) -> JSONResponse:
        return refuse(422, NO_DETECTOR)

    async def on_fault(_: Request, error: Any) -> JSONResponse:
        return refuse(500, FAULT)

    app.add_exception_handler(Exception, on_fault)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_request)
    app.add_exception_handler(NotAnImageError, on_mistake)
    app.add_exception_handler(DetectorMissingError, on_missing)
    app.add_exception_handler(GifError, on_mistake)
