import numpy as np
import pytest
from numpy.typing import NDArray

from gif_core.training.data import plan_batches
from gif_core.training.data.sampler import FLIPS, ORDER, BatchPlan, draw_groups, draw_pairs_and_images
from schemas.training import TrainingConfig

EVERYTHING = {"low_resolution": 0.5, "blur": 0.5, "hsv": 0.5, "grey": 0.5}


def make_config(**changes: object) -> TrainingConfig:
    return TrainingConfig.model_validate({"batch_size": 16, "epochs": 3, "augmentation": EVERYTHING} | changes)


def numbers(plan: BatchPlan) -> list[np.ndarray]:
    """All that a plan decides."""
    decided = plan.augmentation
    drawn = [decided.scales_B, decided.sigmas_B, decided.hsv_B, decided.shifts_B3, decided.grey_B]
    return [plan.indices, plan.flips, *drawn]


def assert_same(first: list[BatchPlan], second: list[BatchPlan]) -> None:
    assert [plan.epoch for plan in first] == [plan.epoch for plan in second]
    for one, other in zip(first, second, strict=True):
        for left, right in zip(numbers(one), numbers(other), strict=True):
            assert np.array_equal(left, right)


def join(shares: tuple[BatchPlan, ...]) -> list[np.ndarray]:
    return [np.concatenate(arrays) for arrays in zip(*map(numbers, shares), strict=True)]


def test_an_epoch_shows_every_image_once_and_drops_the_ragged_batch() -> None:
    plans = list(plan_batches(35, make_config(epochs=2), seed=0))
    assert [(plan.epoch, len(plan)) for plan in plans] == [(0, 16), (0, 16), (1, 16), (1, 16)]
    for epoch in range(2):
        seen = np.concatenate([plan.indices for plan in plans if plan.epoch == epoch])
        assert len(set(seen.tolist())) == 32


def test_fewer_images_than_a_batch_are_one_batch() -> None:
    plans = list(plan_batches(10, make_config(epochs=1), seed=0))
    assert [sorted(plan.indices.tolist()) for plan in plans] == [list(range(10))]


@pytest.mark.parametrize("world", [1, 2, 4, 8])
def test_all_processes_together_have_the_samples_of_one(world: int) -> None:
    alone = list(plan_batches(100, make_config(), seed=3))
    shares = zip(*[plan_batches(100, make_config(), seed=3, rank=r, world=world) for r in range(world)], strict=True)
    for whole, parts in zip(alone, shares, strict=True):
        assert {len(part) for part in parts} == {16 // world}
        for expected, joined in zip(numbers(whole), join(parts), strict=True):
            assert np.array_equal(expected, joined)


@pytest.mark.parametrize("step", range(19))
def test_a_training_goes_on_from_any_step_as_if_it_had_not_stopped(step: int) -> None:
    whole = list(plan_batches(100, make_config(), seed=0))
    assert len(whole) == 18
    assert_same(list(plan_batches(100, make_config(), seed=0, start_step=step)), whole[step:])


def test_a_process_of_several_goes_on_likewise() -> None:
    def share(start: int) -> list[BatchPlan]:
        return list(plan_batches(100, make_config(), seed=0, start_step=start, rank=1, world=2))

    assert_same(share(8), share(0)[8:])


def test_epochs_and_seeds_differ_in_order_and_mirroring() -> None:
    plans = {seed: list(plan_batches(100, make_config(), seed=seed)) for seed in (0, 1)}
    for first, second in [(plans[0][0], plans[0][6]), (plans[0][0], plans[1][0])]:
        assert not np.array_equal(first.indices, second.indices)
        assert not np.array_equal(first.flips, second.flips)
        assert not np.array_equal(first.augmentation.shifts_B3, second.augmentation.shifts_B3)


def test_the_order_is_numpys_permutation_in_half_the_memory() -> None:
    plans = list(plan_batches(96, make_config(), seed=5))
    for epoch in range(3):
        order = np.random.default_rng([5, ORDER, epoch]).permutation(96)
        flips = np.random.default_rng([5, FLIPS, epoch]).random(96) < 0.5
        of_epoch = [plan for plan in plans if plan.epoch == epoch]
        assert np.array_equal(np.concatenate([plan.indices for plan in of_epoch]), order)
        assert np.array_equal(np.concatenate([plan.flips for plan in of_epoch]), flips)


def test_half_of_the_images_are_mirrored_and_none_without_flip() -> None:
    (mirrored,) = plan_batches(4000, make_config(batch_size=4000, epochs=1), seed=0)
    (plain,) = plan_batches(4000, make_config(batch_size=4000, epochs=1, flip=False), seed=0)
    assert 0.45 < mirrored.flips.mean() < 0.55
    assert not plain.flips.any()
    assert np.array_equal(mirrored.indices, plain.indices)


def test_settings_of_augmentation_leave_order_and_mirroring_alone() -> None:
    with_all = next(plan_batches(100, make_config(), seed=0))
    without = next(plan_batches(100, make_config(augmentation={}), seed=0))
    assert np.array_equal(with_all.indices, without.indices)
    assert np.array_equal(with_all.flips, without.flips)


def test_a_batch_that_cannot_be_shared_equally_is_refused() -> None:
    with pytest.raises(ValueError, match=r"16 images cannot be shared equally by 3 processes.*multiple of 3"):
        next(plan_batches(100, make_config(), seed=0, world=3))


def test_fewer_than_two_images_for_a_process_are_refused() -> None:
    with pytest.raises(ValueError, match="two images a step"):
        next(plan_batches(1, make_config(), seed=0))
    with pytest.raises(ValueError, match="two images a step in each of 16 processes"):
        next(plan_batches(100, make_config(), seed=0, world=16))


def test_more_parts_than_a_share_can_be_split_into_are_refused() -> None:
    next(plan_batches(100, make_config(accumulation=4), seed=0, world=2))
    said = "two images a step in each of 2 processes and of 5 parts: lower training.accumulation"
    with pytest.raises(ValueError, match=said):
        next(plan_batches(100, make_config(accumulation=5), seed=0, world=2))


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_outside_the_world_is_refused(rank: int) -> None:
    with pytest.raises(ValueError, match="ranks are 0 to 1"):
        next(plan_batches(100, make_config(), seed=0, rank=rank, world=2))


LABELS = np.repeat(np.arange(12), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 25])


