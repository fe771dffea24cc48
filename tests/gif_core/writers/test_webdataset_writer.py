import json
import tarfile
from pathlib import Path

import pytest

from gif_core.writers import ExportInfo, Face, write_webdataset

IDENTITIES = ["ann", "bø/b", ""]
FACES = [Face(number % 3, b"\xff\xd8\xff" + bytes([number]) * 40 * number) for number in range(20)]
FACES[7] = Face(1, b"\x89PNG\r\n\x1a\nsmall")


def write(folder: Path, shard_bytes: int = 10**9) -> list[Path]:
    folder.mkdir(exist_ok=True)
    steps = list(write_webdataset(iter(FACES), ExportInfo(IDENTITIES, len(FACES)), folder, shard_bytes=shard_bytes))
    assert steps == list(range(1, 21))
    return sorted(folder.iterdir())


def members(path: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(path) as tar:
        return [(member, tar.extractfile(member).read()) for member in tar]


def test_a_sample_is_image_class_and_json_side_by_side(tmp_path: Path) -> None:
    (shard,) = write(tmp_path)
    assert shard.name == "faces-000000.tar"
    found = members(shard)
    for number, face in enumerate(FACES):
        image, identity, about = found[3 * number : 3 * number + 3]
        ending = "png" if number == 7 else "jpg"
        key = f"{number:09d}"
        assert [member.name for member, _ in (image, identity, about)] == [
            f"{key}.{ending}",
            f"{key}.cls",
            f"{key}.json",
        ]
        assert image[1] == face.image
        assert int(identity[1]) == face.identity_id
        assert json.loads(about[1]) == {"label": IDENTITIES[face.identity_id], "identity_id": face.identity_id}


def test_shards_stay_below_the_limit_and_keep_samples_whole_and_in_order(tmp_path: Path) -> None:
    shards = write(tmp_path, shard_bytes=8000)
    assert [shard.name for shard in shards] == [f"faces-{number:06d}.tar" for number in range(len(shards))]
    assert len(shards) > 3
    assert max(shard.stat().st_size for shard in shards) <= 8000
    keys = [[member.name.partition(".")[0] for member, _ in members(shard)] for shard in shards]
    assert all(len(part) % 3 == 0 for part in keys)
    assert [key for part in keys for key in part] == [f"{number:09d}" for number in range(20) for _ in range(3)]


def test_a_sample_larger_than_a_shard_has_one_to_itself(tmp_path: Path) -> None:
    assert len(write(tmp_path, shard_bytes=1)) == 20


def test_the_same_faces_give_the_same_bytes_without_owner_or_time(tmp_path: Path) -> None:
    first, again = write(tmp_path / "a", 8000), write(tmp_path / "b", 8000)
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    for member, _ in members(first[0]):
        assert (member.mtime, member.uid, member.gid, member.uname, member.mode) == (0, 0, 0, "", 0o644)


def test_a_miscount_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="3 faces were announced, but 2 were given"):
        list(write_webdataset(FACES[:2], ExportInfo(IDENTITIES, 3), tmp_path))
