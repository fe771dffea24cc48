"""Prefect's results in the artifact store: `<store>/prefect/<key>`, small JSON files beside what they name."""

import asyncio
import hashlib
from typing import Any

from prefect.context import FlowRunContext, TaskRunContext
from prefect.filesystems import WritableFileSystem
from prefect.serializers import JSONSerializer

from gif_core.artifacts import RESULTS, Storage, open_storage
from tasks.progress import warn_of_prefect


class StoreResults(WritableFileSystem):
    """A block that says in which store the results of runs lie; it holds no credentials."""

    _block_type_name = "GIF artifact store"
    _block_type_slug = "gif-artifact-store"

    store: str

    def read_path(self, path: str, _sync: bool = True) -> bytes:  # type: ignore[override]
        """The content of a result."""
        return self._open().read(f"{RESULTS}/{path}")

    def write_path(self, path: str, content: bytes, _sync: bool = True) -> None:  # type: ignore[override]
        """Store a result; nobody waits long for that, since what counts is published already."""
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
    """A name for the result of this one task run: Prefect keeps none without a name, and nobody else is to find it."""
    return str(context.task_run.id)


def keep_results_in(url: str) -> None:
    """Let the flow that runs, and its tasks, keep their results in the store of this very run, as JSON.

    Prefect decides where before the flow knows its configuration, so it is changed from within. A flow that fails keeps
    its exception in any case, and Prefect would pickle it.
    """
    context = FlowRunContext.get()
    if context is None:
        return
    with warn_of_prefect("where results lie"):
        kept = {"result_storage": _block_of(url), "serializer": JSONSerializer()}
        context.result_store, context.persist_result = context.result_store.model_copy(update=kept), True


def _block_of(url: str) -> StoreResults:
    """The saved block of a store: one that is not saved could not be found again by its results."""
    name = f"gif-{hashlib.sha256(url.encode()).hexdigest()[:12]}"
    block: Any = StoreResults
    try:
        found: StoreResults = block.load(name, _sync=True)
    except ValueError:
        found = StoreResults(store=url)
        save: Any = found.save
        save(name, overwrite=True, _sync=True)
    return found
