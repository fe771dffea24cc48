"""`gif serve`: a read-only HTTP service."""

from __future__ import annotations

import logging
import os
import socket
from contextlib import suppress
from typing import Annotated

import typer

from flows.cli.encoders import Device
from flows.cli.models import note_model
from flows.cli.options import Model, Store
from schemas.errors import GifError

TOKEN = "GIF_TOKEN"
"""The environment variable with the token of the service."""


def serve(
    store: Store,
    model: Model = None,
    gallery: Annotated[
        list[str] | None,
        typer.Option("--gallery", metavar="NAME", help="Also identify people of this gallery; repeatable."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; other than loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8112,
    batch: Annotated[
        int, typer.Option(min=1, help="Faces of several requests that go through the network together.")
    ] = 8,
    at_once: Annotated[int, typer.Option(min=1, help="Requests answered at once; more are told to try again.")] = 32,
    body: Annotated[int, typer.Option(min=1024, help="Bytes of a request, at most.")] = 8 * 2**20,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Time-out of receiving a request, and of answering it.")
    ] = 30.0,
    follow: Annotated[float, typer.Option(min=0.1, help="Seconds between looks for a new champion.")] = 10.0,
    device: Device = "auto",
) -> None:
    """Answer embed, verify and identify over HTTP, following the champion; nothing that is sent is stored.

    The environment variable GIF_TOKEN is the token that requests must carry; it is needed unless the address is
    loopback. /docs describes the requests, /metrics is for Prometheus, /health for load balancers.

    Examples:
      gif serve --gallery staff

      GIF_TOKEN=secret gif serve --host 0.0.0.0 --port 80

      curl --data-binary @a.jpg http://127.0.0.1:8112/identify
    """
    from gif_core.serving import Limits, ServedModels, build_app, is_loopback

    token = os.environ.get(TOKEN) or None
    if token is None and not is_loopback(host):
        raise GifError(f"--host {host} can be reached from elsewhere: set a token in the environment variable {TOKEN}")
    with _listen(host, port) as listening:
        models = ServedModels(store, model, tuple(gallery or ()), device=device)
        note_model(models.current.recognizer.model, models.current.reason)
        limits = Limits(body=body, seconds=seconds, at_once=at_once)
        threads = max(1, os.cpu_count() or 1)
        app = build_app(models, limits, token=token, threads=threads, batch=batch, follow=follow)
        name = f"[{host}]" if ":" in host else host
        print(f"http://{name}:{listening.getsockname()[1]} answers; /docs describes it, Ctrl-C ends it", flush=True)
        _run(app, listening, at_once)


def _listen(host: str, port: int) -> socket.socket:
    from gif_core.serving import listen

    try:
        return listen(host, port)
    except OSError as error:
        raise GifError(f"--host {host} --port {port}: {error.strerror or error}; choose another") from error


def _run(app: object, listening: socket.socket, at_once: int) -> None:
    import uvicorn

    logging.getLogger("gif_core.serving").addHandler(logging.StreamHandler())
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=8 * at_once,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=10,
    )
    with suppress(KeyboardInterrupt):  # raised when everything has ended in order
        uvicorn.Server(config).run(sockets=[listening])
