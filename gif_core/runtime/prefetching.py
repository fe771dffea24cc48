"""Loading items ahead of their use: in threads, in order, with a bounded number in flight."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

from gif_core.runtime.logs import with_log_fields

PREFETCH_DEPTH: Final = 2

Item = TypeVar("Item")
Loaded = TypeVar("Loaded")


def prefetch(
    load: Callable[[Item], Loaded], items: Iterable[Item], depth: int = PREFETCH_DEPTH, workers: int = 1
) -> Generator[Loaded, None, None]:
    """Yield `load(item)` for every item in order, loading up to `depth` ahead in threads that end with the iterator."""
    pending: deque[Future[Loaded]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="gif-prefetch") as pool:
        try:
            for item in items:
                pending.append(pool.submit(with_log_fields(load), item))
                if len(pending) > depth:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
