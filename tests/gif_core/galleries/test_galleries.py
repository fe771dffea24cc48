"""Galleries: enrolling, identifying, removing, two writers at once, and what pruning and collecting garbage keep."""

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from gif_core.artifacts import (
    ArtifactStore,
    GalleryError,
    commit_version,
    find_leftovers,
    find_unneeded,
    latest_version,
    list_galleries,
    read_versions,
)
from gif_core.galleries import (
    EXACT_LIMIT,
    EnrolledGallery,
    build_index,
    enroll,
    export_templates,
    read_album,
    read_newest,
    remove,
)
from gif_core.galleries.index import BLOCK, CompressedIndex, ExactIndex
from gif_core.galleries.segments import save_segment, segment_path
from gif_core.galleries.templates import Templates, merge
from gif_core.recognition import Recognizer
from gif_core.synthetic import draw_jpeg
from schemas.errors import GifError
from tests.recognition_store import fill_store

PEOPLE = ("ANNA", "BEN", "CARA")
IMAGES = 4
STRANGERS = 700
"""First identity of the drawn faces that are not enrolled."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("galleries")
    fill_store(folder / "store")
    return folder / "store"


@pytest.fixture
def store(model: Path) -> ArtifactStore:
    """The store of the model, without galleries of other tests."""
    opened = ArtifactStore(str(model))
    opened.storage.remove("galleries")
    return opened


@pytest.fixture(scope="module")
def recognizer(model: Path) -> Recognizer:
    return Recognizer.load(str(model), "latest", "cpu")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for person, label in enumerate(PEOPLE):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for image in range(IMAGES):
            (tmp_path / "photos" / label / f"{image}.jpg").write_bytes(draw_jpeg(0, 500 + person, image))
    return tmp_path / "photos"


Enrol = Callable[..., None]


@pytest.fixture
def staff(store: ArtifactStore, recognizer: Recognizer, photos: Path) -> ArtifactStore:
    """The store with a gallery of all people."""
    enroll(recognizer, store, "staff", read_album(photos))
    return store


def content_of(store: ArtifactStore) -> bytes:
    """All bytes that the store holds of galleries."""
    return b"".join(store.storage.read(file.path) for file in store.storage.find("galleries"))


def test_enrolled_people_are_found_and_the_threshold_holds_for_those_it_was_calibrated_on(
    store: ArtifactStore, recognizer: Recognizer, photos: Path
) -> None:
    enroll(recognizer, store, "staff", [(label, photos / label / "0.jpg") for label in PEOPLE])
    gallery = EnrolledGallery.open(store, "staff", device="cpu")
    for label in PEOPLE:
        (answer,) = gallery.identify(photos / label / "0.jpg", top=2)
        assert answer.known
        assert answer.candidates[0].label == label
        assert answer.candidates[0].cosine == pytest.approx(1, abs=1e-5)
        assert len(answer.candidates) == 2
    threshold = gallery.version.threshold
    assert threshold
    assert (threshold.fpir, threshold.origin) == (0.01, "held-out identities of the model's ingestion")
    features_UD, identity_U = recognizer.embed_held_out(1000)
    assert (threshold.unknown_images, threshold.unknown_identities) == (len(features_UD), len(set(identity_U.tolist())))
    best_U = (features_UD @ read_newest(store, "staff")[1].vectors_ND.T).max(axis=1)
    assert (best_U >= threshold.cosine).mean() <= 0.01
    assert (best_U >= threshold.cosine - 0.05).mean() > 0.01, "the threshold is not higher than it must be"


def test_the_threshold_can_be_calibrated_on_own_strangers(
    store: ArtifactStore, recognizer: Recognizer, photos: Path, tmp_path: Path
) -> None:
    (tmp_path / "strangers" / "one").mkdir(parents=True)
    for image in range(6):
        (tmp_path / "strangers" / "one" / f"{image}.jpg").write_bytes(draw_jpeg(0, STRANGERS, image))
    strangers = read_album(tmp_path / "strangers")
    done = enroll(recognizer, store, "staff", read_album(photos), unknown=strangers, fpir=0.2)
    assert done.version.threshold
    assert (done.version.threshold.unknown_images, done.version.threshold.unknown_identities) == (6, 1)
    gallery = EnrolledGallery.open(store, "staff", device="cpu")
    known = [answer.known for answer in gallery.identify([path for _, path in strangers])]
    assert known.count(True) <= 1
    assert "20.0% of 6 images of 1 unknown people" in gallery.describe()


def test_a_second_enrolment_adds_images_and_people_and_skips_images_that_it_has(
    staff: ArtifactStore, recognizer: Recognizer, photos: Path
) -> None:
    (photos / "DORA").mkdir()
    (photos / "DORA" / "0.jpg").write_bytes(draw_jpeg(0, 505, 0))
    (photos / "ANNA" / "new.jpg").write_bytes(draw_jpeg(0, 500, 9))
    done = enroll(recognizer, staff, "staff", read_album(photos))
    assert (done.added, done.known, done.version.number) == (2, len(PEOPLE) * IMAGES, 2)
    assert (done.version.identities, done.version.images) == (4, len(PEOPLE) * IMAGES + 2)
    together = enroll(recognizer, staff, "other", read_album(photos))
    parts, whole = read_newest(staff, "staff")[1], read_newest(staff, "other")[1]
    for label in (*PEOPLE, "DORA"):
        one, other = (each.vectors_ND[each.labels.index(label)] for each in (parts, whole))
        assert one == pytest.approx(other, abs=1e-6), "in two steps or in one"
    assert together.version.number == 1
    assert list_galleries(staff) == ["other", "staff"]


def test_enrolling_the_same_photographs_again_changes_nothing_unless_the_threshold_moves(
    staff: ArtifactStore, recognizer: Recognizer, photos: Path
) -> None:
    done = enroll(recognizer, staff, "staff", read_album(photos))
    assert (done.version, done.added) == (latest_version(staff, "staff"), 0)
    assert len(read_versions(staff, "staff")) == 1
    stricter = enroll(recognizer, staff, "staff", read_album(photos), fpir=0.2).version
    assert (stricter.number, stricter.change) == (2, "calibrated again")


def test_templates_weigh_images_by_quality() -> None:
    clean, spoilt = np.eye(2, dtype=np.float32)
    features = np.stack([clean, clean, spoilt])
    by_quality = Templates.of(["a"] * 3, features, [0.9, 0.9, 0.1], ["1", "2", "3"])
    equal = Templates.of(["a"] * 3, features, [1.0] * 3, ["1", "2", "3"])
    assert by_quality.vectors_ND[0] @ clean > 0.99 > 0.95 > equal.vectors_ND[0] @ clean
    assert merge([by_quality, by_quality.without(["a"])]).digests == [["1", "2", "3"]]


def test_removing_an_identity_removes_its_vectors_from_the_store(staff: ArtifactStore) -> None:
    templates = read_newest(staff, "staff")[1]
    anna = templates.sums_ND[templates.labels.index("ANNA")].tobytes()
    assert anna in content_of(staff)
    done = remove(staff, "staff", "ANNA")
    assert (done.images, done.version.number, done.version.identities) == (IMAGES, 2, 2)
    assert done.held_by == []
    assert anna not in content_of(staff)
    assert b"ANNA" not in content_of(staff)
    assert read_newest(staff, "staff")[1].labels == ["BEN", "CARA"]
    with pytest.raises(GalleryError, match="'ANNA' is not enrolled in staff"):
        remove(staff, "staff", "ANNA")
    for label in ("BEN", "CARA"):
        remove(staff, "staff", label)
    with pytest.raises(GalleryError, match="staff is empty"):
        EnrolledGallery.open(staff, "staff", device="cpu")


def test_what_else_holds_a_removed_identity_is_listed(
    store: ArtifactStore, recognizer: Recognizer, photos: Path
) -> None:
    (ingestion,) = store.refs("ingestion")
    trained = pq.read_table(store.open(ingestion).path("identities.parquet"))["label"][0].as_py()
    (photos / "ANNA").rename(photos / trained)
    for name in ("staff", "visitors"):
        enroll(recognizer, store, name, read_album(photos))
    held_by = remove(store, "staff", trained).held_by
    assert held_by == ["the gallery visitors", f"{ingestion}, its faces, and what was made from it"]


def test_writers_at_once_lose_nothing(staff: ArtifactStore, recognizer: Recognizer, photos: Path) -> None:
    albums = [
        [(f"P{writer}", path) for _, path in read_album(photos)[2 * writer : 2 * writer + 2]] for writer in range(4)
    ]
    start, failures = threading.Barrier(5), []

    def act(work: Callable[[], object]) -> None:
        start.wait()
        try:
            work()
        except Exception as error:
            failures.append(error)

    works: list[Callable[[], object]] = [
        lambda album=album: enroll(recognizer, staff, "crowd", album)  # type: ignore[misc]
        for album in albums
    ]
    enroll(recognizer, staff, "crowd", [("LEAVES", photos / "BEN" / "3.jpg")])
    works.append(lambda: remove(staff, "crowd", "LEAVES"))
    threads = [threading.Thread(target=act, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    version, templates = read_newest(staff, "crowd")
    assert sorted(templates.labels) == ["P0", "P1", "P2", "P3"]
    assert version.number == 6
    assert version.identities == 4
    assert len([*staff.storage.find("galleries/crowd/segments")]) == len(version.segments), "no file is left over"


def test_a_change_is_computed_again_when_another_was_first(staff: ArtifactStore) -> None:
    seen: list[int] = []

    def change(newest: object) -> dict[str, object]:
        version = latest_version(staff, "staff")
        assert version
        seen.append(version.number)
        if len(seen) == 1:
            commit_version(staff, "staff", lambda _: version.model_dump(exclude={"number", "made_at"}))
        return version.model_dump(exclude={"number", "made_at"}) | {"change": "second"}

    assert commit_version(staff, "staff", change).number == 3
    assert seen == [1, 2]
    assert [version.change for version in read_versions(staff, "staff")][-1] == "second"


def test_photographs_that_cannot_be_enrolled_are_refused_with_the_reason(
    store: ArtifactStore, recognizer: Recognizer, photos: Path
) -> None:
    (photos / "ANNA" / "text.jpg").write_text("no image")
    with (photos / "ANNA" / "vast.jpg").open("wb") as file:
        file.truncate(2**40)
    done = enroll(recognizer, store, "staff", read_album(photos))
    refused = [(each.path.name, each.reason[:10]) for each in done.refused]
    assert refused == [("text.jpg", "not a JPEG"), ("vast.jpg", "too large:")]
    (photos / "only").mkdir()
    with pytest.raises(GalleryError, match=r"nobody was enrolled in none: .*text\.jpg"):
        enroll(recognizer, store, "none", [("ANNA", photos / "ANNA" / "text.jpg")])
    assert list_galleries(store) == ["staff"]


def test_a_folder_of_a_person_without_photographs_is_named(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    (photos / "CARL").mkdir()
    (photos / "CARL" / "1.heic").touch()
    with caplog.at_level("WARNING"):
        album = read_album(photos)
    assert {label for label, _ in album} == set(PEOPLE)
    assert f"{photos}/CARL has no photographs (.jpg" in caplog.text


def test_labels_come_from_folders_or_from_a_file(photos: Path, tmp_path: Path) -> None:
    assert [label for label, _ in read_album(photos)] == [label for label in PEOPLE for _ in range(IMAGES)]
    (tmp_path / "labels.csv").write_text("ANNA/0.jpg,Anna\nBEN/1.jpg,Ben, the second\n")
    with pytest.raises(GifError, match="line 2: expected image,label"):
        read_album(photos, tmp_path / "labels.csv")
    (tmp_path / "labels.csv").write_text('ANNA/0.jpg,Anna\nBEN/1.jpg,"Ben, the second"\n')
    assert [label for label, _ in read_album(photos, tmp_path / "labels.csv")] == ["Anna", "Ben, the second"]
    with pytest.raises(GifError, match="sub-folder of images per identity"):
        read_album(photos / "ANNA")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"ANNA/0.jpg," + bytes([97]) * 200_000, r"labels.csv, after line \d: not CSV in UTF-8"),
        (b"\xff\xfea,b\n", "labels.csv, after line 0: not CSV in UTF-8"),
        (b"a" * 5000 + b",Anna\n", "labels.csv, line 1: there is no image"),
        (b"a\0b,Anna\n", "labels.csv"),
    ],
)
def test_a_damaged_file_of_labels_is_named_with_the_line(
    content: bytes, words: str, photos: Path, tmp_path: Path
) -> None:
    (tmp_path / "labels.csv").write_bytes(content)
    with pytest.raises(GifError, match=words):
        read_album(photos, tmp_path / "labels.csv")


def test_a_gallery_keeps_to_its_model_and_pruning_keeps_that(staff: ArtifactStore, photos: Path) -> None:
    version = latest_version(staff, "staff")
    assert version
    kept = {(each.stage, each.key) for each in find_unneeded(staff, keep_runs=1)}
    assert ("training", version.model) not in kept
    commit_version(staff, "old", lambda _: version.model_dump(exclude={"number", "made_at"}) | {"model": "f" * 64})
    recognizer = Recognizer.load(staff, "latest", "cpu")
    with pytest.raises(GalleryError, match="enrolled with training/ffffffffffff"):
        enroll(recognizer, staff, "old", read_album(photos))
    for name in ("Staff", "../x", ""):
        with pytest.raises(GalleryError, match="a lower-case word"):
            latest_version(staff, name)


def test_leftovers_of_a_killed_enrolment_are_collected_and_templates_in_use_are_not(staff: ArtifactStore) -> None:
    left = save_segment(staff, "staff", Templates(["X"], np.ones((1, 4), np.float32), [["1"]]))
    found = {leftover.path for leftover in find_leftovers(staff, older_than=-60)}
    assert segment_path("staff", left) in found
    version = latest_version(staff, "staff")
    assert version
    assert not found & {segment_path("staff", segment) for segment in version.segments}


def test_damaged_templates_are_told(staff: ArtifactStore) -> None:
    version = latest_version(staff, "staff")
    assert version
    path = segment_path("staff", version.segments[0])
    staff.storage.replace(path, staff.storage.read(path)[:-1])
    with pytest.raises(GalleryError, match="is damaged: enrol its images again"):
        read_newest(staff, "staff")
    staff.storage.remove(path)
    with pytest.raises(GalleryError, match="are missing"):
        read_newest(staff, "staff")
    with pytest.raises(GalleryError, match="there are: staff"):
        read_newest(staff, "nobody")


def test_an_exported_gallery_has_labels_templates_and_the_threshold(staff: ArtifactStore, tmp_path: Path) -> None:
    version, templates = read_newest(staff, "staff")
    export_templates(tmp_path / "staff.parquet", templates, version)
    table = pq.read_table(tmp_path / "staff.parquet")
    assert table["label"].to_pylist() == list(PEOPLE)
    assert np.array(table["vector"].to_pylist()) == pytest.approx(templates.vectors_ND, abs=1e-6)
    assert version.model.encode() in table.schema.metadata[b"gif"]
    export_templates(tmp_path / "staff.npz", templates, version)
    assert np.load(tmp_path / "staff.npz")["labels"].tolist() == list(PEOPLE)
    with pytest.raises(GifError, match="must end with"):
        export_templates(tmp_path / "staff.txt", templates, version)


def draw_templates(count: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums of any length, images of the first 500 identities, and images of strangers."""
    rng = np.random.default_rng(0)
    people, strangers = rng.standard_normal((count, width)), rng.standard_normal((500, width))
    sums = people * rng.uniform(0.5, 4, (count, 1))
    images = people[:500] + 0.8 * rng.standard_normal((500, width))
    images, strangers = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (images, strangers))
    return sums.astype(np.float32), images.astype(np.float32), strangers.astype(np.float32)


