"""Which identities a command means: of a run or of a faces artifact, all of them or some."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gif_core.artifacts import Artifact, ArtifactMissingError, ArtifactStore, resolve, run_artifacts
from gif_core.images import Faces
from schemas.errors import GifError
from schemas.files import CODES_FILE, Split, identity_table


class SelectionError(GifError, ValueError):
    """No identity matches what was asked for."""


@dataclass(frozen=True)
class Selection:
    """One split of a faces artifact, and the run's codes if it has any."""

    artifact: Artifact
    split: Split
    tokenization: Artifact | None = None

    @cached_property
    def faces(self) -> Faces:
        """All faces of the split, mapped into memory."""
        return Faces([self.artifact.path(name) for name in self.artifact.names(f"{self.split}-")])

    @cached_property
    def labels(self) -> list[str]:
        """Their labels, in the order of identity ids."""
        table = pq.read_table(self.artifact.path(identity_table(self.split)), columns=["identity_id", "label"])
        labels: list[str] = table.sort_by("identity_id")["label"].to_pylist()
        return labels

    @cached_property
    def codes(self) -> pa.Table | None:
        """The codes of all identities; held-out identities have none."""
        if self.tokenization is None or self.split == "held_out":
            return None
        return pq.read_table(self.tokenization.path(CODES_FILE))

    def named(self, labels: list[str]) -> list[int]:
        """Identity ids of identities with these labels; a label may occur in several sources."""
        found = [[i for i, known in enumerate(self.labels) if known == label] for label in labels]
        missing = [label for label, ids in zip(labels, found, strict=True) if not ids]
        if missing:
            raise SelectionError(f"no identity here has the label {', '.join(missing)}; {self._where} lists all")
        return [identity_id for ids in found for identity_id in ids]

    def numbered(self, identity_ids: list[int]) -> list[int]:
        """These identity ids; SelectionError if one does not exist."""
        for identity_id in identity_ids:
            if not 0 <= identity_id < len(self.labels):
                raise SelectionError(f"identity {identity_id} has no faces here; there are 0 to {len(self.labels) - 1}")
        return identity_ids

    def coded(self, prefix: list[int]) -> list[int]:
        """Identity ids of identities whose code begins with these tokens."""
        if self.codes is None:
            raise SelectionError("only the identities that a run has tokenized have codes: omit --faces and --held-out")
        found = self.codes
        for place, token in enumerate(prefix, start=1):
            if f"c{place}" not in found.column_names:
                raise SelectionError(f"a code of this run has {place - 1} tokens, not {len(prefix)}")
            found = found.filter(pc.field(f"c{place}") == token)
        ids: list[int] = found["identity_id"].to_pylist()
        if not ids:
            raise SelectionError(f"no code begins with {'.'.join(map(str, prefix))}")
        return ids

    def captions(self, identity_ids: list[int]) -> Iterator[list[str]]:
        """Label, identity id and, where it is known, the code."""
        for identity_id in identity_ids:
            caption = [self.labels[identity_id], f"identity {identity_id}"]
            if self.codes is not None:
                tokens = self.codes["code"][identity_id].as_py()
                caption.append(f"code {'.'.join(map(str, tokens))}")
            yield caption

    @property
    def _where(self) -> str:
        return f"'gif sql \"SELECT * FROM {self.split}\"'"


def open_selection(store: ArtifactStore, run: str | None, faces: str | None, *, held_out: bool) -> Selection:
    """The identities of a run, the newest if none is named, or of the artifact whose key begins with `faces`."""
    if run and faces:
        raise SelectionError("give --run or --faces, not both")
    split: Split = "held_out" if held_out else "identities"
    if faces:
        selection = Selection(_open_faces(store, faces), split)
    else:
        artifacts = run_artifacts(store, run)
        if "ingestion" not in artifacts:
            raise ArtifactMissingError("this run has no faces")
        selection = Selection(artifacts["ingestion"], split, artifacts.get("tokenization"))
    if not selection.artifact.names(f"{split}-"):
        raise SelectionError(
            f"{selection.artifact.ref} has no held-out identities: omit --held-out, or give --no-held-out for bin"
        )
    return selection


def _open_faces(store: ArtifactStore, key: str) -> Artifact:
    ref = resolve(store, key if set(key) & set("/@") else f"ingestion/{key}")
    if ref.stage != "ingestion":
        raise SelectionError(f"{ref} holds no faces; artifacts of ingestion do")
    return store.open(ref)
