"""`gif faces` on a small store that is written here, so that no run is needed."""

import json
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.cli.faces import Format
from gif_core.artifacts import ArtifactStore, begin_run, save_run
from gif_core.ingestion.shards import FaceBatch, ShardFile
from gif_core.protocols.sets.bin import parse_pair_file
from gif_core.tokenization import CodeShape, write_code_table
from gif_core.writers import FORMATS
from schemas.artifacts import ArtifactRef, StageRecord
from schemas.run import RunConfig

Gif = Callable[..., str]

SPLITS = {"identities": 6, "held_out": 3}
SAMPLES = 4
CODES = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]], np.int32)
BARE = "b" * 64
"""Key of the faces that no run has made."""


def shade(split: str, identity_id: int, sample: int) -> int:
    return 40 * identity_id + 10 * sample + (5 if split == "held_out" else 0)


def face(split: str, identity_id: int, sample: int) -> bytes:
    pixels = np.full((112, 112, 3), shade(split, identity_id, sample), np.uint8)
    return cv2.imencode(".png", pixels)[1].tobytes()


def table_of(split: str) -> pa.Table:
    ids = list(range(SPLITS[split]))
    labels = [f"{split}/{i}" for i in ids]
    return pa.table(
        {"identity_id": ids, "label": labels, "source": [0] * len(ids), "num_samples": [SAMPLES] * len(ids)}
    )


def publish_faces(store: ArtifactStore, key: str, splits: list[str]) -> ArtifactRef:
    """Faces whose rows are not grouped: all identities's first, all identities's second, ..."""
    with store.draft(store.ref("ingestion", key), {}, {}) as draft:
        for split in splits:
            shard, file = FaceBatch(), ShardFile(draft.folder / f"{split}-00000.arrow")
            for row in range(SAMPLES * SPLITS[split]):
                sample, identity_id = divmod(row, SPLITS[split])
                shard.add(identity_id, [str(row)], [face(split, identity_id, sample)])
            file.write(shard)
            file.finish()
        for split in SPLITS:
            pq.write_table(table_of(split), draft.folder / f"{split}.parquet")
        return store.publish(draft)


def publish_codes(store: ArtifactStore) -> ArtifactRef:
    with store.draft(store.ref("tokenization", "c" * 64), {}, {}) as draft:
        write_code_table(draft.folder, CODES, CodeShape(2, 3), table_of("identities"))
        return store.publish(draft)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with one run, and with faces that belong to none."""
    address = str(tmp_path_factory.mktemp("store"))
    store = ArtifactStore(address)
    made = {"ingestion": publish_faces(store, "a" * 64, list(SPLITS)), "tokenization": publish_codes(store)}
    publish_faces(store, BARE, ["identities"])
    stages = {name: StageRecord(key=ref.key, action="computed", seconds=1) for name, ref in made.items()}
    save_run(store, begin_run(store, RunConfig(store=address)), state="completed", stages=stages)
    return address


@pytest.fixture
def gif(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_gif: Gif) -> Gif:
    """In an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIF_STORE", address)
    return run_gif


def shades(path: Path, columns: int) -> list[list[int]]:
    """Shades of the faces on a sheet, row by row."""
    sheet = cv2.imread(str(path))[56::112, :, 0]
    return [[int(row[56 - 112 * place]) for place in range(columns, 0, -1)] for row in sheet]


def expected(ids: list[int], split: str = "identities") -> list[list[int]]:
    return [[shade(split, identity_id, sample) for sample in range(SAMPLES)] for identity_id in ids]


@pytest.mark.parametrize(
    ("options", "ids", "words"),
    [
        (["--identities", "5,0,2"], [5, 0, 2], "3 of 6 identities"),
        (["--labels", "identities/4,identities/1"], [4, 1], "2 of 6 identities"),
        (["--code", "1"], [2, 3], "2 of 2 identities"),
        (["--code", "2.1"], [5], "1 of 1 identities"),
        (["--code", "1", "--rows", "1"], [2], "1 of 2 identities"),
        (["--rows", "4"], [0, 1, 2, 3], "4 of 6 identities"),
        (["--faces", "bbbb", "--identities", "3"], [3], "1 of 6 identities"),
        (["--faces", "ingestion/aaaa", "--rows", "2"], [0, 1], "2 of 6 identities"),
    ],
)
def test_a_sheet_shows_the_identities_who_were_asked_for(
    gif: Gif, options: list[str], ids: list[int], words: str
) -> None:
    assert words in gif("faces", "show", "--out", "sheet.png", *options)
    assert shades(Path("sheet.png"), SAMPLES) == expected(ids)


def test_a_sheet_shows_identities_who_were_kept_aside(gif: Gif) -> None:
    gif("faces", "show", "--held-out", "--out", "sheet.png")
    assert shades(Path("sheet.png"), SAMPLES) == expected([0, 1, 2], "held_out")


