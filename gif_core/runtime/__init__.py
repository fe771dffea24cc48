"""Runtime: devices, processes, memory, logging and mapped files, for use by every package.

devices        choosing the device; giving concurrent processes different GPUs
allocation     what the allocator does with freed memory
process_group  the processes that train together under torchrun: all-reduce, gather, rank 0
jobs           running a job in this process or under torchrun; the `main` of all worker processes
rendezvous     how the machines of a job reach each other
connections    noticing that the machine at the other end is gone
torchrun       starting processes under torchrun, reading what they report, ending them
process_trees  ending all descendants of a service together
workers        worker processes that end with their parent and report why they failed
interrupts     postponing SIGINT and SIGTERM; ending by any of them as by Ctrl-C
progress       Progress, which stages yield; rates and tickers
prefetching    loading items ahead of their use in threads
memory         peak memory of a process tree
sampling       measuring again and again while a block runs
gpus           memory and time of the GPUs that a stage uses
matrices       memory-mapped float32 tensors in safetensors files
sharded_rows   a matrix whose rows are divided among processes; unit rows
logs           log lines that carry run, stage and artifact; JSON logging; milestones of a run
terminal_text  text from outside, made safe for a terminal
formatting     numbers, sizes, durations, dates and metric names as text
distribution   the installed distribution: its name, tested versions, and commands that add packages
unchanged      answers about a file, computed once while the file does not change
environment    the machine and the packages, as manifests record them
version        the version and commit of the code
lazy           lazy imports of package faces
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
    "GpuWatch",
    "JobWorker",
    "JsonLines",
    "MachinesApartError",
    "Matrix",
    "MemoryWatch",
    "ProcessGroup",
    "Progress",
    "Rate",
    "ShardedRows",
    "Ticker",
    "add_log_fields",
    "check_elastic",
    "check_gpus",
    "code_version",
    "copies_made",
    "count_processes",
    "counted",
    "create_matrix",
    "decimal",
    "describe_environment",
    "describe_fault",
    "device_memory",
    "duration",
    "end_process_tree",
    "end_silent_connections",
    "end_with_parent",
    "ending_by_signal",
    "expect_scattered",
    "flag_words",
    "freed_memory_kept",
    "gather_on_hosts",
    "handling_signals",
    "install_command",
    "install_extra_command",
    "interface_of",
    "join_processes",
    "leave_processes",
    "log_fields",
    "map_matrix",
    "map_tensor",
    "metric_name",
    "milestones",
    "milestones_beside",
    "moment",
    "once_per_file",
    "own_address",
    "own_device",
    "own_range",
    "parse_count",
    "parse_size",
    "percent",
    "pick_device",
    "plain_name",
    "postponed_interrupts",
    "prefetch",
    "printable",
    "rendezvous_options",
    "result_of",
    "run_module",
    "runs_behind",
    "set_name",
    "size",
    "split_endpoint",
    "thousands",
    "to_device",
    "tuned_kernels",
    "unit_rows",
    "with_log_fields",
]

if TYPE_CHECKING:
    from gif_core.runtime.allocation import freed_memory_kept
    from gif_core.runtime.connections import end_silent_connections
    from gif_core.runtime.devices import (
        check_gpus,
        copies_made,
        device_memory,
        own_device,
        pick_device,
        runs_behind,
        to_device,
        tuned_kernels,
    )
    from gif_core.runtime.distribution import CONSTRAINTS, DISTRIBUTION, install_command, install_extra_command
    from gif_core.runtime.environment import describe_environment
    from gif_core.runtime.formatting import (
        counted,
        decimal,
        duration,
        flag_words,
        metric_name,
        moment,
        parse_count,
        parse_size,
        percent,
        plain_name,
        set_name,
        size,
        thousands,
    )
    from gif_core.runtime.gpus import GpuWatch
    from gif_core.runtime.interrupts import ending_by_signal, handling_signals, postponed_interrupts
    from gif_core.runtime.jobs import JobWorker
    from gif_core.runtime.logs import (
        JsonLines,
        add_log_fields,
        log_fields,
        milestones,
        milestones_beside,
        with_log_fields,
    )
    from gif_core.runtime.matrices import Matrix, create_matrix, expect_scattered, map_matrix, map_tensor
    from gif_core.runtime.memory import MemoryWatch
    from gif_core.runtime.prefetching import prefetch
    from gif_core.runtime.process_group import ProcessGroup, gather_on_hosts, join_processes, leave_processes
    from gif_core.runtime.process_trees import MARK, PATIENCE, end_process_tree
    from gif_core.runtime.progress import Progress, Rate, Ticker, result_of
    from gif_core.runtime.rendezvous import MachinesApartError, interface_of, own_address, split_endpoint
    from gif_core.runtime.sharded_rows import CHUNK, ShardedRows, own_range, unit_rows
    from gif_core.runtime.terminal_text import printable
    from gif_core.runtime.torchrun import check_elastic, count_processes, rendezvous_options, run_module
    from gif_core.runtime.unchanged import once_per_file
    from gif_core.runtime.version import code_version
    from gif_core.runtime.workers import FAULT, KIND, STARTED_BY, describe_fault, end_with_parent
else:
    __getattr__ = lazy_imports(__name__)
