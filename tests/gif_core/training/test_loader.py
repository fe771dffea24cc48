import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from gif_core.images import IMAGE_SIZE, Faces
from gif_core.synthetic import draw_jpeg
from gif_core.training.data import DecoderError, load_batches, loader, plan_batches
from gif_core.training.data.augmentation import augment
from gif_core.training.data.decoders import Decoder, SharedBatches
from gif_core.training.data.loader import Batch
from gif_core.training.data.sampler import BatchPlan
from schemas.training import TrainingConfig

COUNT = 50
CONFIG = TrainingConfig.model_validate(
    {"batch_size": 12, "epochs": 2, "augmentation": {"low_resolution": 0.5, "blur": 0.5, "hsv": 0.5, "grey": 0.2}}
)


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory, write_shard: Callable) -> Faces:
    rows = [(number // 5, f"{number}.jpg", draw_jpeg(0, number // 5, number % 5)) for number in range(COUNT)]
    return Faces([write_shard(tmp_path_factory.mktemp("faces") / "a.arrow", rows, 20)])


@pytest.fixture(scope="module")
def unbroken(faces: Faces) -> list[Batch]:
    """All batches, loaded by one worker for one process."""
    return load(faces)


@pytest.fixture
def decoders(monkeypatch: pytest.MonkeyPatch) -> list[Decoder]:
    """All processes that a test starts."""
    started: list[Decoder] = []

    class Recorded(Decoder):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)
            started.append(self)

    monkeypatch.setattr(loader, "Decoder", Recorded)
    return started


def plans(**options: int) -> Iterator[BatchPlan]:
    return plan_batches(COUNT, CONFIG, seed=0, **options)


def load(faces: Faces, workers: int = 1, **options: int) -> list[Batch]:
    return list(load_batches(faces, plans(**options), workers=workers))


def bytes_of(batches: list[Batch]) -> list[tuple[int, bytes, bytes]]:
    return [(b.epoch, b.images_BHWC.numpy().tobytes(), b.labels_B.numpy().tobytes()) for b in batches]


def loader_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("gif-loader")]


def test_a_batch_holds_what_was_planned(faces: Faces) -> None:
    for batch, plan in zip(load(faces, workers=2), plans(), strict=True):
        expected = faces.load(plan.indices)
        expected[plan.flips] = expected[plan.flips, :, ::-1]
        augment(expected, plan.augmentation)
        assert np.array_equal(batch.images_BHWC.numpy(), expected)
        assert np.array_equal(batch.labels_B.numpy(), faces.labels_N[plan.indices])
        assert batch.epoch == plan.epoch


