"""Applying a list of wrong labels: records of the catalogue get other identities, or are left out."""

# Shapes: R records of all sources.

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from gif_core.ingestion.catalogue import Catalogue, Refused
from gif_core.ingestion.relabelling import Change, Relabelling, RelabellingError

DROPPED: Final = "dropped by ingestion.relabel"
"""Start of a quarantine reason of records that a list leaves out."""
EXAMPLES: Final = 5
"""Rows that an error message lists."""


def relabel(catalogue: Catalogue, relabelling: Relabelling) -> None:
    """Apply all rows of a list; RelabellingError if one is about a record that the sources do not have."""
    records = _find_records(catalogue, relabelling)
    identities = {
        key: person for person, key in enumerate(zip(catalogue.source_P.tolist(), catalogue.labels, strict=True))
    }
    for change, record in zip(relabelling.changes, records, strict=True):
        if not change.new_label:
            catalogue.dropped_R[record] = True
            reason = f"{DROPPED}: {change.reason}" if change.reason else DROPPED
            catalogue.dropped.append(Refused(change.source, change.record, reason))
            continue
        key = (change.source, change.new_label)
        if key not in identities:
            identities[key] = catalogue.add_identity(*key)
        catalogue.person_R[record] = identities[key]


def _find_records(catalogue: Catalogue, relabelling: Relabelling) -> list[int]:
    """The record of every row. Names are compared only among records with the labels of the list."""
    wanted = {change.label for change in relabelling.changes}
    named_P = np.fromiter((label in wanted for label in catalogue.labels), bool, len(catalogue.labels))
    records = np.flatnonzero(named_P[catalogue.person_R] & ~catalogue.dropped_R)
    labels = (catalogue.labels[person] for person in catalogue.person_R[records].tolist())
    places = {
        (*name, label): record
        for name, label, record in zip(catalogue.names(records), labels, records.tolist(), strict=True)
    }
    keys = [(change.source, change.record, change.label) for change in relabelling.changes]
    unknown = [change for change, key in zip(relabelling.changes, keys, strict=True) if key not in places]
    if unknown:
        raise RelabellingError(_explain_unknown(relabelling, unknown, len(catalogue.readers)))
    if len(set(keys)) < len(keys):
        twice = Counter(keys).most_common(1)[0][0][1]
        raise RelabellingError(f"ingestion.relabel: {relabelling.address} lists {twice} twice: remove one of the rows")
    return [places[key] for key in keys]


def _explain_unknown(relabelling: Relabelling, unknown: Sequence[Change], sources: int) -> str:
    rows = "".join(f"\n  source {row.source}: {row.record} of {row.label}" for row in unknown[:EXAMPLES])
    return (
        f"ingestion.relabel: {len(unknown):,} of {len(relabelling.changes):,} rows of {relabelling.address} are about "
        f"images that the sources (0 to {sources - 1}) do not have under that label. A list fits the sources that were "
        f"audited, in their order: audit again, or remove these rows. The first of them:{rows}"
    )
