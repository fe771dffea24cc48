import numpy as np
import pytest

from gif_core.synthetic import ATTRIBUTES, answers, caption, describe, identity_attributes, prompts, questions
from gif_core.synthetic.captions import DETAILS, PHRASES


def captions(person: int, count: int = 60) -> list[str]:
    rng = np.random.default_rng(person)
    return [caption(identity_attributes(0, person), rng) for _ in range(count)]


@pytest.mark.parametrize("person", range(12))
def test_a_caption_says_only_what_is_true(person: int) -> None:
    words = describe(identity_attributes(0, person))
    texts = captions(person)
    for attribute, phrases in PHRASES.items():
        wrong = [phrase for word, phrase in phrases.items() if word != words[attribute]]
        assert not [text for text in texts for phrase in wrong if phrase in text.split(" with ")[-1].split(", ")]
    for attribute, steps in DETAILS.items():
        value = identity_attributes(0, person)[ATTRIBUTES.index(attribute)]
        wrong = [phrase for step, phrase in enumerate(steps) if not step <= value * len(steps) <= step + 1]
        assert not [text for text in texts for phrase in wrong if phrase in text.split(" with ")[-1].split(", ")]


def test_captions_are_short_and_long_and_mention_everything_at_times() -> None:
    texts = [text for person in range(40) for text in captions(person, 20)]
    lengths = [text.count(", ") + 1 for text in texts]
    assert min(lengths) == 1
    assert max(lengths) > 7
    phrases = [phrase for words in PHRASES.values() for phrase in words.values()]
    phrases += [phrase for words in DETAILS.values() for phrase in words]
    assert all(any(phrase in text for text in texts) for phrase in phrases)


def test_captions_of_a_bald_head_mention_no_hair_colour() -> None:
    bald = next(p for p in range(200) if describe(identity_attributes(0, p))["hair_length"] == "bald")
    texts = captions(bald)
    assert any("a bald head" in text for text in texts)
    colours = PHRASES["hair_colour"].values()
    assert not any(colour in text for colour in colours for text in texts)


def test_every_word_has_its_prompts() -> None:
    for attribute in ("hair_colour", "beard", "glasses", "skin_tone"):
        asked = prompts(attribute)
        assert list(asked) == list(PHRASES[attribute])
        assert len({sentence for sentences in asked.values() for sentence in sentences}) == 4 * len(asked)
    assert set(DETAILS) <= set(ATTRIBUTES)


def test_every_question_has_one_true_answer_and_hair_that_is_not_there_has_no_colour() -> None:
    asked = questions()
    for person in range(50):
        attributes = identity_attributes(0, person)
        words, texts = describe(attributes), answers(attributes)
        assert len(texts) == len(asked)
        assert (texts[list(PHRASES).index("hair_colour")] is None) == (words["hair_length"] == "bald")
        for name, phrases, true in zip(PHRASES, asked, texts, strict=False):
            assert true is None or phrases[true] == PHRASES[name][words[name]]
