"""A file of metrics for TensorBoard, written by the caller's thread.

TensorBoard's own writer has a thread: on a full disk that prints a traceback before the training reports the fault.
"""

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class EventFile:
    """The metrics of all steps; what an earlier attempt left is removed, because it is written again."""

    def __init__(self, folder: Path) -> None:
        """Open the file in a folder; the caller closes it, also when `begin` finds the disk full."""
        from tensorboard.compat.proto.event_pb2 import Event  # slow to import
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        self.event = Event
        name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}"
        self.records = RecordWriter((folder / name).open("wb"))

    def begin(self) -> None:
        """Write the version of the format."""
        self._write(file_version="brain.Event:2")

    def add(self, metrics: Mapping[str, float], step: int) -> None:
        """Write the metrics of a step; whoever watches sees them at once."""
        values = [{"tag": name, "simple_value": value} for name, value in metrics.items()]
        self._write(step=step, summary={"value": values})

    def _write(self, **fields: Any) -> None:
        self.records.write(self.event(wall_time=time.time(), **fields).SerializeToString())
        self.records.flush()

    def close(self) -> None:
        """Close the file."""
        self.records.close()
