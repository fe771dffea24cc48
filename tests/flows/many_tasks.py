"""A flow of so many small tasks at once: python many_tasks.py 300."""

import sys

from prefect import flow, task


@task(persist_result=False)
def count(number: int) -> int:
    return number


@flow(name="many tasks", persist_result=False)
def many_tasks(number: int) -> int:
    return sum(count.map(range(number)).result())


if __name__ == "__main__":
    wanted = int(sys.argv[1])
    assert many_tasks(wanted) == wanted * (wanted - 1) // 2
