"""A small HTTP proxy before a real server, which does to requests what a bad network or a bad day does."""

import asyncio
import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from typing import Literal
from urllib.parse import urlsplit

Fate = Literal["pass", "500", "503", "lost", "cut", "hold", "stop"]
"""What becomes of a request: answered with an error, carried out with its answer lost or cut in the middle, never taken
nor answered, or the server is away from this moment on."""
Decide = Callable[[str, str], Fate]
BLOCK = 2**16


class FaultyProxy:
    """Passes requests on to `target`; `decide(method, path)` says what becomes of each."""

    def __init__(self, target: str) -> None:
        self.upstream = (str(urlsplit(target).hostname), int(urlsplit(target).port or 80))
        self.decide: Decide = lambda method, path: "pass"
        self.seconds_away = 3.0
        self.delay = 0.0
        self.seconds_per_block = 0.0
        self.held = threading.Event()
        self.skew = timedelta(0)
        self.seen: list[tuple[str, str]] = []
        self.port = 0
        self.stops = 0
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_away(self) -> bool:
        return self._server is None

    @contextmanager
    def running(self) -> Iterator["FaultyProxy"]:
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        with self._hold_a_port():
            self._call(self._listen())
            try:
                yield self
            finally:
                self._call(self._close())
                self._loop.call_soon_threadsafe(self._loop.stop)
                thread.join()
                self._loop.close()

    @contextmanager
    def _hold_a_port(self) -> Iterator[None]:
        """Nobody else gets the port while this server is away: a socket that does not listen stays bound to it."""
        with socket.socket() as held:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            held.bind(("127.0.0.1", 0))
            self.port = held.getsockname()[1]
            yield

    def _call(self, work: "asyncio.coroutines.Coroutine[None, None, None]") -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, reuse_port=True)

    async def _hang_up(self) -> None:
        """Nobody listens, and open connections break."""
        if self._server:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()

    async def _go_away(self) -> None:
        self.stops += 1
        await self._hang_up()
        await asyncio.sleep(self.seconds_away)
        await self._listen()

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._hang_up()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while await self._pass_one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _pass_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether the connection can take another."""
        head = await reader.readuntil(b"\r\n\r\n")
        if re.search(rb"\r\nexpect: 100-continue", head, re.I):
            head = re.sub(rb"\r\nexpect: 100-continue", b"", head, flags=re.I)
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        method, path = head.split(b" ", 2)[:2]
        self.seen.append((method.decode(), path.decode()))
        fate = self.decide(*self.seen[-1])
        await asyncio.sleep(self.delay)
        if fate == "stop":
            task = asyncio.get_running_loop().create_task(self._go_away())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(self.seconds_away)
            return False
        if fate == "hold":
            self.held.set()
            await asyncio.sleep(3600)
        body = await self._take(reader, head)
        if fate in ("500", "503"):
            writer.write(_error(int(fate), method == b"HEAD"))
            await writer.drain()
            return True
        answer, content = await self._ask(head, body, method == b"HEAD")
        if fate == "lost":
            return False
        writer.write(answer)
        await self._give(writer, content[: len(content) // 2] if fate == "cut" else content)
        return fate != "cut"

    async def _take(self, reader: asyncio.StreamReader, head: bytes) -> bytes:
        """The body of a request, at the speed of this network."""
        length = re.search(rb"\r\ncontent-length: *([0-9]+)", head, re.I)
        if not self.seconds_per_block or not length:
            return await _read_body(reader, head)
        body = b""
        while len(body) < int(length[1]):
            await asyncio.sleep(self.seconds_per_block)
            body += await reader.readexactly(min(BLOCK, int(length[1]) - len(body)))
        return body

    async def _give(self, writer: asyncio.StreamWriter, content: bytes) -> None:
        for start in range(0, len(content), BLOCK if self.seconds_per_block else max(len(content), 1)):
            writer.write(content[start : start + BLOCK] if self.seconds_per_block else content)
            await writer.drain()
            await asyncio.sleep(self.seconds_per_block)
        await writer.drain()

    async def _ask(self, head: bytes, body: bytes, is_head: bool) -> tuple[bytes, bytes]:
        """The real server's answer, dated by its clock as this proxy would have it."""
        head = re.sub(rb"\r\nconnection: [^\r]*", b"", head, flags=re.I)
        upstream, out = await asyncio.open_connection(*self.upstream, limit=2**24)
        try:
            out.write(head[:-2] + b"Connection: close\r\n\r\n" + body)
            await out.drain()
            answer = await upstream.readuntil(b"\r\n\r\n")
            content = b"" if is_head else await _read_body(upstream, answer, to_end=True)
        finally:
            out.close()
        answer = re.sub(rb"\r\n(connection|transfer-encoding): [^\r]*", b"", answer, flags=re.I)
        if self.skew:
            answer, content = self._redate(answer, content)
        if not is_head and not re.search(rb"\r\ncontent-length:", answer, re.I) and b" 204 " not in answer[:16]:
            answer = answer[:-2] + b"Content-Length: %d\r\n\r\n" % len(content)
        return answer, content

    def _redate(self, answer: bytes, content: bytes) -> tuple[bytes, bytes]:
        def header(found: re.Match[bytes]) -> bytes:
            moment = parsedate_to_datetime(found[2].decode()) + self.skew
            return found[1] + format_datetime(moment, usegmt=True).encode()

        def element(found: re.Match[bytes]) -> bytes:
            moment = datetime.fromisoformat(found[2].decode().replace("Z", "+00:00")) + self.skew
            return found[1] + moment.strftime("%Y-%m-%dT%H:%M:%S.000Z").encode()

        answer = re.sub(rb"(\r\n(?:date|last-modified): )([^\r]*)", header, answer, flags=re.I)
        content = re.sub(rb"(<(?:LastModified|Initiated)>)([^<]*)", element, content)
        if content:
            answer = re.sub(rb"content-length: [0-9]+", b"Content-Length: %d" % len(content), answer, flags=re.I)
        return answer, content


async def _read_body(reader: asyncio.StreamReader, head: bytes, *, to_end: bool = False) -> bytes:
    length = re.search(rb"\r\ncontent-length: *([0-9]+)", head, re.I)
    if length:
        return await reader.readexactly(int(length[1]))
    if re.search(rb"\r\ntransfer-encoding: *chunked", head, re.I):
        return await _read_chunks(reader)
    return await reader.read() if to_end else b""


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    with contextlib.suppress(asyncio.IncompleteReadError):
        while (await reader.readuntil(b"\r\n")) != b"\r\n":
            pass
    return b"".join(parts)


def _error(status: int, is_head: bool) -> bytes:
    code = {500: "InternalError", 503: "SlowDown"}[status]
    content = b"" if is_head else f"<Error><Code>{code}</Code><Message>made up</Message></Error>".encode()
    return b"HTTP/1.1 %d made up\r\nContent-Length: %d\r\n\r\n%s" % (status, len(content), content)
