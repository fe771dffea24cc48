"""Finding the enrolled: the ways agree where they must, and the threshold keeps its promise."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import save_file

from gif_core.artifacts import Artifact, ArtifactStore
from gif_core.heads import TokenHeads
from gif_core.recognition import METHODS, Gallery, Method, measure_open_set, open_gallery
from gif_core.recognition.code_tree import NO_IDENTITY
from gif_core.recognition.gallery import Candidates
from gif_core.recognition.open_set import calibrate_threshold
from gif_core.tokenization import CodeShape, unpack_codes, write_code_table
from schemas.files import CODE_VECTORS_FILE, HEAD_FILE, MODEL_FILE
from schemas.stages import StageName

SHAPE, IDENTITIES, DIM = CodeShape(3, 5), 90, 16


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def make_gallery(beam: int = 8, map_width: int = 0) -> Gallery:
    torch.manual_seed(1)
    rng = np.random.default_rng(2)
    codes = unpack_codes(rng.permutation(SHAPE.capacity(0))[:IDENTITIES], SHAPE)
    heads = TokenHeads(SHAPE.length, SHAPE.vocab_size, DIM, scale=8.0, map_width=map_width)
    if map_width:
        torch.nn.init.normal_(heads.map_out_WD)
    return Gallery(heads, codes, SHAPE, unit(rng.standard_normal((IDENTITIES, DIM))), beam=beam)


def some_features(images: int = 40) -> np.ndarray:
    return unit(np.random.default_rng(3).standard_normal((images, DIM)))


def test_exhaustive_search_ranks_all_identities_by_their_cosine() -> None:
    gallery, z = make_gallery(), some_features()
    found = gallery.find(z, IDENTITIES, "exhaustive")
    cosines = z @ gallery.vectors_ND.T
    assert np.array_equal(found.identities_BK, np.argsort(-cosines, axis=1))
    assert found.scores_BK == pytest.approx(-np.sort(-cosines, axis=1), abs=1e-6)


def test_re_ranking_with_a_beam_of_all_identities_is_exhaustive_search() -> None:
    gallery, z = make_gallery(beam=IDENTITIES), some_features()
    wide, all_of_them = gallery.find(z, 5, "reranked"), gallery.find(z, 5, "exhaustive")
    assert np.array_equal(wide.identities_BK, all_of_them.identities_BK)
    assert wide.scores_BK == pytest.approx(all_of_them.scores_BK, abs=1e-6)


def test_where_code_vectors_are_mapped_all_ways_go_by_the_mapped_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gif_core.recognition.gallery._BLOCK", 16)
    gallery, z = make_gallery(beam=IDENTITIES, map_width=7), some_features()
    with torch.no_grad():
        placed = gallery.heads.place(torch.from_numpy(gallery.vectors_ND)).numpy()
    moved = np.linalg.norm(placed - gallery.vectors_ND, axis=1) > 0.1
    assert moved.mean() > 0.9, "the map moves identities: relu leaves a few where they are"
    wanted = np.argsort(-(z @ placed.T), axis=1)[:, :5]
    assert np.array_equal(gallery.find(z, 5, "exhaustive").identities_BK, wanted)
    assert np.array_equal(gallery.find(z, 5, "reranked").identities_BK, wanted)
    assert gallery.cosines(z, wanted) == pytest.approx(np.take_along_axis(z @ placed.T, wanted, axis=1), abs=1e-5)


def test_re_ranking_orders_the_codes_of_the_beam_and_no_others() -> None:
    gallery, z = make_gallery(beam=8), some_features()
    decoded, ranked = gallery.find(z, 8, "codes"), gallery.find(z, 8, "reranked")
    assert np.array_equal(np.sort(decoded.identities_BK), np.sort(ranked.identities_BK))
    assert (np.diff(ranked.scores_BK, axis=1) <= 0).all()
    assert (np.diff(decoded.scores_BK, axis=1) <= 0).all()
    assert not np.array_equal(decoded.identities_BK, ranked.identities_BK)


def test_probabilities_of_all_identities_sum_to_one_and_rank_as_decoding_does() -> None:
    gallery, z = make_gallery(beam=IDENTITIES), some_features()
    all_rows = np.tile(np.arange(IDENTITIES), (len(z), 1))
    probabilities = gallery.probabilities(z, all_rows)
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(len(z)), abs=1e-5)
    assert np.array_equal(gallery.find(z, 1, "codes").identities_BK[:, 0], probabilities.argmax(axis=1))


@pytest.mark.parametrize("method", METHODS)
def test_one_image_finds_the_identities_that_it_finds_in_a_batch(method: Method) -> None:
    gallery, z = make_gallery(), some_features(12)
    alone = [gallery.find(z[image : image + 1], 4, method).identities_BK[0] for image in range(len(z))]
    assert np.array_equal(gallery.find(z, 4, method).identities_BK, np.stack(alone))


@pytest.mark.parametrize("method", METHODS)
def test_more_candidates_than_identities_are_all_identities_once(method: Method) -> None:
    gallery = make_gallery()
    found = gallery.find(some_features(3), 10 * IDENTITIES, method).identities_BK
    assert np.array_equal(np.sort(found, axis=1), np.tile(np.arange(IDENTITIES), (3, 1)))


def test_nobody_has_no_cosine_and_no_chance() -> None:
    gallery, z = make_gallery(), some_features(1)
    identities = np.array([[3, NO_IDENTITY]])
    assert gallery.cosines(z, identities)[0, 1] == -np.inf
    assert gallery.probabilities(z, identities)[0, 1] == 0
    assert gallery.probabilities(z, identities)[0, 0] > 0


def test_codes_of_other_identities_than_the_vectors_are_refused() -> None:
    gallery = make_gallery()
    with pytest.raises(ValueError, match="90 codes do not fit 89 code vectors"):
        Gallery(gallery.heads, gallery.tree.codes_NL, SHAPE, gallery.vectors_ND[:-1])


@pytest.mark.parametrize(("fpir", "reach"), [(0.01, 0), (0.05, 2), (0.1, 5), (0.5, 25)])
def test_no_more_unknown_images_than_allowed_reach_the_lowest_threshold(fpir: float, reach: int) -> None:
    scores = np.random.default_rng(0).random(50).astype(np.float32)
    threshold = calibrate_threshold(scores, fpir)
    assert np.sum(scores >= threshold) == reach
    assert np.sum(scores >= np.nextafter(np.float32(threshold), np.float32(-1))) == reach + 1


def test_equal_scores_are_all_kept_below_the_threshold() -> None:
    assert calibrate_threshold(np.full(100, 0.25, np.float32), 0.1) > 0.25
    with pytest.raises(ValueError, match="not enrolled"):
        calibrate_threshold(np.empty(0), 0.1)


def test_metrics_of_an_open_set_are_those_counted_by_hand() -> None:
    enrolled = Candidates(
        np.array([[0, 1], [1, 0], [0, 2], [1, 3]]), np.array([[0.9, 0], [0.2, 0], [0.8, 0], [0.7, 0]], np.float32)
    )
    unknown = Candidates(np.zeros((4, 2), np.int64), np.array([[0.1, 0], [0.3, 0], [0.5, 0], [0.2, 0]], np.float32))
    found = measure_open_set(enrolled, unknown, np.array([0, 1, 2, 1]), np.array([7, 7, 8, 8]), fpir=0.25)
    assert found.rank == {1: 0.75, 5: 1.0}
    assert 0.3 < found.threshold < 0.300001
    assert found.fnir == 0.5, "the second is below the threshold, the third is taken for another"
    assert found.fpir_of_others == 0.25, "0.5 is above the highest of the other person's, 0.3; 0.3 is below 0.5"
    alone = measure_open_set(enrolled, unknown, np.array([0, 1, 2, 1]), np.array([7, 7, 7, 7]), fpir=0.25)
    assert alone.fpir_of_others is None, "there is nobody else by whom the threshold could be set"


@pytest.mark.parametrize("learned", [False, True])
def test_a_gallery_goes_by_the_code_vectors_that_the_model_has_learned_if_it_has_any(
    tmp_path: Path, learned: bool
) -> None:
    store, gallery, rng = ArtifactStore(str(tmp_path)), make_gallery(), np.random.default_rng(5)
    first, last = (unit(rng.standard_normal((IDENTITIES, DIM))) for _ in range(2))
    shape = {"length": SHAPE.length, "vocab_size": SHAPE.vocab_size, "embedding_dim": DIM}
    model = json.dumps({"head": "gif", "settings": {"code_vectors": "frozen"}, **shape})
    table = pa.table(
        {"identity_id": range(IDENTITIES), "label": map(str, range(IDENTITIES)), "num_samples": [1] * IDENTITIES}
    )
    made: dict[StageName, Artifact] = {}
    for stage in ("separation", "tokenization", "training"):
        with store.draft(store.ref(stage, "a" * 64), {}, {}) as draft:
            if stage == "tokenization":
                write_code_table(draft.folder, gallery.tree.codes_NL, SHAPE, table)
            if stage == "training":
                save_file(gallery.heads.state_dict(), draft.folder / HEAD_FILE)
                (draft.folder / MODEL_FILE).write_text(model)
            if stage == "separation" or (stage == "training" and learned):
                vectors = torch.from_numpy(first if stage == "separation" else last)
                save_file({"code_vectors": vectors}, draft.folder / CODE_VECTORS_FILE)
            made[stage] = store.open(store.publish(draft))
    opened = open_gallery(made, beam=8, device=torch.device("cpu"))
    np.testing.assert_array_equal(opened.vectors_ND, last if learned else first)
