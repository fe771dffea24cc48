from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest

from gif_core.synthetic import (
    ATTRIBUTES,
    describe,
    draw_face,
    draw_jpeg,
    identity_attributes,
    sample_count,
)

SEED = 7
HELD_OUT = range(100_000, 100_060)
SAMPLES = 6
FOLDS = 10


def held_out_pixels():
    faces = [draw_face(SEED, identity, sample) for identity in HELD_OUT for sample in range(SAMPLES)]
    return np.stack(faces).reshape(len(faces), -1).astype(np.float32)


def balanced_pairs(owners_N):
    first, second = np.triu_indices(len(owners_N), k=1)
    same = owners_N[first] == owners_N[second]
    others = np.random.default_rng([SEED, 1]).choice(np.flatnonzero(~same), same.sum(), replace=False)
    chosen = np.random.default_rng([SEED, 2]).permutation(np.concatenate([np.flatnonzero(same), others]))
    return first[chosen], second[chosen], same[chosen]


def ten_fold_accuracy(similarity_P, same_P):
    thresholds = np.quantile(similarity_P, np.linspace(0, 1, 200))
    correct_TP = (similarity_P > thresholds[:, None]) == same_P
    folds = np.array_split(np.arange(len(same_P)), FOLDS)
    best = [np.delete(correct_TP, fold, axis=1).mean(axis=1).argmax() for fold in folds]
    return np.mean([correct_TP[row, fold].mean() for row, fold in zip(best, folds, strict=True)])


def val_accuracy(vectors_ND, owners_N):
    unit = vectors_ND / np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    first, second, same = balanced_pairs(owners_N)
    return ten_fold_accuracy((unit @ unit.T)[first, second], same)


def test_same_bytes_from_one_thread_or_eight_in_any_order():
    wanted = [(identity, sample) for identity in range(8) for sample in range(3)]
    alone = {key: draw_jpeg(SEED, *key) for key in wanted}
    shuffled = [wanted[place] for place in np.random.default_rng(SEED).permutation(len(wanted))]
    with ThreadPoolExecutor(8) as pool:
        together = dict(zip(shuffled, pool.map(lambda key: draw_jpeg(SEED, *key), shuffled), strict=True))
    assert together == alone


def test_the_global_random_state_changes_nothing():
    np.random.seed(0)  # noqa: NPY002
    cv2.setRNGSeed(0)
    first = draw_face(SEED, 0, 0)
    np.random.seed(1)  # noqa: NPY002
    cv2.setRNGSeed(1)
    assert np.array_equal(first, draw_face(SEED, 0, 0))


def test_at_least_twenty_attributes_within_bounds_tell_identities_apart():
    attributes_NA = np.stack([identity_attributes(SEED, identity) for identity in range(200)])
    assert attributes_NA.shape == (200, len(ATTRIBUTES))
    assert len(set(ATTRIBUTES)) == len(ATTRIBUTES) >= 20
    assert attributes_NA.min() >= 0
    assert attributes_NA.max() <= 1
    assert len(np.unique(attributes_NA, axis=0)) == 200
    assert (attributes_NA.std(axis=0) > 0.2).all()


@pytest.mark.parametrize("change", [(SEED + 1, 0, 0), (SEED, 1, 0), (SEED, 0, 1)])
def test_seed_identity_and_sample_each_change_the_picture(change):
    first, other = draw_face(SEED, 0, 0).astype(int), draw_face(*change).astype(int)
    assert np.abs(first - other).mean() > 10


@pytest.mark.parametrize("size", [64, 112, 160])
def test_jpeg_decodes_to_nearly_the_drawn_face(size):
    drawn = draw_face(SEED, 3, 1, size)
    decoded = cv2.imdecode(np.frombuffer(draw_jpeg(SEED, 3, 1, size), np.uint8), cv2.IMREAD_COLOR)[:, :, ::-1]
    assert drawn.dtype == np.uint8
    assert drawn.shape == decoded.shape == (size, size, 3)
    assert np.abs(drawn.astype(int) - decoded).mean() < 12


def test_sample_counts_are_bounded_and_long_tailed():
    counts = np.array([sample_count(SEED, identity, smallest=5, largest=60) for identity in range(1000)])
    assert counts.min() == 5
    assert counts.max() == 60
    assert np.median(counts) < 0.75 * counts.mean()


def test_sample_count_refuses_bounds_out_of_order():
    with pytest.raises(ValueError, match="smallest <= largest"):
        sample_count(SEED, 0, smallest=9, largest=8)


def test_no_word_describes_fewer_than_three_percent_of_identities():
    words = [describe(identity_attributes(SEED, identity)) for identity in range(500)]
    assert set(words[0]) == {"skin_tone", "hair_colour", "hair_length", "beard", "glasses"}
    for key in words[0]:
        tally = Counter(entry[key] for entry in words)
        assert len(tally) >= 2
        assert min(tally.values()) >= 0.03 * 500


def test_raw_pixels_verify_held_out_identities_below_75_percent():
    pixels_ND, owners_N = held_out_pixels(), np.repeat(np.arange(len(HELD_OUT)), SAMPLES)
    centred_ND = pixels_ND - pixels_ND.mean(axis=1, keepdims=True)
    accuracies = [val_accuracy(vectors, owners_N) for vectors in (pixels_ND, centred_ND)]
    assert 0.5 < max(accuracies) < 0.75