def test_exact_search_gives_the_highest_cosines_in_order_whatever_the_lengths() -> None:
    sums, images, _ = draw_templates(BLOCK + 100, 16)
    cosines = images @ (sums / np.linalg.norm(sums, axis=1, keepdims=True)).T
    for top in (1, 5):
        found, rows = ExactIndex(sums).search(images, top)
        wanted = np.argsort(-cosines, axis=1)[:, :top]
        assert found == pytest.approx(np.take_along_axis(cosines, wanted, 1), abs=1e-5)
        assert (rows == wanted).mean() > 0.999, "but for equal cosines"
    found, rows = ExactIndex(sums[:3]).search(images[:2], 5)
    assert rows.shape == (2, 3)
    assert ExactIndex(sums[:0]).search(images[:2], 5)[1].shape == (2, 0)


def test_compressed_templates_find_what_exact_search_finds() -> None:
    sums, images, strangers = draw_templates(30_000, 128)
    exact, compressed = (build_index(sums, kind) for kind in ("exact", "compressed"))
    assert isinstance(compressed, CompressedIndex)
    assert compressed.code_bytes == sums.nbytes // 16
    for queries in (images, strangers):
        (best, wanted), (cosines, rows) = (index.search(queries, 1) for index in (exact, compressed))
        same = rows == wanted
        assert same.mean() >= 0.999
        assert cosines[same] == pytest.approx(best[same], abs=1e-6), "compared exactly"


def test_many_identities_are_compressed_and_few_are_not() -> None:
    many = np.ones((EXACT_LIMIT + 1, 2), np.float32)
    assert isinstance(build_index(many), CompressedIndex)
    assert isinstance(build_index(many[:-1]), ExactIndex)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads /proc")
def test_templates_on_a_local_disk_stay_there_until_they_are_searched(staff: ArtifactStore) -> None:
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    version, templates = read_newest(staff, "staff", digests=False)
    now = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    assert [path.endswith(version.segments[0]) for path in now - mapped] == [True]
    assert (templates.digests, len(templates)) == ([], len(PEOPLE))
