import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gif_core.readers import Reader, columns, open_reader, readable
from gif_core.readers.columns import UnreadableTableError
from gif_core.readers.spool import Spool
from schemas.ingestion import TableSource

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
KINDS = ["parquet", "arrow"]
Read = Callable[[TableSource], Any]
Keep = Callable[[dict[str, bytes]], str]


def table(images: Sequence[Any], labels: Any, names: list[Any] | None = None, **columns: Any) -> pa.Table:
    """Columns as Hugging Face saves them: the image's bytes beside its path, classes named in the schema."""
    cells = [image if isinstance(image, dict | None) else {"bytes": image, "path": "a.jpg"} for image in images]
    found = pa.table({"image": pa.array(cells, IMAGE), "label": pa.array(labels), **columns})
    label = {"dtype": "int64", "_type": "Value"} if names is None else {"names": names, "_type": "ClassLabel"}
    about = {"info": {"features": {"image": {"_type": "Image"}, "label": label}}}
    return found.replace_schema_metadata({b"huggingface": json.dumps(about).encode()})


def encode(found: pa.Table, kind: str, rows: int = 3, **options: Any) -> bytes:
    """The file: `parquet`, `arrow` as a stream, or `file` for Arrow's other format."""
    out = io.BytesIO()
    if kind == "parquet":
        pq.write_table(found, out, row_group_size=rows, **options)
    else:
        make = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
        with make(out, found.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
            writer.write_table(found, max_chunksize=rows)
    return out.getvalue()


def source(folder: str, kind: str, **settings: str) -> TableSource:
    return TableSource(kind="parquet" if kind == "parquet" else "arrow", path=folder, **settings)


@pytest.mark.parametrize("kind", [*KINDS, "file"])
def test_rows_are_faces_with_the_names_of_their_classes(read_source: Read, keep_in_memory: Keep, kind: str) -> None:
    faces = table([b"1", b"2", b"3", b"4"], [1, 0, 1, 2], ["ann", "bob", "cy"], extra=pa.array(range(4)))
    ending = "parquet" if kind == "parquet" else "arrow"
    found = read_source(source(keep_in_memory({f"a.{ending}": encode(faces, kind)}), kind))
    assert found.faults == []
    assert found.faces == [("bob", b"1"), ("ann", b"2"), ("bob", b"3"), ("cy", b"4")]
    assert [row.name for row in found.rows] == [f"a.{ending}#{row}" for row in range(4)]


@pytest.mark.parametrize(
    "labels",
    [
        pa.array([7, 8, 7]),
        pa.array([7, 8, 7], pa.uint8()),
        pa.array(["7", "8", "7"]),
        pa.array(["7", "8", "7"], pa.large_string()),
        pa.array(["7", "8", "7"], pa.string_view()),
        pa.array(["7", "8", "7"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([1, 2, 1]), pa.array(["nobody", "7", "8"])),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_numbers_or_text_of_any_kind(
    read_source: Read, keep_in_memory: Keep, kind: str, labels: pa.Array
) -> None:
    folder = keep_in_memory({f"a.{kind}": encode(table([b"1", b"2", b"3"], labels), kind)})
    assert read_source(source(folder, kind)).faces == [("7", b"1"), ("8", b"2"), ("7", b"3")]
    assert open_reader(source(folder, kind)).listing.labels == ["7", "8"]


@pytest.mark.parametrize("kind_of_image", [pa.binary(), pa.large_binary(), pa.binary_view()])
@pytest.mark.parametrize("kind", KINDS)
def test_images_may_be_plain_bytes_under_other_names(
    read_source: Read, keep_in_memory: Keep, kind: str, kind_of_image: pa.DataType
) -> None:
    columns = {"who": pa.array(["x", "y"]), "photo.jpg": pa.array([b"1", b""], kind_of_image)}
    folder = keep_in_memory({f"a.{kind}": encode(pa.table(columns), kind)})
    found = read_source(source(folder, kind, image="photo.jpg", label="who"))
    assert found.faces == [("x", b"1"), ("y", b"")]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_without_a_label_are_faults(read_source: Read, keep_in_memory: Keep, kind: str) -> None:
    numbers = table([b"1", b"2", b"3", b"4", b"5"], [0, None, -1, 2, 1], ["ann", "bob"])
    found = read_source(source(keep_in_memory({f"a.{kind}": encode(numbers, kind, rows=2)}), kind))
    assert found.faces == [("ann", b"1"), ("bob", b"5")]
    assert found.faults == [(f"a.{kind}#{row}", "no label") for row in (1, 2, 3)]
    plain = table([b"1", b"2", b"3"], [-1, None, 0])
    assert read_source(source(keep_in_memory({f"a.{kind}": encode(plain, kind)}), kind)).faces == [("0", b"3")]
    text = table([b"1", b"2", b"3", b"4"], ["", None, "x" * 1001, "x"])
    assert read_source(source(keep_in_memory({f"a.{kind}": encode(text, kind)}), kind)).faces == [("x", b"4")]


def test_names_of_classes_that_nothing_can_hold_are_no_labels(read_source: Read, keep_in_memory: Keep) -> None:
    faces = table([b"1", b"2", b"3"], [0, 1, 2], ["\ud800", "", "x"])
    found = read_source(source(keep_in_memory({"a.parquet": encode(faces, "parquet")}), "parquet"))
    assert found.faces == [("x", b"3")]


@pytest.mark.parametrize(
    "about", [b"", b"{", b"[]", b'{"info": 3}', b'{"info": {"features": {"label": {"names": 3}}}}']
)
def test_a_schema_that_says_nothing_leaves_numbers(read_source: Read, keep_in_memory: Keep, about: bytes) -> None:
    faces = table([b"1"], [3]).replace_schema_metadata({b"huggingface": about})
    found = read_source(source(keep_in_memory({"a.parquet": encode(faces, "parquet")}), "parquet"))
    assert found.faces == [("3", b"1")]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_without_an_image_are_refused_when_read(read_source: Read, keep_in_memory: Keep, kind: str) -> None:
    faces = table([None, {"bytes": None, "path": "a.jpg"}, b"", b"4"], [0, 1, 2, 3])
    found = read_source(source(keep_in_memory({f"a.{kind}": encode(faces, kind, rows=9)}), kind))
    reason = "empty: the row has no image bytes"
    assert found.faces == [("0", reason), ("1", reason), ("2", b""), ("3", b"4")]


@pytest.mark.parametrize("kind", KINDS)
def test_images_beyond_any_size_are_refused(
    read_source: Read, keep_in_memory: Keep, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gif_core.readers.tables.LARGEST_IMAGE", 10)
    faces = table([b"x" * 10, b"x" * 11], [0, 1])
    found = read_source(source(keep_in_memory({f"a.{kind}": encode(faces, kind)}), kind))
    assert found.faces == [("0", b"x" * 10), ("1", "too large: an image of 11 bytes")]


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_read_in_order_and_share_identities_by_name(read_source: Read, tmp_path: Path, kind: str) -> None:
    ending = f".{kind}"
    first = table([bytes([i]) for i in range(7)], [0, 0, 1, 1, 1, 0, 1], ["ann", "bob"])
    second = table([bytes([i]) for i in range(7, 10)], [0, 1, 1], ["bob", "cy"])
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / f"data-00000-of-00002{ending}").write_bytes(encode(first, kind))
    (tmp_path / "train" / f"data-00001-of-00002{ending}").write_bytes(encode(second, kind))
    (tmp_path / "train" / "state.json").write_text("{}")
    (tmp_path / "link").mkdir()
    for path in (tmp_path / "train").iterdir():
        (tmp_path / "link" / path.name).symlink_to(path)
    labels = ["ann"] * 2 + ["bob"] * 3 + ["ann", "bob", "bob", "cy", "cy"]
    for path in ("train", f"train/*{ending}", "link", "link/data-*"):
        found = read_source(source(str(tmp_path / path), kind))
        assert found.faces == [(label, bytes([i])) for i, label in enumerate(labels)]
        assert found.rows[7].name == f"data-00001-of-00002{ending}#0"
    reader = open_reader(source(str(tmp_path / "train"), kind))
    assert reader.listing.labels == ["ann", "bob", "cy"]
    assert reader.listing.file_R.tolist() == [0] * 7 + [1] * 3
    assert list(reader.read(np.array([8, 9, 0, 6, 5, 5, 7]))) == [bytes([i]) for i in (8, 9, 0, 6, 5, 5, 7)]


@pytest.mark.parametrize("kind", [*KINDS, "file"])
def test_the_error_about_a_missing_column_names_the_file_and_its_columns(keep_in_memory: Keep, kind: str) -> None:
    ending = "parquet" if kind == "parquet" else "arrow"
    full, empty = table([b"1"], [1], extra=pa.array([2])), table([], pa.array([], pa.int64()), extra=pa.array([]))
    for faces in (full, empty):
        folder = keep_in_memory({f"sub/a.{ending}": encode(faces, kind)})
        with pytest.raises(UnreadableTableError) as raised:
            _ = open_reader(source(folder, kind, label="person")).listing
        wanted = "there is no single column 'person'; it has: image, label, extra"
        assert str(raised.value) == f"sub/a.{ending}: {wanted}"
    reader = open_reader(source(keep_in_memory({f"a.{ending}": encode(full, kind)}), kind, image="photo"))
    with pytest.raises(UnreadableTableError, match=rf"a\.{ending}: there is no single column 'photo'"):
        list(reader.read(np.arange(1)))


@pytest.mark.parametrize(
    ("column", "values", "reason"),
    [
        ("label", pa.array([1.5]), "labels must be numbers or text, found double"),
        ("label", pa.array([b"x"]), "labels must be numbers or text, found binary"),
        ("label", pa.array([[1]]), "cannot be read"),
        ("image", pa.array(["x"]), "column 'image' holds string, not images as bytes or"),
        ("image", pa.array([{"path": "x"}]), "column 'image' holds struct<path: string>, not images"),
        ("image", pa.array([{"bytes": 1}]), "column 'image' holds int64, not images"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_other_types_are_errors(
    keep_in_memory: Keep, kind: str, column: str, values: pa.Array, reason: str
) -> None:
    columns = {"image": pa.array([b"1"]), "label": pa.array([1]), column: values}
    reader = open_reader(source(keep_in_memory({f"a.{kind}": encode(pa.table(columns), kind)}), kind))
    with pytest.raises(UnreadableTableError, match=rf"a\.{kind}.*{reason}"):
        list(reader.read(np.arange(len(reader.listing.person_R))))


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1PAR1", b"ARROW1", b"ARROW1\0\0ARROW1", b"x" * 1000])
@pytest.mark.parametrize("kind", KINDS)
def test_the_error_about_a_file_that_is_no_table_names_it(keep_in_memory: Keep, kind: str, content: bytes) -> None:
    with pytest.raises(UnreadableTableError, match=rf"a\.{kind} cannot be read, it is damaged or no table: "):
        _ = open_reader(source(keep_in_memory({f"a.{kind}": content}), kind)).listing


@pytest.mark.parametrize("kind", KINDS)
def test_more_rows_than_bytes_are_refused(keep_in_memory: Keep, kind: str) -> None:
    count = 300_000
    columns = {"image": pa.nulls(count), "label": pa.nulls(count, pa.bool_())}
    content = encode(pa.table(columns), kind, rows=count, **({"compression": "zstd"} if kind == "parquet" else {}))
    assert len(content) < count
    with pytest.raises(UnreadableTableError, match=rf"a\.{kind}: it has more rows than bytes"):
        _ = open_reader(source(keep_in_memory({f"a.{kind}": content}), kind)).listing


def test_a_table_that_unfolds_to_far_more_than_its_size_is_refused(
    keep_in_memory: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "LARGEST_IMAGE", 2**20)
    faces = table([bytes(2**20)] * 8, [0] * 8)
    content = encode(faces, "parquet", rows=8, compression="zstd", use_dictionary=False)
    assert len(content) < 2**16
    with pytest.raises(UnreadableTableError, match=r"a\.parquet: row group 0 unfolds to 83\d{5} bytes"):
        _ = open_reader(source(keep_in_memory({"a.parquet": content}), "parquet")).listing


def test_a_damaged_length_makes_no_room_for_what_is_not_there(keep_in_memory: Keep) -> None:
    """The schema of a stream begins with its length: here it is said to have a gigabyte."""
    content = encode(table([b"1"], [1]), "arrow")
    folder = keep_in_memory({"a.arrow": content[:4] + (2**30).to_bytes(4, "little") + content[8:]})
    reader = open_reader(source(folder, "arrow"))
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        with pytest.raises(UnreadableTableError):
            _ = reader.listing
    finally:
        pa.set_memory_pool(before)
    assert pool.max_memory() < 2**20


def test_a_replaced_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(encode(table([b"1", b"2", b"3"], [0, 1, 2]), "parquet"))
    reader = open_reader(source(str(tmp_path), "parquet"))
    assert len(reader.listing.person_R) == 3
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(UnreadableTableError, match=r"a\.parquet.*the file has changed"):
        list(reader.read(np.arange(3)))


def test_a_truncated_file_is_an_error(tmp_path: Path) -> None:
    long, short = (encode(table([b"1"] * rows, [0] * rows), "arrow", rows=1) for rows in (5, 2))
    (tmp_path / "a.arrow").write_bytes(long)
    reader = open_reader(source(str(tmp_path), "arrow"))
    assert len(reader.listing.person_R) == 5
    (tmp_path / "a.arrow").write_bytes(short.ljust(len(long), b"\0"))
    with pytest.raises(UnreadableTableError, match=r"a\.arrow: it ended before row 2: has it changed\?"):
        list(reader.read(np.arange(5)))


def test_row_groups_are_fetched_piece_by_piece(keep_in_memory: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    images = [np.random.default_rng(i).bytes(20_000) for i in range(400)]
    content = encode(table(images, [0] * 400), "parquet", rows=400, data_page_size=2**17, write_batch_size=5)
    reader = open_reader(source(keep_in_memory({"a.parquet": content}), "parquet"))
    monkeypatch.setattr("gif_core.readers.columns.BUFFER", 2**18)
    fetched: list[int] = []
    fetch = type(reader.blobs[0])._fetch  # type: ignore[attr-defined]
    monkeypatch.setattr(
        "gif_core.readers.files.Blob._fetch",
        lambda self, start, end: fetched.append(end - start) or fetch(self, start, end),
    )
    assert list(reader.read(np.arange(400))) == images
    assert max(fetched) < len(content) / 3
    assert sum(fetched) < 1.2 * len(content)


@pytest.mark.parametrize("kind", KINDS)
def test_identities_who_are_mixed_are_read_from_a_spool_with_the_same_result(
    keep_in_memory: Keep, tmp_path: Path, kind: str
) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 9, 3000)
    images = [rng.bytes(int(size)) for size in rng.integers(0, 50, 3000)]
    cells = [None if i % 100 == 7 else image for i, image in enumerate(images)]
    grouped = np.argsort(labels, kind="stable")

    def read(order: np.ndarray, by: np.ndarray) -> list[Any]:
        faces = table([cells[i] for i in order], labels[order])
        reader = open_reader(source(keep_in_memory({f"a.{kind}": encode(faces, kind, rows=500)}), kind))
        with readable(reader, by, tmp_path / "spool") as some:
            assert isinstance(some, Spool) == (by is grouped)
            assert some.describe() == reader.describe()
            return [content if isinstance(content, bytes) else str(content) for content in some.read(by)]

    mixed = read(np.arange(3000), grouped)
    assert mixed == read(grouped, np.arange(3000))
    assert mixed == [images[i] if cells[i] is not None else "empty: the row has no image bytes" for i in grouped]
    assert list(tmp_path.iterdir()) == []


def test_a_spool_is_removed_when_something_goes_wrong(keep_in_memory: Keep, tmp_path: Path) -> None:
    reader = open_reader(source(keep_in_memory({"a.arrow": encode(table([b"1", b"2"], [0, 1]), "arrow")}), "arrow"))
    assert len(reader.listing.person_R) == 2
    fsspec.filesystem("memory").store.clear()
    with pytest.raises(FileNotFoundError), readable(reader, np.array([1, 0]), tmp_path / "spool"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_spool_knows_its_source(keep_in_memory: Keep, tmp_path: Path) -> None:
    content = encode(table([b"1", b"2", b"3"], [0, 1, 0]), "arrow")
    reader: Reader = open_reader(source(keep_in_memory({"a.arrow": content}), "arrow"))
    with readable(reader, np.array([2, 0]), tmp_path / "spool") as spool:
        assert spool.listing is reader.listing
        assert spool.files == reader.files
        assert spool.names(np.array([2])) == ["a.arrow#2"]
        assert list(spool.read(np.array([0, 2, 2]))) == [b"1", b"3", b"3"]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
rows = st.lists(st.tuples(st.one_of(st.none(), st.binary(max_size=40)), st.one_of(st.none(), texts)), max_size=40)


@settings(max_examples=150)
@given(rows, st.sampled_from([*KINDS, "file"]), st.integers(1, 9), st.sampled_from([None, "zstd"]))
def test_any_table_is_read_back(
    read_source: Read, keep_in_memory: Keep, rows: list[Any], kind: str, group: int, compression: str | None
) -> None:
    faces = table([image for image, _ in rows], pa.array([label for _, label in rows], pa.string()))
    ending = "parquet" if kind == "parquet" else "arrow"
    options = {"compression": compression or "none"} if kind == "parquet" else {"compression": compression}
    content = encode(faces, kind, rows=group, **options)
    found = read_source(source(keep_in_memory({f"a.{ending}": content}), kind))
    missing = "empty: the row has no image bytes"
    assert found.faces == [(label, missing if image is None else image) for image, label in rows if label]
    assert [fault.record for fault in found.faults] == [
        f"a.{ending}#{row}" for row, (_, label) in enumerate(rows) if not label
    ]


def folded(count: int, size: int, label: str | int = "ann") -> bytes:
    """A Parquet file that holds one image and one label for all its rows."""
    faces = pa.table({"image": pa.array([bytes(size)] * count), "label": pa.array([label] * count)})
    return encode(faces, "parquet", rows=count, compression="zstd", dictionary_pagesize_limit=2**30)


def peak(read: Callable[[], object]) -> int:
    """Most bytes that pyarrow holds while something is read."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        read()
    finally:
        pa.set_memory_pool(before)
    return int(pool.max_memory())


def test_a_parquet_file_of_two_kilobytes_does_not_become_a_gigabyte(keep_in_memory: Keep) -> None:
    content = folded(500, 2**21)
    assert len(content) < 2**11
    reader = open_reader(source(keep_in_memory({"a.parquet": content}), "parquet"))
    images = reader.read(np.arange(500))

    def read() -> None:
        with pytest.raises(UnreadableTableError, match=r"a\.parquet: it unfolds to more than \d+ bytes"):
            assert all(len(image) == 2**21 for image in images if isinstance(image, bytes))

    assert peak(read) < 16 * 2**20


def test_labels_that_share_their_beginnings_are_read(read_source: Read, keep_in_memory: Keep) -> None:
    encoding = {"label": "DELTA_BYTE_ARRAY"}
    content = encode(
        table([b"1", b"2"], ["anna", "annette"]), "parquet", use_dictionary=False, column_encoding=encoding
    )
    found = read_source(source(keep_in_memory({"a.parquet": content}), "parquet"))
    assert found.faces == [("anna", b"1"), ("annette", b"2")]


def test_a_parquet_file_whose_rows_have_labels_that_its_dictionary_lacks_is_an_error(keep_in_memory: Keep) -> None:
    content = encode(table([b"1"] * 9, ["x", "y", "z"] * 3), "parquet", rows=9, compression="none")
    places, beyond = bytes([0b00_10_01_00, 0b01_00_10_01]), bytes([0b00_10_01_11, 0b01_00_10_01])
    assert content.count(places) == 1
    reader = open_reader(source(keep_in_memory({"a.parquet": content.replace(places, beyond)}), "parquet"))
    with pytest.raises(UnreadableTableError, match=r"a\.parquet cannot be read, it is damaged"):
        _ = reader.listing


def test_a_parquet_file_with_one_long_label_for_all_rows_is_not_unfolded(keep_in_memory: Keep) -> None:
    content = folded(500, 8, "x" * 2**20)
    reader = open_reader(source(keep_in_memory({"a.parquet": content}), "parquet"))
    assert peak(lambda: reader.listing) < 16 * 2**20
    assert [fault.reason for fault in reader.listing.faults] == ["no label"] * 500


@pytest.mark.parametrize("kind", [*KINDS, "file"])
@pytest.mark.parametrize("index", [pa.int64(), pa.uint32()])
def test_labels_that_a_dictionary_lists_but_no_row_has_are_no_identities(
    read_source: Read, keep_in_memory: Keep, kind: str, index: pa.DataType
) -> None:
    labels = pa.DictionaryArray.from_arrays(pa.array([2, 0, 2, None], index), pa.array(["ann", "bob", "cy"]))
    ending = "parquet" if kind == "parquet" else "arrow"
    content = encode(table([b"1", b"2", b"3", b"4"], labels), kind, rows=4)
    reader = open_reader(source(keep_in_memory({f"a.{ending}": content}), kind))
    assert reader.listing.labels == ["cy", "ann"]
    assert len(reader.listing.faults) == 1