def test_a_sheet_names_all_identities_and_their_codes(gif: Gif, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr("flows.cli.faces.draw_contact_sheet", lambda *arguments: seen.append(arguments[3]) or b"")
    gif("faces", "show", "--identities", "3")
    gif("faces", "show", "--identities", "3", "--faces", "bb")
    gif("faces", "show", "--identities", "2", "--held-out")
    assert seen == [
        [["identities/3", "identity 3", "code 1.1"]],
        [["identities/3", "identity 3"]],
        [["held_out/2", "identity 2"]],
    ]


def test_the_name_of_the_file_says_how_the_sheet_is_encoded(gif: Gif) -> None:
    gif("faces", "show", "--out", "sheet.JPG")
    assert Path("sheet.JPG").read_bytes().startswith(b"\xff\xd8")
    gif("faces", "show")
    assert Path("faces.jpg").read_bytes().startswith(b"\xff\xd8")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["show", "--identities", "99"], "identity 99 has no faces here; there are 0 to 5"),
        (["show", "--identities", "-1"], "identity -1 has no faces"),
        (["show", "--identities", "a"], "--identities a: give numbers, such as 3,14"),
        (["show", "--labels", "nobody,identities/1"], "no identity here has the label nobody;"),
        (["show", "--code", "7"], "no code begins with 7"),
        (["show", "--code", "0.0.0"], "a code of this run has 2 tokens, not 3"),
        (["show", "--code", "1,2"], "--code 1,2: give numbers, such as 3.14"),
        (["show", "--code", "1", "--faces", "bb"], "only the identities that a run has tokenized have codes"),
        (["show", "--code", "1", "--held-out"], "only the identities that a run has tokenized have codes"),
        (["show", "--code", "1", "--identities", "1"], "give one of --identities, --labels and --code"),
        (["show", "--faces", "aa", "--run", "2"], "give --run or --faces, not both"),
        (["show", "--faces", "dd"], "names 0 artifacts"),
        (["show", "--faces", "tokenization/cc"], "tokenization/cccccccccccc holds no faces"),
        (["show", "--faces", "bb", "--held-out"], "has no held-out identities"),
        (["show", "--out", "sheet.gif"], "the file name of a sheet must end in .jpg, .jpeg, .png"),
        (["export", "--format", "bin", "--out", "o", "--faces", "bb"], "has no held-out identities"),
        (["export", "--format", "folder", "--out", "o", "--pairs", "5"], "--pairs and --seed are for --format bin"),
        (["export", "--format", "zip", "--out", "o"], "is not one of"),
    ],
)
def test_a_mistake_is_told_in_a_sentence_and_nothing_is_written(gif: Gif, options: list[str], words: str) -> None:
    assert words in gif("faces", *options, code=2)
    assert list(Path().iterdir()) == []


def test_the_formats_offered_are_those_that_are_written() -> None:
    assert [form.value for form in Format] == list(FORMATS)


def test_help_teaches_by_examples(gif: Gif) -> None:
    assert "gif faces show --code 3.17" in gif("faces", "show", "--help")
    shown = gif("faces", "export", "--help")
    assert "gif faces export --format recordio" in shown
    assert all(f"{name}: " in shown for name in FORMATS)


def test_recordio_has_every_face_grouped_by_identity(gif: Gif) -> None:
    assert "out: 24 faces of 6 identities" in gif("faces", "export", "--format", "recordio", "--out", "out")
    content = Path("out/train.rec").read_bytes()
    places = [content.index(face("identities", i, sample)) for i in range(6) for sample in range(SAMPLES)]
    assert places == sorted(places)
    assert Path("out/property").read_text() == "6,112,112"


def test_a_folder_has_one_encoded_name_per_person(gif: Gif) -> None:
    assert "12 faces of 3 identities" in gif("faces", "export", "-f", "folder", "--held-out", "-o", "out")
    assert sorted(path.name for path in Path("out").iterdir()) == [f"held_out%2F{i}" for i in range(3)]
    assert Path("out/held_out%2F1/000003.png").read_bytes() == face("held_out", 1, 3)


def test_webdataset_has_the_faces_of_any_artifact(gif: Gif) -> None:
    gif("faces", "export", "--format", "webdataset", "--faces", "bb", "--out", "out")
    with tarfile.open("out/faces-000000.tar") as tar:
        assert len(tar.getnames()) == 3 * 24
        assert json.load(tar.extractfile("000000023.json")) == {"label": "identities/5", "identity_id": 5}


def test_bin_has_pairs_of_identities_kept_aside_unless_told_otherwise(gif: Gif) -> None:
    assert "out: 20 pairs of 3 identities" in gif("faces", "export", "--format", "bin", "--pairs", "10", "--out", "out")
    pairs = parse_pair_file(Path("out/pairs.bin").read_bytes(), "pairs.bin")
    owners = {face("held_out", i, sample): i for i in range(3) for sample in range(SAMPLES)}
    identities = [owners[image] for image in pairs.images]
    assert pairs.same_P.tolist() == [
        left == right for left, right in zip(identities[::2], identities[1::2], strict=True)
    ]
    gif("faces", "export", "--format", "bin", "--pairs", "10", "--no-held-out", "--out", "others")
    assert not set(parse_pair_file(Path("others/pairs.bin").read_bytes(), "pairs.bin").images) & set(owners)


def test_the_seed_decides_which_pairs(gif: Gif) -> None:
    for name, seed in (("a", "0"), ("b", "0"), ("c", "1")):
        gif("faces", "export", "--format", "bin", "--pairs", "10", "--seed", seed, "--out", name)
    first, again, other = (Path(name, "pairs.bin").read_bytes() for name in "abc")
    assert first == again
    assert pickle.loads(first)[0] != pickle.loads(other)[0]


def test_an_export_never_writes_over_what_is_there(gif: Gif) -> None:
    Path("out").mkdir()
    Path("out/mine.txt").write_text("mine")
    assert "choose another" in gif("faces", "export", "--format", "folder", "--out", "out", code=2)
    assert [path.name for path in Path("out").iterdir()] == ["mine.txt"]