def plan_labels(config: TrainingConfig, **options: int) -> list[NDArray[np.int64]]:
    plans = plan_batches(len(LABELS), config, labels_I=LABELS, seed=3, **options)
    return [LABELS[plan.indices] for plan in plans]


def test_groups_hold_images_of_one_identity_and_all_images_are_drawn() -> None:
    config = make_config(epochs=3, images_per_identity=5, batch_size=20)
    for labels in plan_labels(config):
        assert (labels.reshape(-1, 5) == labels.reshape(-1, 5)[:, :1]).all()
    order = draw_groups(np.random.default_rng(0).permutation(len(LABELS)), LABELS, 5, np.random.default_rng(1))
    assert set(order.tolist()) == set(range(len(LABELS)))
    groups = order.reshape(-1, 5)
    sizes = np.bincount(LABELS)
    assert np.bincount(LABELS[groups[:, 0]]).tolist() == (-(-sizes // 5)).tolist()
    for group in groups:
        assert len(set(group.tolist())) == min(5, sizes[LABELS[group[0]]]), "repeated only where there are too few"


@pytest.mark.parametrize("head", ["dcq", "f2c", "virtual_fc"])
def test_grouped_batches_resume_in_the_middle_and_are_shared_by_processes(head: str) -> None:
    config = make_config(epochs=3, head=head, batch_size=20)
    whole = list(plan_batches(len(LABELS), config, labels_I=LABELS, seed=3))
    assert len(whole) == 3 * (len(LABELS) // config.batch_size), "as many steps as without groups"
    for step in (1, 7):
        assert_same(list(plan_batches(len(LABELS), config, labels_I=LABELS, seed=3, start_step=step)), whole[step:])
    for rank in range(2):
        part = slice(rank * config.batch_size // 2, (rank + 1) * config.batch_size // 2)
        share = list(plan_batches(len(LABELS), config, labels_I=LABELS, seed=3, rank=rank, world=2))
        assert_same(share, [plan.part(part) for plan in whole])


def test_half_of_a_batch_of_f2c_are_pairs_of_identities_drawn_alike() -> None:
    labels = LABELS.repeat(40)
    order = np.random.default_rng(0).permutation(len(labels))
    drawn = draw_pairs_and_images(order, labels, np.random.default_rng(1)).reshape(-1, 2, 2)
    of_one, of_any = labels[drawn[:, 0]], labels[drawn[:, 1]]
    assert (of_one[:, 0] == of_one[:, 1]).all()
    assert (drawn[:, 0, 0] != drawn[:, 0, 1]).all()
    counts = np.bincount(of_one[:, 0])
    assert counts.max() - counts.min() <= 1
    shares = np.bincount(of_any.ravel(), minlength=12) / of_any.size
    assert shares[-1] == pytest.approx(0.25, abs=0.05), "a quarter of all images are of the last identity"


def test_pairs_that_cannot_be_shared_are_refused() -> None:
    with pytest.raises(ValueError, match=r"dcq compares pairs.*set training.batch_size to a multiple of 4"):
        next(plan_batches(100, make_config(head="dcq", batch_size=10), labels_I=np.arange(100), seed=0, world=2))
