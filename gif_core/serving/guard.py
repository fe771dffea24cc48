"""Limits of every request, before the application sees it, and errors as JSON that say what to do."""

import asyncio
import hmac
import json
import logging
import socket
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from gif_core.serving.metrics import Metrics

logger = logging.getLogger(__name__)
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
FAULT: Final = "the service has a fault: its log says more"
OPEN: Final = "/health"
"""The path that needs no token, for load balancers."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    return host in LOOPBACK


def listen(host: str, port: int) -> socket.socket:
    """A listening socket whose connections send at once; asyncio sees to that only for sockets that it opened itself.

    Head and body of an answer are sent apart, and the body would wait 40 ms for the acknowledgement of the head.
    """
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    listening = socket.create_server((host, port), family=family)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request may cost."""

    body: int = 8 * 2**20
    """Bytes of a body."""
    seconds: float = 30.0
    """Time to send the body, and again to compute the answer."""
    at_once: int = 32
    """Requests that are read and answered at the same time; with `body` it bounds the memory of bodies."""


class _Refused(Exception):  # noqa: N818
    def __init__(self, status: int, reason: str, error: str) -> None:
        super().__init__(error)
        self.status, self.reason, self.error = status, reason, error


class Guard:
    """ASGI middleware around the application."""

    def __init__(self, app: App, limits: Limits, metrics: Metrics, token: str | None, paths: frozenset[str]) -> None:
        """With a `token`, requests must carry it; without one, they must name this machine as their host."""
        self.app, self.limits, self.metrics, self.token, self.paths = app, limits, metrics, token, paths
        self._busy = 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Check, answer, count."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, answer = time.monotonic(), _Answer(send)
        try:
            await self._answer(scope, receive, answer)
        except _Refused as refused:
            self.metrics.add("gif_rejected_total", reason=refused.reason)
            await answer.refuse(refused)
        except Exception:
            logger.exception("a request has failed")
            await answer.refuse(_Refused(500, "fault", FAULT))
        path = scope["path"] if scope["path"] in self.paths else "other"
        self.metrics.add("gif_requests_total", path=path, status=str(answer.status))
        self.metrics.observe("gif_request_seconds", time.monotonic() - began, path=path)

    async def _answer(self, scope: MutableMapping[str, Any], receive: Receive, answer: "_Answer") -> None:
        headers = {name.lower(): value for name, value in scope["headers"]}
        self._check_caller(scope["path"], headers)
        if self._busy >= self.limits.at_once and scope["path"] != OPEN:
            raise _Refused(503, "busy", f"{self._busy} requests are being answered already: try again in a moment")
        self._busy += 1
        self.metrics.add("gif_in_flight")
        try:
            body = await self._read(receive)
            try:
                async with asyncio.timeout(self.limits.seconds):
                    await self.app(scope, _replay(body, receive), answer)
            except TimeoutError:
                said = f"there was no answer within {self.limits.seconds:g} s: try again, with fewer requests at once"
                raise _Refused(504, "slow", said) from None
        finally:
            self._busy -= 1
            self.metrics.add("gif_in_flight", -1)

    def _check_caller(self, path: str, headers: dict[bytes, bytes]) -> None:
        """The token, or without one the host: a page of another site could otherwise reach this machine by name."""
        if self.token is None:
            host = headers.get(b"host", b"").decode("latin-1").rsplit(":", 1)[0].strip("[]")
            if host not in LOOPBACK:
                raise _Refused(421, "host", f"this service answers to {', '.join(sorted(LOOPBACK))} only")
        elif path != OPEN:
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, f"Bearer {self.token}".encode()):
                said = "the token is missing or wrong: send the header 'Authorization: Bearer TOKEN'"
                raise _Refused(401, "token", said)

    async def _read(self, receive: Receive) -> bytes:
        """The whole body; of one that is too large nothing is kept, though it is read to its end or to the time-out."""
        parts, size = [], 0
        try:
            async with asyncio.timeout(self.limits.seconds):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Refused(400, "disconnected", "the client has gone")
                    part: bytes = message.get("body", b"")
                    size, more = size + len(part), message.get("more_body", False)
                    if size <= self.limits.body:
                        parts.append(part)
                    else:
                        parts.clear()
        except TimeoutError:
            said = f"the body did not arrive within {self.limits.seconds:g} s: send smaller images"
            raise _Refused(408, "slow_body", said) from None
        if size > self.limits.body:
            said = f"the body has {size:,} bytes, and the limit is {self.limits.body:,}: send a smaller image"
            raise _Refused(413, "too_large", said)
        return b"".join(parts)


class _Answer:
    """Passes an answer on, and remembers its status."""

    def __init__(self, send: Send) -> None:
        self._send, self.status = send, 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)

    async def refuse(self, refused: _Refused) -> None:
        """A JSON error, unless an answer has begun already."""
        if self.status:
            return
        content = json.dumps({"error": refused.error}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        headers += [(b"connection", b"close")] if refused.status in (408, 413) else []
        headers += [(b"retry-after", b"1")] if refused.status == 503 else []
        headers += [(b"www-authenticate", b"Bearer")] if refused.status == 401 else []
        await self({"type": "http.response.start", "status": refused.status, "headers": headers})
        await self({"type": "http.response.body", "body": content})


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body that was read, then whatever else happens on the connection."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return waiting.pop() if waiting else await receive()

    return next_message
