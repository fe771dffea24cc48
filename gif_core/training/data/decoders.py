"""Processes that decode faces into memory shared with the loader.

Not threads: OpenCV's binding takes Python's lock several times for each image, so that threads wait for each other
and hold up the training step.
"""

# Shapes: B images in a batch, H height, W width, C channels.

import mmap
import os
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from gif_core.images import IMAGE_SIZE, Faces
from gif_core.training.data.augmentation import augment
from gif_core.training.data.sampler import BatchPlan
from schemas.errors import GifError

ROOT: Final = Path(__file__).parents[3]
"""Where this package lies: the processes are to run the same code, wherever they are started."""
SHAPE: Final = (IMAGE_SIZE, IMAGE_SIZE, 3)
IMAGE_BYTES: Final = IMAGE_SIZE * IMAGE_SIZE * 3


class DecoderError(GifError, RuntimeError):
    """A decoding process ended by itself."""


class SharedBatches:
    """Places for batches in memory without a name: it is gone when the last process that has it is gone."""

    def __init__(self, batch_size: int, descriptor: int | None = None) -> None:
        """Make the memory, or take part in that of another process."""
        self.batch_size = batch_size
        self.stride = -(-batch_size * IMAGE_BYTES // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        self.descriptor = _new_memory() if descriptor is None else descriptor
        self.places: list[mmap.mmap] = []
        self.free: list[int] = []

    def take(self) -> tuple[int, NDArray[np.uint8]]:
        """A place for a batch, and its number. It is free again when the array and all its views are forgotten."""
        if not self.free:
            os.ftruncate(self.descriptor, (len(self.places) + 1) * self.stride)
            self.free.append(len(self.places))
        number = self.free.pop()
        images_BHWC = self.open(number)
        weakref.finalize(images_BHWC.base, self.free.append, number).atexit = False
        return number, images_BHWC

    def open(self, number: int) -> NDArray[np.uint8]:
        """The images of a place."""
        while len(self.places) <= number:
            offset = len(self.places) * self.stride
            self.places.append(mmap.mmap(self.descriptor, self.stride, offset=offset))
        pixels = np.frombuffer(self.places[number], np.uint8, self.batch_size * IMAGE_BYTES)
        return pixels.reshape(-1, *SHAPE)

    def close(self) -> None:
        """Let go of the memory; arrays that are in use keep theirs."""
        os.close(self.descriptor)


def _new_memory() -> int:
    """A file without a name, in memory where the system offers that."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("gif-batches")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Decoder:
    """One process; it ends when it is stopped or when this process is gone."""

    def __init__(self, shards: Sequence[Path], memory: SharedBatches) -> None:
        """Start it; it needs a fraction of a second until it decodes."""
        self.connection, theirs = Pipe()
        inherited = (theirs.fileno(), memory.descriptor)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, *map(str, inherited)],
            pass_fds=inherited,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))},
        )
        theirs.close()
        self.connection.send((list(shards), memory.batch_size))

    def fill(self, number: int, start: int, plan: BatchPlan) -> None:
        """Have the planned images decoded into place `number` of the shared memory, from image `start` on."""
        try:
            self.connection.send((number, start, plan))
            fault: Exception | None = self.connection.recv()
        except (EOFError, OSError):
            raise DecoderError(f"a process that decodes images ended with code {self.process.wait()}") from None
        if fault is not None:
            raise fault

    def stop(self) -> None:
        """End the process, whatever it is doing: its result is no longer needed."""
        self.process.kill()
        self.process.wait()


def serve(connection: Connection, descriptor: int) -> None:
    """Do what the other side asks for, until there is no other side."""
    shards, batch_size = connection.recv()
    faces, memory = Faces(shards), SharedBatches(batch_size, descriptor)
    while True:
        number, start, plan = connection.recv()
        images_BHWC = memory.open(number)[start : start + len(plan)]
        connection.send(_attempt(faces, images_BHWC, plan))


def load_part(faces: Faces, images_BHWC: NDArray[np.uint8], plan: BatchPlan) -> None:
    """Decode the planned images, and do to each what is planned."""
    faces.fill(images_BHWC, plan.indices, plan.flips)
    augment(images_BHWC, plan.augmentation)


def _attempt(faces: Faces, images_BHWC: NDArray[np.uint8], plan: BatchPlan) -> Exception | None:
    try:
        load_part(faces, images_BHWC, plan)
    except Exception as error:  # whatever it is, it is raised where the batch is asked for
        return error
    return None


def main() -> None:
    """The process: `python -m gif_core.training.data.decoders CONNECTION MEMORY`, two inherited file descriptors."""
    for ignored in (signal.SIGINT, signal.SIGTERM):  # sent to the whole group; the loader ends this process
        signal.signal(ignored, signal.SIG_IGN)
    cv2.setNumThreads(1)
    connection, memory = map(int, sys.argv[1:])
    with suppress(EOFError, ConnectionError):
        serve(Connection(connection), memory)


if __name__ == "__main__":
    main()
