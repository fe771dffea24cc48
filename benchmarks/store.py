"""Publishing and fetching an artifact over S3 against a bare parallel multipart client on the same bytes.

python benchmarks/store.py [--megabytes 2048] [--files 8] [--rounds 3]

The reference is aiobotocore with as many parts of the same size on their way as the store has; it neither digests nor
verifies, and what it fetches is written to files too. Both are measured in turn against one SeaweedFS server that is
started here; the ratio of a round is taken against the reference just before and just after.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from aiobotocore.session import get_session

from flows.cli.seaweed import BUCKET, prepare_seaweed
from gif_core.artifacts import AT_ONCE, PART_BYTES, ArtifactStore
from schemas.artifacts import ArtifactRef

KEY = "a" * 64


class BareClient:
    """Uploads files in parts and downloads them in ranges, `AT_ONCE` at a time."""

    def put(self, sources: list[Path]) -> None:
        """Upload files to keys of their own names."""
        asyncio.run(self._with_client(self._put_file, sources))

    def get(self, targets: list[Path]) -> None:
        """Download the keys of these names."""
        asyncio.run(self._with_client(self._get_file, targets))

    async def _with_client(self, each: Callable[..., Any], paths: list[Path]) -> None:
        self.free = asyncio.Semaphore(AT_ONCE)
        async with get_session().create_client("s3") as client:
            await asyncio.gather(*(each(client, path) for path in paths))

    async def _put_file(self, client: Any, path: Path) -> None:
        where = {"Bucket": BUCKET, "Key": f"bare/{path.name}"}
        upload = where | {"UploadId": (await client.create_multipart_upload(**where))["UploadId"]}
        starts = range(0, path.stat().st_size, PART_BYTES)
        done = await asyncio.gather(*(self._put_part(client, upload, path, *part) for part in enumerate(starts, 1)))
        await client.complete_multipart_upload(**upload, MultipartUpload={"Parts": done})

    async def _put_part(
        self, client: Any, upload: dict[str, str], path: Path, number: int, start: int
    ) -> dict[str, Any]:
        async with self.free:
            with path.open("rb") as file:
                content = os.pread(file.fileno(), PART_BYTES, start)
            answer = await client.upload_part(**upload, PartNumber=number, Body=content)
        return {"PartNumber": number, "ETag": answer["ETag"]}

    async def _get_file(self, client: Any, path: Path) -> None:
        where = {"Bucket": BUCKET, "Key": f"bare/{path.name}"}
        size = (await client.head_object(**where))["ContentLength"]
        with path.open("wb") as file:
            starts = range(0, size, PART_BYTES)
            await asyncio.gather(*(self._get_part(client, where, file.fileno(), start) for start in starts))

    async def _get_part(self, client: Any, where: dict[str, str], file: int, start: int) -> None:
        async with self.free:
            answer = await client.get_object(**where, Range=f"bytes={start}-{start + PART_BYTES - 1}")
            os.pwrite(file, await answer["Body"].read(), start)


@contextmanager
def seaweed(folder: Path) -> Iterator[None]:
    """Start a server for this benchmark and set the environment variables of its address."""
    server = prepare_seaweed(folder)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            server.command(), cwd=folder, env=os.environ | server.credentials, stdout=log, stderr=log
        )
    try:
        while not server.is_ready():
            time.sleep(0.2)
        os.environ.update(server.environment)
        yield
    finally:
        process.terminate()
        process.wait()


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds a call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def publish(store: ArtifactStore, sources: list[Path]) -> tuple[ArtifactRef, float]:
    """Publish files as a stage does; return the seconds that publishing took."""
    with store.draft(store.ref("ingestion", KEY), {}, {}) as draft:
        for source in sources:
            os.link(source, draft.folder / source.name)
        took = seconds(lambda: store.publish(draft, replace=True))
    return draft.ref, took


def measure(store: ArtifactStore, folder: Path, sources: list[Path]) -> dict[str, tuple[float, float]]:
    """Return seconds of the store and of the reference (mean of before and after), for upload and download."""
    bare, targets = BareClient(), [folder / "got" / source.name for source in sources]
    before = seconds(lambda: bare.put(sources))
    ref, putting = publish(store, sources)
    after = seconds(lambda: bare.put(sources))
    shutil.rmtree(os.environ["GIF_CACHE"])
    get_before = seconds(lambda: bare.get(targets))
    getting = seconds(lambda: store.open(ref).paths())
    get_after = seconds(lambda: bare.get(targets))
    store.remove(ref)
    return {"publish": (putting, (before + after) / 2), "fetch": (getting, (get_before + get_after) / 2)}


def main() -> None:
    """Measure, print, and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=2048, help="Size of the artifact.")
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    ratios: dict[str, list[float]] = {"publish": [], "fetch": []}
    speeds: dict[str, list[float]] = {"publish": [], "fetch": []}
    with tempfile.TemporaryDirectory() as name, seaweed(Path(name) / "s3"):
        folder = Path(name)
        os.environ |= {"GIF_CACHE": str(folder / "cache"), "GIF_CACHE_SIZE": "1TB"}
        for part in ("sources", "got"):
            (folder / part).mkdir()
        sources = [folder / "sources" / f"shard-{number:03d}" for number in range(given.files)]
        for source in sources:
            with source.open("wb") as file:
                for _ in range(given.megabytes // given.files):
                    file.write(os.urandom(2**20))
        store = ArtifactStore(f"s3://{BUCKET}/store")
        for number in range(given.rounds):
            for what, (ours, reference) in measure(store, folder, sources).items():
                ratios[what].append(reference / ours)
                speeds[what].append(given.megabytes / ours)
            print(f"round {number}: " + ", ".join(f"{what} / bare {ratios[what][-1]:.3f}" for what in ratios))
    metrics = {f"{what}_over_bare": round(median(ratios[what]), 3) for what in ratios}
    metrics |= {f"{what}_megabytes_per_second": round(median(speeds[what])) for what in speeds}
    for what, metric in metrics.items():
        print(f"{what}: {metric}")
    print(json.dumps({"benchmark": "store", **vars(given), **metrics}))


if __name__ == "__main__":
    main()
