"""A model hub on this machine that speaks as much of the Hugging Face hub's protocol as its client needs."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "c" * 40
TOKEN = "hf_secret"


class Hub(ThreadingHTTPServer):
    """Keeps the files of repositories in memory."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.said: dict[str, int] = {}
        """Sizes of files that it states instead of the true ones."""
        self.sent: list[str] = []
        """Files that were downloaded."""
        self.url = f"http://127.0.0.1:{self.server_port}"


@contextmanager
def running_hub() -> Iterator[Hub]:
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None: ...

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/[^/]+)?", path):
            self._describe(found[1])
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/[^/]+/?", path):
            self._list(found[1])
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
            self._send_file(found[1], found[2])
        else:
            self._answer(404, {"error": f"no {path}"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer(401, {"error": "Invalid username or password."})
        elif self.path == "/api/repos/create":
            self._create(json.loads(body))
        elif "/preupload/" in self.path:
            names = [file["path"] for file in json.loads(body)["files"]]
            each = {"uploadMode": "regular", "shouldIgnore": False}
            self._answer(200, {"files": [{"path": name, **each} for name in names]})
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/[^/]+", self.path.partition("?")[0]):
            self._commit(found[1], body)
        else:
            self._answer(200, {"errors": [], "warnings": []})

    def _create(self, asked: dict[str, Any]) -> None:
        name = f"{asked['organization']}/{asked['name']}"
        self.server.repositories.setdefault(name, {})
        self.server.private.setdefault(name, asked.get("visibility") == "private" or bool(asked.get("private")))
        self._answer(200, {"url": f"{self.server.url}/{name}"})

    def _commit(self, name: str, body: bytes) -> None:
        for entry in map(json.loads, body.splitlines()):
            if entry["key"] == "file":
                self.server.repositories[name][entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
        url = f"{self.server.url}/{name}/commit/{COMMIT}"
        self._answer(200, {"success": True, "commitOid": COMMIT, "commitUrl": url, "hookOutput": ""})

    def _describe(self, name: str) -> None:
        if name not in self.server.repositories:
            self._answer(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
            return
        files = [
            {"rfilename": file, "size": self.server.said.get(file, len(content)), "blobId": _oid(content)}
            for file, content in self.server.repositories[name].items()
        ]
        self._answer(200, {"id": name, "sha": COMMIT, "siblings": files, "private": False, "tags": [], "downloads": 0})

    def _list(self, name: str) -> None:
        files = self.server.repositories[name]
        rows = [{"type": "file", "path": file, "size": len(files[file]), "oid": _oid(files[file])} for file in files]
        self._answer(200, rows)

    def _send_file(self, name: str, file: str) -> None:
        content = self.server.repositories.get(name, {}).get(file)
        if content is None:
            self._answer(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"})
            return
        if self.command == "GET":
            self.server.sent.append(file)
        self._send(200, content, {"ETag": f'"{_oid(content)}"', "X-Repo-Commit": COMMIT})

    def _answer(self, status: int, about: Any, headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(about).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _oid(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()
