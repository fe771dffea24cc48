"""Runtime: what every package may use of the machine: devices, processes, memory, logs, mapped matrices.

devices        The device is chosen once, at the edge; the core follows its input
distribution   The installed distribution: its name, the versions it was tested with, and commands that add packages...
formatting     Numbers and dates as identities read them
interrupts     Ctrl-C and terminations that must not come in the middle of something
lazy           Lazy public faces: a package names what it offers, and a file behind it is imported when something of ...
logs           Log lines that say which run, stage and artifact they are about
matrices       A matrix in a safetensors file that is mapped into memory: written and read a part at a time, by many ...
memory         The most memory that this process and those it started have held together
prefetching    Doing work ahead of whoever needs it: in threads, in order, and never too far
process_group  The processes that train together, under torchrun or alone
process_trees  Families of processes: whatever was started with a mark in its environment, however deep below, ends t...
sharded_rows   The rows of a large matrix, wherever they lie: on the device, in memory or in a mapped file, in one pr...
version        Which code made an artifact: the package's version and, in a checkout, its commit
workers        Processes that end when nobody waits for them any more
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "CHUNK",
    "CONSTRAINTS",
    "DISTRIBUTION",
    "FAULT",
    "KIND",
    "MARK",
    "PATIENCE",
    "STARTED_BY",
    "JsonLines",
    "Matrix",
    "MemoryWatch",
    "ProcessGroup",
    "Rows",
    "carrying_on",
    "check_gpus",
    "code_version",
    "create_matrix",
    "decimal",
    "describe_fault",
    "duration",
    "end_family",
    "end_with_parent",
    "expect_scattered",
    "flag_words",
    "install_command",
    "install_extra_command",
    "join_processes",
    "leave_processes",
    "lines_about",
    "map_matrix",
    "map_tensor",
    "metric_name",
    "moment",
    "own_device",
    "own_range",
    "parse_size",
    "percent",
    "pick_device",
    "plain_name",
    "postponed_interrupts",
    "prefetch",
    "say_about",
    "set_name",
    "size",
    "thousands",
    "unit_rows",
]

if TYPE_CHECKING:
    from gif_core.runtime.devices import check_gpus, own_device, pick_device
    from gif_core.runtime.distribution import CONSTRAINTS, DISTRIBUTION, install_command, install_extra_command
    from gif_core.runtime.formatting import (
        decimal,
        duration,
        flag_words,
        metric_name,
        moment,
        parse_size,
        percent,
        plain_name,
        set_name,
        size,
        thousands,
    )
    from gif_core.runtime.interrupts import postponed_interrupts
    from gif_core.runtime.logs import JsonLines, carrying_on, lines_about, say_about
    from gif_core.runtime.matrices import Matrix, create_matrix, expect_scattered, map_matrix, map_tensor
    from gif_core.runtime.memory import MemoryWatch
    from gif_core.runtime.prefetching import prefetch
    from gif_core.runtime.process_group import ProcessGroup, join_processes, leave_processes
    from gif_core.runtime.process_trees import MARK, PATIENCE, end_family
    from gif_core.runtime.sharded_rows import CHUNK, Rows, own_range, unit_rows
    from gif_core.runtime.version import code_version
    from gif_core.runtime.workers import FAULT, KIND, STARTED_BY, describe_fault, end_with_parent
else:
    __getattr__ = lazy_imports(__name__)
