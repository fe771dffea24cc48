"""Parts of a stage as task runs of Prefect, on the engine that the configuration names."""

import logging
from collections.abc import Iterator, Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from gif_core.artifacts import PartJob
from schemas.execution import ExecutionConfig
from tasks.runners import end_with_parent, open_runner, resources, threads_per_part

logger = logging.getLogger(__name__)


class PrefectRunner:
    """Runs parts in threads, in processes, on Ray or on Dask; each is a task run with a name of its own."""

    def __init__(self, execution: ExecutionConfig) -> None:
        """Keep the settings; engines start only when there are parts to compute."""
        self.execution = execution

    @property
    def name(self) -> str:
        """The class of Prefect's task runner."""
        return type(open_runner(self.execution)).__name__

    def map(self, jobs: Sequence[PartJob]) -> Iterator[str]:
        """Compute and store the parts; yield their stored names in order."""
        threads = threads_per_part(self.execution)
        with open_runner(self.execution) as runner, resources(self.execution):
            logger.info("computing %d parts with %s", len(jobs), type(runner).__name__)
            futures = [
                runner.submit(compute_part.with_options(name=job.kind), {"job": job, "threads": threads})
                for job in jobs
            ]
            for future in futures:
                yield future.result()


@task(task_run_name="{job.title}", cache_policy=NO_CACHE, persist_result=False)
def compute_part(job: PartJob, threads: int) -> str:
    """Compute and store a part, on whichever machine this runs; return its stored name."""
    end_with_parent()
    return job.compute_and_store(threads)
