"""Requests with one image, answered without FastAPI, whose dependency injection costs more than decoding a face."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ValidationError

from gif_core.serving.guard import Receive, Send


@dataclass(frozen=True)
class Route:
    """The parameters of a path, and what answers it: the service, the image and the parameters are given."""

    query: type[BaseModel]
    answer: Callable[[Any, bytes, Any], Awaitable[Response]]

    def read(self, query_string: bytes) -> BaseModel | None:
        """The parameters; None if FastAPI has to say what is wrong with them."""
        try:
            return self.query.model_validate(dict(parse_qsl(query_string.decode("latin-1"), keep_blank_values=True)))
        except (ValidationError, ValueError):
            return None


class Direct:
    """Answers posts to some paths itself. All other requests, and the description of these, are FastAPI's."""

    def __init__(self, app: FastAPI, routes: Mapping[str, Route]) -> None:
        """The body must arrive as one message, as the guard sees to."""
        self.app, self.routes = app, routes

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        route = self.routes.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        query = route.read(scope["query_string"]) if route else None
        if route is None or query is None:
            await self.app(scope, receive, send)
            return
        image = (await receive())["body"]
        try:
            response = await route.answer(self.app.state.service, image, query)
        except Exception as error:
            response = await self._explain(Request(scope), error)
        await response(scope, receive, send)

    async def _explain(self, request: Request, error: Exception) -> Response:
        """What FastAPI would answer; other errors are faults, which the guard reports."""
        for kind in type(error).__mro__[:-3]:
            if handler := self.app.exception_handlers.get(kind):
                answer: Any = handler(request, error)
                explained: Response = await answer
                return explained
        raise error