def test_the_bytes_do_not_depend_on_workers_or_on_how_a_batch_is_cut(
    faces: Faces, unbroken: list[Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "SMALLEST_PART", 5)
    assert bytes_of(load(faces, workers=3)) == bytes_of(unbroken)


@pytest.mark.parametrize("world", [2, 3])
def test_several_processes_together_load_the_images_of_one(faces: Faces, unbroken: list[Batch], world: int) -> None:
    shares = zip(*[load(faces, rank=rank, world=world) for rank in range(world)], strict=True)
    for whole, parts in zip(unbroken, shares, strict=True):
        assert torch.equal(torch.cat([part.images_BHWC for part in parts]), whole.images_BHWC)
        assert torch.equal(torch.cat([part.labels_B for part in parts]), whole.labels_B)


@pytest.mark.parametrize("step", [1, 4, 6])
def test_the_images_after_a_resumption_are_those_of_an_unbroken_run(
    faces: Faces, unbroken: list[Batch], step: int
) -> None:
    assert bytes_of(load(faces, start_step=step)) == bytes_of(unbroken)[step:]


def test_a_batch_that_is_kept_is_not_overwritten(faces: Faces) -> None:
    kept, copies = [], []
    for batch in load_batches(faces, plans()):
        kept.append(batch)
        copies.append(batch.images_BHWC.clone())
    assert all(torch.equal(batch.images_BHWC, copy) for batch, copy in zip(kept, copies, strict=True))


def test_the_place_of_a_forgotten_batch_is_used_again() -> None:
    memory = SharedBatches(4)
    first, images = memory.take()
    second, others = memory.take()
    assert images.shape == (4, IMAGE_SIZE, IMAGE_SIZE, 3)
    view = torch.from_numpy(images)[1:, 5]
    del images
    assert memory.take()[0] not in (first, second)
    del view
    assert memory.take()[0] == first
    del others
    memory.close()


def test_processes_and_threads_end_when_the_iterator_is_closed(faces: Faces, decoders: list[Decoder]) -> None:
    batches = load_batches(faces, plans(), workers=2)
    next(batches)
    assert len(decoders) == 2
    assert loader_threads()
    batches.close()
    assert all(decoder.process.poll() is not None for decoder in decoders)
    assert not loader_threads()


def test_processes_and_threads_end_when_all_batches_are_read(faces: Faces, decoders: list[Decoder]) -> None:
    load(faces, workers=2)
    assert all(decoder.process.poll() is not None for decoder in decoders)
    assert not loader_threads()


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
def test_what_a_whole_group_is_told_does_not_end_decoding_before_its_consumer(
    faces: Faces, decoders: list[Decoder], unbroken: list[Batch], told: signal.Signals
) -> None:
    batches = load_batches(faces, plans(), workers=1)
    first = next(batches)
    decoders[0].process.send_signal(told)
    assert bytes_of([first, *batches]) == bytes_of(unbroken)


def test_processes_and_threads_end_when_the_consumer_fails(faces: Faces, decoders: list[Decoder]) -> None:
    def consume() -> None:
        with closing(load_batches(faces, plans())) as batches:
            for _ in batches:
                raise ArithmeticError

    with pytest.raises(ArithmeticError):
        consume()
    assert all(decoder.process.poll() is not None for decoder in decoders)
    assert not loader_threads()


def test_without_batches_no_process_is_started(faces: Faces, decoders: list[Decoder]) -> None:
    assert not list(load_batches(faces, [], workers=4))
    assert not decoders


def test_only_a_few_batches_are_planned_ahead(faces: Faces, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "SMALLEST_PART", 4)
    planned: list[BatchPlan] = []

    def count() -> Iterator[BatchPlan]:
        for plan in plan_batches(COUNT, CONFIG.model_copy(update={"epochs": 10}), seed=0):
            planned.append(plan)
            yield plan

    with closing(load_batches(faces, count())) as batches:
        for read, _ in zip(range(1, 20), batches, strict=False):
            assert len(planned) <= read + 3


def test_an_error_about_a_damaged_image_names_its_row_and_name(
    tmp_path: Path, write_shard: Callable, decoders: list[Decoder]
) -> None:
    rows = [(0, f"ann/{number}.jpg", draw_jpeg(0, 0, number)) for number in range(COUNT)]
    rows[31] = (0, "ann/31.jpg", b"no image")
    damaged = Faces([write_shard(tmp_path / "a.arrow", rows, COUNT)])
    config = CONFIG.model_copy(update={"batch_size": COUNT})
    with pytest.raises(ValueError, match=r"face 31 \(ann/31.jpg\): not an image"):
        list(load_batches(damaged, plan_batches(COUNT, config, seed=0)))
    assert all(decoder.process.poll() is not None for decoder in decoders)


def test_a_process_that_dies_is_an_error_and_not_a_hang(faces: Faces, decoders: list[Decoder]) -> None:
    many = plan_batches(COUNT, CONFIG.model_copy(update={"epochs": 10}), seed=0)  # more than are decoded ahead
    batches = load_batches(faces, many)
    next(batches)
    decoders[0].process.kill()
    with pytest.raises(DecoderError, match="ended with code -9"):
        list(batches)


def test_a_process_ends_by_itself_when_the_training_is_gone(faces: Faces) -> None:
    memory = SharedBatches(1)
    decoder = Decoder(faces.paths, memory)
    decoder.connection.close()
    assert decoder.process.wait(20) == 0
    memory.close()


def test_pinned_batches_hold_the_same_images(
    faces: Faces, unbroken: list[Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a GPU nothing can be pinned: ordinary memory stands in for it."""
    if not torch.cuda.is_available():
        empty_like = torch.empty_like
        monkeypatch.setattr(torch, "empty_like", lambda tensor, pin_memory: empty_like(tensor))
        monkeypatch.setattr(torch.Tensor, "pin_memory", torch.Tensor.clone)
    pinned = list(load_batches(faces, plans(), workers=2, pin=True))
    assert bytes_of(pinned) == bytes_of(unbroken)
