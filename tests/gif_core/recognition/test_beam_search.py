"""Codes are found by the tokens' probabilities: against going through all codes one by one."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from gif_core.heads import TokenHeads
from gif_core.recognition import search_codes, token_log_probs
from gif_core.recognition.code_tree import NO_IDENTITY, CodeTree
from gif_core.tokenization import CodeShape, unpack_codes

SHAPES = [CodeShape(3, 4), CodeShape(1, 50), CodeShape(6, 2), CodeShape(4, 3)]


def some_codes(shape: CodeShape, count: int, seed: int = 0) -> np.ndarray:
    return unpack_codes(np.random.default_rng(seed).permutation(shape.capacity(0))[:count], shape)


def some_probabilities(shape: CodeShape, images: int, seed: int = 0, sharpness: float = 3.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = sharpness * torch.randn(shape.length, images, shape.vocab_size, generator=generator)
    return torch.log_softmax(logits, dim=2)


def slow_scores(codes_NL: np.ndarray, probabilities_LBV: Tensor) -> np.ndarray:
    """The log chance of every code for every image, one after the other."""
    length, images, _ = probabilities_LBV.shape
    scores = np.zeros((images, len(codes_NL)))
    for image, identity, token in itertools.product(range(images), range(len(codes_NL)), range(length)):
        scores[image, identity] += float(probabilities_LBV[token, image, int(codes_NL[identity, token])])
    return scores


@pytest.mark.parametrize("shape", SHAPES)
def test_a_beam_as_wide_as_the_tree_ranks_all_codes_as_going_through_them_does(shape: CodeShape) -> None:
    codes = some_codes(shape, 2 * shape.capacity(0) // 3)
    probabilities = some_probabilities(shape, images=7)
    found = search_codes(CodeTree(codes, shape), probabilities, beam=shape.capacity(0))
    scores = slow_scores(codes, probabilities)
    ranked = np.argsort(-scores, axis=1)
    assert np.array_equal(found.identities_BK[:, : len(codes)].numpy(), ranked)
    assert (found.identities_BK[:, len(codes) :] == NO_IDENTITY).all()
    assert found.log_probs_BK[:, : len(codes)].numpy() == pytest.approx(-np.sort(-scores, axis=1), abs=1e-4)
    assert (found.bound_B == -math.inf).all(), "nothing was left out"


@pytest.mark.parametrize("beam", [1, 2, 5, 16])
def test_what_the_beam_leaves_out_stays_below_its_bound_and_so_the_proof_of_the_best_holds(beam: int) -> None:
    shape = CodeShape(4, 5)
    codes, probabilities = some_codes(shape, 300), some_probabilities(shape, images=60, sharpness=1.5)
    found, scores = search_codes(CodeTree(codes, shape), probabilities, beam), slow_scores(codes, probabilities)
    proven = found.log_probs_BK[:, 0] >= found.bound_B
    for image in range(60):
        kept = found.identities_BK[image].numpy()
        left_out = np.delete(scores[image], kept[kept != NO_IDENTITY])
        assert left_out.max() <= float(found.bound_B[image]) + 1e-4
        if proven[image]:
            assert kept[0] == scores[image].argmax()
    assert beam < 16 or proven.any()


def test_every_code_that_is_found_exists_although_the_likeliest_tokens_make_one_that_does_not() -> None:
    shape = CodeShape(3, 4)
    codes = some_codes(shape, 20)
    probabilities = torch.full((3, 64, 4), -8.0)
    for image, tokens in enumerate(itertools.product(range(4), repeat=3)):
        for place, token in enumerate(tokens):
            probabilities[place, image, token] = -0.001
    tree = CodeTree(codes, shape)
    best = search_codes(tree, probabilities, beam=8).identities_BK[:, 0].numpy()
    assert ((best >= 0) & (best < 20)).all()
    owners = {tuple(code): identity for identity, code in enumerate(codes.tolist())}
    for image, tokens in enumerate(itertools.product(range(4), repeat=3)):
        if tokens in owners:
            assert best[image] == owners[tokens]


def test_a_batch_gives_what_its_images_give_alone() -> None:
    shape = CodeShape(4, 5)
    tree, probabilities = CodeTree(some_codes(shape, 400), shape), some_probabilities(shape, images=30)
    together = search_codes(tree, probabilities, beam=6)
    alone = [search_codes(tree, probabilities[:, image : image + 1], beam=6) for image in range(30)]
    assert torch.equal(together.identities_BK, torch.cat([each.identities_BK for each in alone]))
    assert torch.equal(together.log_probs_BK, torch.cat([each.log_probs_BK for each in alone]))
    totals = torch.cat([tree.total_log_prob(probabilities[:, image : image + 1]) for image in range(30)])
    assert torch.allclose(tree.total_log_prob(probabilities), totals, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("sharpness", [1.0, 60.0])
@pytest.mark.parametrize("taken", [1, 0.5, 0.02], ids=["full", "half", "few"])
def test_the_probabilities_of_all_codes_that_exist_sum_to_the_total(
    shape: CodeShape, sharpness: float, taken: float
) -> None:
    codes = some_codes(shape, max(1, int(shape.capacity(0) * taken)))
    probabilities = some_probabilities(shape, images=9, sharpness=sharpness)
    scores = slow_scores(codes, probabilities)
    wanted = np.logaddexp.reduce(scores, axis=1)
    assert CodeTree(codes, shape).total_log_prob(probabilities).numpy() == pytest.approx(wanted, abs=1e-4)


def test_without_a_gap_among_the_codes_the_total_is_one() -> None:
    shape = CodeShape(4, 3)
    total = CodeTree(some_codes(shape, 81), shape).total_log_prob(some_probabilities(shape, images=5))
    assert total.exp().numpy() == pytest.approx(np.ones(5), abs=1e-5)


def test_codes_that_two_identities_share_and_no_codes_are_refused() -> None:
    shape = CodeShape(2, 3)
    with pytest.raises(ValueError, match="3 identities have only 2 different codes"):
        CodeTree(np.array([[0, 1], [2, 2], [0, 1]], np.int32), shape)
    with pytest.raises(ValueError, match="no codes"):
        CodeTree(np.empty((0, 2), np.int32), shape)
    with pytest.raises(ValueError, match="at least 1, not 0"):
        search_codes(CodeTree(some_codes(shape, 4), shape), some_probabilities(shape, 1), beam=0)


def test_the_probabilities_of_a_token_are_the_softmax_of_its_cosines_times_the_scale() -> None:
    heads = TokenHeads(2, 5, 8, scale=4.0)
    z = torch.nn.functional.normalize(torch.randn(3, 8), dim=1)
    with torch.no_grad():
        probabilities = token_log_probs(heads, z).exp()
        assert torch.allclose(probabilities, (4.0 * heads.token_cosines(z)).softmax(dim=2))
    assert probabilities.sum(dim=2).detach().numpy() == pytest.approx(np.ones((2, 3)), abs=1e-6)
