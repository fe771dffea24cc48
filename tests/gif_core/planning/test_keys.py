from pathlib import Path

import pytest

from gif_core.artifacts import Artifact, ArtifactStore
from gif_core.planning import StageIdentity, contents_of, identify_stage, stage_settings
from schemas.loading import load_config
from schemas.run import RunConfig


@pytest.fixture
def store(tiny: RunConfig) -> ArtifactStore:
    return ArtifactStore(tiny.store)


def publish(store: ArtifactStore, identity: StageIdentity, content: str) -> Artifact:
    with store.draft(identity.ref, identity.settings, identity.made_from) as draft:
        (draft.folder / "file").write_text(content)
        store.publish(draft, replace=True)
    return store.open(identity.ref)


def test_a_planned_input_gives_the_key_that_the_stored_one_gives(store: ArtifactStore, tiny: RunConfig) -> None:
    planned = identify_stage(store, tiny, "ingestion", {})
    before = identify_stage(store, tiny, "embedding", {"ingestion": planned})
    after = identify_stage(store, tiny, "embedding", {"ingestion": publish(store, planned, "faces")})
    assert (before.ref, before.settings) == (after.ref, after.settings)
    assert before.made_from == {}


def test_an_identity_says_what_its_inputs_hold(store: ArtifactStore, tiny: RunConfig) -> None:
    faces = identify_stage(store, tiny, "ingestion", {})
    one = identify_stage(store, tiny, "embedding", {"ingestion": publish(store, faces, "one")})
    remade = publish(store, faces, "two")
    two = identify_stage(store, tiny, "embedding", {"ingestion": remade})
    assert one.ref == two.ref
    assert one.made_from != two.made_from == contents_of({"ingestion": remade})


def test_weights_in_a_file_are_known_by_their_content_and_not_by_their_place(
    store: ArtifactStore, tiny: RunConfig, tmp_path: Path
) -> None:
    for name, content in {"a.pt": b"weights", "b.pt": b"weights", "c.pt": b"others"}.items():
        (tmp_path / name).write_bytes(content)
    a, b, c = (
        stage_settings(store, load_config(tiny, [f"embedding.pretrained={tmp_path / name}"]), "embedding")
        for name in ("a.pt", "b.pt", "c.pt")
    )
    assert a == b != c


def test_a_code_length_that_is_null_and_the_equal_number_are_one_key(store: ArtifactStore, tiny: RunConfig) -> None:
    faces = identify_stage(store, tiny, "ingestion", {})
    with store.draft(faces.ref, faces.settings, faces.made_from) as draft:
        draft.metrics["identities"] = 300
        store.publish(draft)
    codes, stored = identify_stage(store, tiny, "separation", {"embedding": faces}), store.open(faces.ref)

    def key(*overrides: str, ingestion: Artifact | StageIdentity = stored) -> str:
        inputs = {"ingestion": ingestion, "separation": codes}
        return identify_stage(store, load_config(tiny, list(overrides)), "tokenization", inputs).ref.key

    assert key() == key("tokenization.length=2") == key(ingestion=faces)
    assert key() == key("tokenization.max_vocab_size=19")
    assert key("tokenization.length=3") == key("tokenization.max_vocab_size=12") != key()
    extends = f"tokenization.extends={'a' * 64}"
    assert key(extends) == key(extends, "tokenization.length=5"), "extended codes keep their length"
