"""Object storage through fsspec: retried requests, and large files transferred in concurrent parts."""

import hashlib
import os
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final

import fsspec

from gif_core.artifacts.digests import sha256_of
from gif_core.artifacts.errors import StoreError
from gif_core.artifacts.listing import FoundFile, FoundUpload
from gif_core.artifacts.retry import Patience
from gif_core.runtime import with_log_fields
from schemas.addresses import CREDENTIALS

PART_BYTES: Final = 16 * 2**20
MOST_PARTS: Final = 10_000
"""S3's limit of parts per upload."""
AT_ONCE: Final = 8
"""Parts in flight; together with `PART_BYTES` it bounds the memory of transfers."""
S3_OPTIONS: Final[dict[str, Any]] = {
    "max_concurrency": 1,
    "config_kwargs": {
        "retries": {"total_max_attempts": 1},
        "connect_timeout": 10,
        "read_timeout": 180,
        "max_pool_connections": 4 * AT_ONCE,
    },
}
"""Retries and concurrent parts are implemented here, so they are off in the layers below.

The read timeout includes the upload of a part, so it must suffice for all concurrent parts on a slow connection.
"""


class RemoteStorage:
    """Object storage: a put is atomic, and a conditional put creates exclusively."""

    def __init__(self, url: str) -> None:
        """Open the file system of `url`; credentials and endpoint come from environment variables."""
        self.is_s3 = url.startswith(("s3://", "s3a://"))
        options = S3_OPTIONS | {"endpoint_url": _endpoint()} if self.is_s3 else {}
        self.fs, self.root = fsspec.url_to_fs(url, use_listings_cache=False, **options)
        if self.is_s3:
            self.fs.retries = 1
        self.url = self.fs.unstrip_protocol(self.root)
        self.patience = Patience(self.url)
        self._threads = ThreadPoolExecutor(AT_ONCE, "gif-transfer")

    def hurried(self) -> AbstractContextManager[None]:
        """Inside the block, failed requests are retried only briefly."""
        return self.patience.hurried()

    def now(self) -> float:
        """The time by the store's clock, which dates its files."""
        if not self.is_s3:
            return time.time()
        answer = self.patience(self.fs.call_s3, "head_bucket", Bucket=self.fs.split_path(self.root)[0])
        return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"]).timestamp()

    def read(self, path: str) -> bytes:
        """The content of a file; FileNotFoundError if it does not exist."""
        content: bytes = self.patience(self.fs.cat_file, self._at(path))
        return content

    def create(self, path: str, content: bytes) -> None:
        """Write a file that must not exist yet; FileExistsError if it does.

        After a lost answer the retry finds this writer's own file, so `content` must be unique to the writer.
        """
        try:
            self.patience(self.fs.pipe_file, self._at(path), content, mode="create")
        except OSError as error:
            if not isinstance(error, FileExistsError) and not _is_precondition(error):
                raise
            if self._read_if_there(path) != content:
                raise FileExistsError(f"{self._at(path)} exists already") from None

    def _read_if_there(self, path: str) -> bytes | None:
        """The content, or None if the file was removed meanwhile."""
        try:
            return self.read(path)
        except FileNotFoundError:
            return None

    def replace(self, path: str, content: bytes) -> None:
        """Write or overwrite a file; readers see either the old or the new content."""
        self.patience(self.fs.pipe_file, self._at(path), content)

    def copy(self, source: str, path: str) -> None:
        """Copy a stored file within the store, on the server's side."""
        self.patience(self.fs.cp_file, self._at(source), self._at(path))

    def find(self, folder: str, prefix: str = "") -> Iterator[FoundFile]:
        """All files below a folder, at any depth, whose names begin with `prefix`; none if it does not exist.

        Of a folder without folders S3 lists only these. Some servers keep an object for an empty folder: it is not
        counted as a file.
        """
        only = {"prefix": prefix} if self.is_s3 and prefix else {}
        found: dict[str, dict[str, Any]] = self.patience(self.fs.find, self._at(folder), detail=True, **only)
        for path, info in found.items():
            if path == self._at(folder) or not path.rpartition("/")[2].startswith(prefix):
                continue
            written = info.get("LastModified") or info.get("created") or info.get("mtime") or 0
            modified = written if isinstance(written, int | float) else written.timestamp()
            yield FoundFile(path.removeprefix(f"{self.root}/"), int(info["size"]), float(modified))

    def find_uploads(self) -> Iterator[FoundUpload]:
        """Unfinished multipart uploads."""
        if not self.is_s3:
            return
        bucket, key, _ = self.fs.split_path(self.root)
        start = f"{key}/" if key else ""
        answer = self.patience(self.fs.call_s3, "list_multipart_uploads", Bucket=bucket, Prefix=start)
        for upload in answer.get("Uploads") or []:
            path = upload["Key"].removeprefix(start)
            yield FoundUpload(path, upload["UploadId"], upload["Initiated"].timestamp())

    def abort_upload(self, upload: FoundUpload) -> None:
        """Abort a multipart upload; no effect if it has ended."""
        bucket, key, _ = self.fs.split_path(self._at(upload.path))
        with suppress(FileNotFoundError):
            self.patience(self.fs.call_s3, "abort_multipart_upload", Bucket=bucket, Key=key, UploadId=upload.name)

    def remove(self, path: str) -> None:
        """Delete a file or a folder; no effect if it does not exist."""
        with suppress(FileNotFoundError):
            self.patience(self.fs.rm, self._at(path), recursive=True)

    def local_path(self, path: str) -> Path | None:
        """None: files of object storage cannot be opened directly."""
        return None

    def sha256(self, path: str) -> str:
        """SHA-256 of a stored file, read from the store."""
        digest = hashlib.sha256()
        for part in self._parts(path):
            digest.update(part)
        return digest.hexdigest()

    def download(self, path: str, target: Path) -> str:
        """Copy a stored file to a local path; returns its SHA-256."""
        digest = hashlib.sha256()
        with target.open("wb") as file:
            for part in self._parts(path):
                file.write(part)
                digest.update(part)
        return digest.hexdigest()

    def _parts(self, path: str) -> Iterator[bytes]:
        """The content in order, with several parts requested ahead."""
        size: int = self.patience(self.fs.size, self._at(path))
        ahead: deque[Future[bytes]] = deque()
        try:
            for start in range(0, size, PART_BYTES):
                ahead.append(
                    self._threads.submit(
                        with_log_fields(self.patience), self._part, path, start, min(start + PART_BYTES, size)
                    )
                )
                if len(ahead) == AT_ONCE:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for part in ahead:
                part.cancel()

    def _part(self, path: str, start: int, end: int) -> bytes:
        content: bytes = self.fs.cat_file(self._at(path), start=start, end=end)
        if len(content) != end - start:
            raise ConnectionError(f"received {len(content)} bytes of {path} instead of {end - start}")
        return content

    def upload(self, source: Path, path: str) -> str:
        """Copy a local file into the store, large files in parts; returns its SHA-256, computed meanwhile."""
        digest = self._threads.submit(sha256_of, source)
        if self.is_s3 and source.stat().st_size > PART_BYTES:
            self._upload_parts(source, path)
        else:
            self.patience(self.fs.put_file, str(source), self._at(path))
        return digest.result()

    def _upload_parts(self, source: Path, path: str) -> None:
        bucket, key, _ = self.fs.split_path(self._at(path))
        begun = self.patience(self.fs.call_s3, "create_multipart_upload", Bucket=bucket, Key=key)
        upload = {"Bucket": bucket, "Key": key, "UploadId": begun["UploadId"]}
        size = source.stat().st_size
        length = max(PART_BYTES, -(-size // MOST_PARTS))
        parts: list[Future[dict[str, Any]]] = []
        try:
            for number, start in enumerate(range(0, size, length), start=1):
                parts.append(
                    self._threads.submit(with_log_fields(self._upload_part), source, upload, number, start, length)
                )
            self._complete(upload, [part.result() for part in parts], path, size)
        except BaseException:
            for part in parts:
                part.cancel()
            with suppress(OSError), self.hurried():
                self.patience(self.fs.call_s3, "abort_multipart_upload", **upload)
            raise

    def _upload_part(
        self, source: Path, upload: dict[str, str], number: int, start: int, length: int
    ) -> dict[str, Any]:
        with source.open("rb") as file:
            content = os.pread(file.fileno(), length, start)
        answer = self.patience(self.fs.call_s3, "upload_part", **upload, PartNumber=number, Body=content)
        return {"PartNumber": number, "ETag": answer["ETag"]}

    def _complete(self, upload: dict[str, str], parts: list[dict[str, Any]], path: str, size: int) -> None:
        """Complete a multipart upload; after a lost answer it may be complete already."""
        try:
            self.patience(self.fs.call_s3, "complete_multipart_upload", **upload, MultipartUpload={"Parts": parts})
        except FileNotFoundError:
            if self.patience(self.fs.size, self._at(path)) != size:
                raise

    def _at(self, path: str) -> str:
        return f"{self.root}/{path}" if path else str(self.root)


def _endpoint() -> str | None:
    """The server's address. One with credentials is rejected: they would end up in logs."""
    given = os.environ.get("AWS_ENDPOINT_URL")
    if given and CREDENTIALS.search(given):
        raise StoreError("AWS_ENDPOINT_URL contains credentials: pass them in AWS_ACCESS_KEY_ID, not in the address")
    return given


def _is_precondition(error: OSError) -> bool:
    response = getattr(error.__cause__, "response", {})
    return bool(response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 412)
