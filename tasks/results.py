"""Prefect's results in the artifact store: small JSON files `<store>/prefect/<key>`."""

import asyncio
import hashlib
from typing import Any

from prefect.context import FlowRunContext, TaskRunContext
from prefect.filesystems import WritableFileSystem
from prefect.serializers import JSONSerializer

from gif_core.artifacts import RESULTS, Storage, open_storage
from tasks.progress import warn_of_prefect


class StoreResults(WritableFileSystem):
    """A block with the address of the store that holds the results of runs; it holds no credentials."""

    _block_type_name = "GIF artifact store"
    _block_type_slug = "gif-artifact-store"

    store: str

    def read_path(self, path: str, _sync: bool = True) -> bytes:  # type: ignore[override]
        """The content of a result."""
        return self._open().read(f"{RESULTS}/{path}")

    def write_path(self, path: str, content: bytes, _sync: bool = True) -> None:  # type: ignore[override]
        """Store a result with short timeouts: the artifact itself is published already."""
        storage = self._open()
        with storage.hurried():
            storage.replace(f"{RESULTS}/{path}", content)

    async def aread_path(self, path: str) -> bytes:
        """The content of a result."""
        return await asyncio.to_thread(self.read_path, path)

    async def awrite_path(self, path: str, content: bytes) -> None:
        """Store a result."""
        await asyncio.to_thread(self.write_path, path, content)

    def _open(self) -> Storage:
        return open_storage(self.store)


def result_key(context: TaskRunContext, parameters: dict[str, Any]) -> str:
    """The key of a result, unique to its task run: Prefect stores none without a key, and no other run may reuse it."""
    return str(context.task_run.id)


def keep_results_in(url: str) -> None:
    """Store the results of the current flow run and its tasks in this run's artifact store, as JSON.

    Prefect chooses the location before the flow has read its configuration, so the flow changes it. A failed flow
    always stores its exception, which Prefect would pickle by default.
    """
    context = FlowRunContext.get()
    if context is None:
        return
    with warn_of_prefect("where results lie"):
        kept = {"result_storage": _block_of(url), "serializer": JSONSerializer()}
        context.result_store, context.persist_result = context.result_store.model_copy(update=kept), True


def _block_of(url: str) -> StoreResults:
    """The saved block of a store; results refer to their block by its saved id."""
    name = f"gif-{hashlib.sha256(url.encode()).hexdigest()[:12]}"
    block: Any = StoreResults
    try:
        found: StoreResults = block.load(name, _sync=True)
    except ValueError:
        found = StoreResults(store=url)
        save: Any = found.save
        save(name, overwrite=True, _sync=True)
    return found
