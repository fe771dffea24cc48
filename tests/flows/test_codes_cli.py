"""`gif codes` on a small store that is written here, so that no run is needed."""

from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from gif_core.artifacts import ArtifactStore, begin_run, save_run
from gif_core.tokenization import Codes, CodeShape, read_codes, write_code_table
from schemas.artifacts import StageRecord
from schemas.run import RunConfig

Gif = Callable[..., str]

CODES: Codes = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [2, 2]], np.int32)
AXES = np.eye(3, 8, dtype=np.float32)
VECTORS = AXES[CODES[:, 0]]
"""Identities whose codes begin alike look alike."""


def listed(vectors: NDArray[np.float32]) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    address = str(tmp_path_factory.mktemp("store"))
    store, stages = ArtifactStore(address), {}
    ids = list(range(len(CODES)))
    identities = pa.table({"identity_id": ids, "label": [f"[p]{i}" for i in ids], "num_samples": [i + 3 for i in ids]})
    for number, stage in enumerate(("embedding", "tokenization")):
        with store.draft(store.ref(stage, str(number) * 64), {}, {}) as draft:
            if stage == "embedding":
                pq.write_table(
                    pa.table({"identity_id": ids, "vector": listed(VECTORS)}), draft.folder / "vectors.parquet"
                )
            else:
                write_code_table(draft.folder, CODES, CodeShape(2, 3), identities)
            stages[stage] = StageRecord(key=store.publish(draft).key, action="computed", seconds=1)
    save_run(store, begin_run(store, RunConfig(store=address)), state="completed", stages=stages)
    return address


@pytest.fixture
def gif(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_gif: Gif) -> Gif:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIF_STORE", address)
    return run_gif


def write_new(vectors: NDArray[np.float32], **columns: list[object]) -> str:
    pq.write_table(pa.table({**columns, "vector": listed(vectors)}), "new.parquet")
    return "new.parquet"


def test_show_goes_from_identity_to_code(gif: Gif) -> None:
    printed = gif("codes", "show", "--identities", "4,1")
    assert "[p]4" in printed
    assert "2.2" in printed
    assert "0.1" in printed
    assert "1.1" not in printed
    assert "1.0" in gif("codes", "show", "--labels", "[p]2")


def test_show_alone_tells_the_shape_and_how_many_codes_are_free(gif: Gif) -> None:
    printed = gif("codes", "show", "--rows", "2")
    assert "5 identities; a code has 2 tokens of 3 values; 4 of 9 codes are free" in printed
    assert "[p]1" in printed
    assert "[p]2" not in printed


def test_find_goes_from_code_and_from_prefix_to_identity(gif: Gif) -> None:
    assert "[p]3" in gif("codes", "find", "1.1")
    printed = gif("codes", "find", "1", "--rows", "1")
    assert "[p]2" in printed
    assert "1 of 2 identities" in printed


def test_extend_writes_old_and_new_codes_and_leaves_the_old_ones(gif: Gif) -> None:
    file = write_new(AXES[[1, 2]] * 7, image=["a/anna.jpg", "a/bert.jpg"])
    assert "2 new identities, 5 unchanged; 2 codes are free" in gif(
        "codes", "extend", "--vectors", file, "--out", "more"
    )
    codes, shape = read_codes(Path("more/codes.duckdb"))
    assert shape == CodeShape(2, 3)
    assert np.array_equal(codes[:5], CODES)
    assert codes[5:, 0].tolist() == [1, 2], "each is where the identities are who look alike"
    assert pq.read_table("more/codes.parquet")["label"].to_pylist()[5:] == ["a/anna.jpg", "a/bert.jpg"]
    with duckdb.connect("more/codes.duckdb", read_only=True) as plain:
        assert plain.execute("SELECT size FROM nodes WHERE level = 0").fetchall() == [(7,)]
    assert "1.2" in gif("codes", "show", "--labels", "a/anna.jpg", "--table", "more")
    assert "a/anna.jpg" in gif("codes", "find", "1.2", "--table", "more")


def test_extend_takes_the_embedding_of_another_run_and_npy_files(gif: Gif) -> None:
    file = write_new(AXES[:1], identity_id=[0], num_samples=[12])
    gif("codes", "extend", "--vectors", file, "--out", "more")
    assert pq.read_table("more/codes.parquet").to_pylist()[5] | {"leaf": 0, "code": 0} == {
        "identity_id": 5, "label": "new-000000", "num_samples": 12, "code": 0, "c1": 0, "c2": 2, "leaf": 0,
    }  # fmt: skip
    np.save("new.npy", AXES[:1])
    gif("codes", "extend", "--vectors", "new.npy", "--out", "again")
    assert read_codes(Path("again/codes.duckdb"))[0][5].tolist() == [0, 2]


def test_a_full_tree_leaves_no_folder_and_says_what_to_do(gif: Gif) -> None:
    file = write_new(AXES[[0, 0, 0, 1, 1]])
    printed = gif("codes", "extend", "--vectors", file, "--out", "more", code=2)
    assert "the code tree is full" in printed
    assert "vocab_size=4" in printed
    assert not Path("more").exists()


def test_mistakes_are_told(gif: Gif) -> None:
    assert "identity id 5, 7" in gif("codes", "show", "--identities", "5,0,7", code=2)
    assert "label nobody" in gif("codes", "show", "--labels", "nobody", code=2)
    assert "no code is 0.2" in gif("codes", "find", "0.2", code=2)
    assert "2 tokens, not 3" in gif("codes", "find", "0.1.2", code=2)
    assert "give numbers, such as 3.14" in gif("codes", "find", "0,1", code=2)
    assert "no codes.duckdb in nowhere" in gif("codes", "show", "--table", "nowhere", code=2)
    narrow = write_new(AXES[:, :4].copy())
    assert "those of the table (5, 8)" in gif("codes", "extend", "--vectors", narrow, "--out", "more", code=2)
    pq.write_table(pa.table({"x": [1]}), "other.parquet")
    assert "no column `vector`" in gif("codes", "extend", "--vectors", "other.parquet", "--out", "more", code=2)
    zeros = write_new(0 * AXES)
    assert "vector of zeros" in gif("codes", "extend", "--vectors", zeros, "--out", "more", code=2)
    Path("more").mkdir()
    Path("more/kept").touch()
    file = write_new(AXES)
    assert "exists and is not an empty folder" in gif("codes", "extend", "--vectors", file, "--out", "more", code=2)
