"""The HTTP application: embed, verify, identify, health, metrics."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException

from gif_core.detection import DetectorMissingError
from gif_core.galleries import EnrolledGallery
from gif_core.recognition import NotAnImageError
from gif_core.runtime import code_version, freed_memory_kept
from gif_core.serving.answers import (
    IMAGE_BODY,
    EmbedAnswer,
    EmbedQuery,
    Health,
    IdentifyAnswer,
    IdentifyQuery,
    Pair,
    Problem,
    VerifyAnswer,
    VerifyQuery,
)
from gif_core.serving.direct import Direct, Route
from gif_core.serving.guard import FAULT, App, Guard, Limits
from gif_core.serving.models import ServedModels
from gif_core.serving.page import HEADERS, render_page
from gif_core.serving.service import Service, answer_embed, answer_identify, answer_verify, to_json
from schemas.errors import GifError

NO_DETECTOR: Final = (
    "the image is not an aligned face of 112×112 pixels, and this service has no face detector: 'gif detector install' "
    "on its machine gives it one; if the image is aligned and only its size differs, ask with faces=aligned"
)
PATHS: Final = frozenset({"/embed", "/verify", "/identify", "/health", "/metrics", "/docs", "/openapi.json"})
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
DIRECT: Final = {"/embed": Route(EmbedQuery, answer_embed), "/identify": Route(IdentifyQuery, answer_identify)}
"""Paths whose body is one image."""


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
            with freed_memory_kept():  # page faults of freed memory cost more than HTTP and decoding together
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
        docs_url=None,
        redoc_url=None,
    )
    _add_paths(app)
    _add_errors(app)
    return Guard(Direct(app, DIRECT), limits or Limits(), models.metrics, token, PATHS)


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
    app.get("/docs", response_class=HTMLResponse, include_in_schema=False)(docs)


async def embed(request: Request, query: Annotated[EmbedQuery, Query()]) -> Response:
    """Features of the largest face of an image, or of all."""
    return await answer_embed(request.app.state.service, await request.body(), query)


async def verify(request: Request, pair: Pair, query: Annotated[VerifyQuery, Query()]) -> Response:
    """Whether two images show one identity, by the largest face of each."""
    return await answer_verify(request.app.state.service, pair, query)


async def identify(request: Request, query: Annotated[IdentifyQuery, Query()]) -> Response:
    """Who the largest face of an image shows, or all of them: enrolled identities, or unknown."""
    return await answer_identify(request.app.state.service, await request.body(), query)


async def health(request: Request) -> Response:
    """Which model and galleries answer, and whether the store can be followed."""
    models = request.app.state.service.models
    opened = {name: each for name, each in models.galleries.items() if isinstance(each, EnrolledGallery)}
    about = {"status": "ok", "model": models.current.key, "reason": models.current.reason, "fault": models.fault}
    return to_json({**about, "galleries": {name: len(each.labels) for name, each in opened.items()}})


async def metrics(request: Request) -> Response:
    """Counters in Prometheus' text format."""
    return PlainTextResponse(request.app.state.service.models.metrics.text(), media_type="text/plain; version=0.0.4")


async def docs(request: Request) -> Response:
    """The page that describes the service."""
    return HTMLResponse(render_page(request.app.openapi()), headers=HEADERS)


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
