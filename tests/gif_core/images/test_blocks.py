import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gif_core.images import BadImageError, BlockChecker, ImageBlock, ImageLimits, check_image, gather, join
from gif_core.images import blocks as image_blocks

LIMITS = ImageLimits(16, 4096)
NOISE = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 256, (48, 48, 3), np.uint8), (3, 3), 0)


def encode(ending: str, image: np.ndarray) -> bytes:
    content: bytes = cv2.imencode(ending, image)[1].tobytes()
    return content


FACE, OTHER = encode(".jpg", NOISE), encode(".jpg", NOISE[::-1])
SMALL, PNG = encode(".jpg", NOISE[:8, :8]), encode(".png", NOISE)
DATA = FACE.find(b"\xff\xda") + 14


def refusals(contents: list[bytes]) -> dict[int, str]:
    """What is said of each image by itself."""
    found = {}
    for place, content in enumerate(contents):
        try:
            check_image(content, LIMITS)
        except BadImageError as error:
            found[place] = str(error)
    return found


@st.composite
def faces(draw: st.DrawFn) -> bytes:
    """A sound image, or one with something cut off or put into it."""
    content = draw(st.sampled_from([FACE, OTHER, FACE, OTHER, SMALL, PNG, b""]))
    place = draw(st.integers(0, len(content)))
    marker = draw(st.sampled_from([b"\xff", b"\xff\0", b"\xff\xd0", b"\xff\xd8", b"\xff\xd9", b"\xff\xff\xd9"]))
    damages = [content, content, content[:place], content[:place] + marker + content[place:], content + marker]
    return draw(st.sampled_from(damages))


@settings(max_examples=150)
@given(st.lists(faces(), max_size=12))
def test_a_block_is_judged_as_its_images_are_one_by_one(contents: list[bytes]) -> None:
    check = BlockChecker(LIMITS)
    check(gather([FACE]))
    assert check(gather(contents)) == refusals(contents)


@pytest.mark.parametrize("cut", [1, 2, 3, 50, len(FACE) - DATA, len(FACE) - DATA + 1, len(FACE) - 1])
def test_an_image_that_is_cut_off_does_not_borrow_the_end_of_the_next(cut: int) -> None:
    check, contents = BlockChecker(LIMITS), [FACE, FACE[:-cut], FACE[-2:], FACE]
    check(gather([FACE]))
    assert check(gather(contents)) == refusals(contents)
    assert 1 in refusals(contents)


def test_sound_images_of_one_encoder_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    check = BlockChecker(LIMITS)
    assert check(gather([FACE])) == {}
    monkeypatch.setattr(image_blocks, "check_image", lambda *_: pytest.fail("it was looked at by itself"))
    assert check(gather([OTHER, FACE, OTHER])) == {}


def test_what_lies_between_images_does_not_matter() -> None:
    between = b"\xff\xd8\xff\xd9"
    content = between + FACE + between + OTHER
    block = ImageBlock(content, np.array([4, 8 + len(FACE)]), np.array([4 + len(FACE), len(content)]))
    check = BlockChecker(LIMITS)
    check(gather([FACE]))
    assert block.images() == [FACE, OTHER]
    assert check(block) == {}


def test_reasons_of_the_reader_are_kept() -> None:
    block = gather([FACE, BadImageError("it is not there"), OTHER])
    assert block.images() == [FACE, b"", OTHER]
    assert BlockChecker(LIMITS)(block) == {1: "it is not there"}


def test_all_images_are_decoded_when_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    monkeypatch.setattr(image_blocks, "check_decodes", decoded.append)
    check = BlockChecker(LIMITS, decode_all=True)
    check(gather([FACE]))
    check(gather([OTHER, FACE]))
    assert decoded == [FACE, OTHER, FACE]


def test_blocks_are_joined_in_order() -> None:
    blocks = [gather([FACE, PNG]), gather([]), gather([OTHER])]
    assert join(blocks).images() == [FACE, PNG, OTHER]
    assert join([]).images() == []
    assert join(blocks[:1]) is blocks[0]
