"""Batches on a GPU, copied there during the step before on a stream of their own."""

# Shapes: B images in a batch, H height, W width, C channels.

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import NamedTuple

import torch

from gif_core.training.data.loader import Batch


def copy_ahead(batches: Iterable[Batch], device: torch.device) -> Iterator[tuple[Batch, Batch | None]]:
    """Each batch with its images on the device, and the batch that follows it.

    The copy of a batch is asked for before its predecessor is given out, so that a GPU makes it during that step; the
    images have to lie in pinned memory. Labels stay on the host.
    """
    stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
    before: _Copy | None = None
    for batch in batches:
        copy = _start_copy(batch, device, stream)
        if before is not None:
            yield before.wait(), copy.batch
        before = copy
    if before is not None:
        yield before.wait(), None


class _Copy(NamedTuple):
    """A batch that is on its way to the device."""

    batch: Batch
    event: torch.cuda.Event | None
    """When it has arrived."""

    def wait(self) -> Batch:
        """Let the work that is asked for from now on wait for the batch; the host goes on."""
        if self.event is not None:
            training = torch.cuda.current_stream(self.batch.images_BHWC.device)
            training.wait_event(self.event)
            self.batch.images_BHWC.record_stream(training)  # whose memory it keeps until then
        return self.batch


def _start_copy(batch: Batch, device: torch.device, stream: torch.cuda.Stream | None) -> _Copy:
    with torch.cuda.stream(stream) if stream else nullcontext():
        copied = replace(batch, images_BHWC=batch.images_BHWC.to(device, non_blocking=True))
    return _Copy(copied, stream.record_event() if stream else None)
