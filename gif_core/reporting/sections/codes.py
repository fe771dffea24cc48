"""Section "Codes": the code tree with faces of its nodes, how full it is, and how much structure codes keep."""

# Shapes: N faces.

import base64
from collections.abc import Iterator
from typing import Any, Final

import cv2
import duckdb
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gif_core.artifacts import Artifact
from gif_core.images import Faces
from gif_core.reporting import plots
from gif_core.reporting.sections.inputs import Inputs, Shown
from schemas.files import CODE_QUALITY_FILE, CODES_DUCKDB_FILE
from schemas.run import RunConfig

CODES_SHOWN: Final = 8
FILL_BINS: Final = 20
MOST_NODES: Final = 1500
"""Maximum number of nodes in the plot of the tree; deeper levels are left out."""
MOST_FACES: Final = 600
FACES_OF_A_NODE: Final = 6
FACE_SIZE: Final = 56
SHEET_COLUMNS: Final = 25
LARGEST_SHEET: Final = 1_100_000
"""Bytes of all thumbnails together; a third more in base64."""
QUALITIES: Final = (82, 65, 50, 35, 20)


def show_codes(config: RunConfig, inputs: Inputs) -> Shown:
    """Show the shape of the code tree, the tree, its quality and some codes."""
    tokenization = inputs["tokenization"]
    with duckdb.connect(tokenization.path(CODES_DUCKDB_FILE), read_only=True) as table:
        levels = table.sql(
            "SELECT level, count(*) AS clusters, any_value(capacity) AS capacity, min(size) AS smallest,"
            " median(size) AS median, max(size) AS largest, sum(size) / sum(capacity) AS fill"
            " FROM nodes GROUP BY level ORDER BY level"
        )
        sample = table.sql(
            "SELECT identity_id, label, num_samples, code FROM codes"
            f" WHERE identity_id % greatest(1, (SELECT count(*) // {CODES_SHOWN} FROM codes)) = 0"
            f" ORDER BY identity_id LIMIT {CODES_SHOWN}"
        )
        return {
            "shape": tokenization.manifest.metrics,
            "levels": levels.to_arrow_table().to_pylist(),
            "sample": sample.to_arrow_table().to_pylist(),
            "fill": _draw_fill(table),
            "tree": _draw_tree(table),
            "identities": _show_identities(table, inputs["ingestion"]),
            "quality": _show_quality(tokenization),
        }


def _show_quality(tokenization: Artifact) -> Shown | None:
    """Show the quality of every level; None without such a table or for codes of one token."""
    if CODE_QUALITY_FILE not in tokenization.names():
        return None
    levels = pq.read_table(tokenization.path(CODE_QUALITY_FILE)).to_pylist()
    compared = [row for row in levels if row["neighbours_together"] is not None]
    if not compared:
        return None
    columns = ([row[name] for row in compared] for name in ("level", "neighbours_together", "random_together"))
    return {"levels": levels, "together": plots.draw_together(*columns)}


def _draw_tree(table: duckdb.DuckDBPyConnection) -> Any:
    """Draw the upper levels with at most `MOST_NODES` nodes; None for codes of one token."""
    tree = "SELECT level, prefix, size, capacity FROM nodes UNION ALL SELECT len(code), code, 1, 1 FROM codes"
    counts = table.execute(f"SELECT count(*) FROM ({tree}) GROUP BY level ORDER BY level").fetchall()
    shown = int((np.cumsum(counts) <= MOST_NODES).sum())
    if len(counts) < 3 or shown < 2:
        return None
    nodes = table.execute(
        f"SELECT prefix, size, capacity FROM ({tree}) WHERE level < ? ORDER BY level, prefix", [shown]
    ).fetchall()
    return plots.draw_tree(*zip(*nodes, strict=True))


def _show_identities(table: duckdb.DuckDBPyConnection, ingestion: Artifact) -> Shown:
    """Return one face of some identities of the first shard, spread over the first two levels, on one sheet."""
    faces = Faces([ingestion.path(ingestion.names("identities-")[0])])
    ids, first = np.unique(faces.labels_N, return_index=True)
    identities = _choose_identities(table, ids.tolist())
    rows = first[np.searchsorted(ids, [identity_id for identity_id, *_ in identities])]
    thumbnails = [_shrink(faces.load(row[None])[0]) for row in rows]
    return {
        "sheet": base64.b64encode(_encode_sheet(thumbnails)).decode(),
        "size": FACE_SIZE,
        "columns": SHEET_COLUMNS,
        "identities": [{"label": label, "code": ".".join(map(str, code))} for _, label, code in identities],
    }


def _choose_identities(table: duckdb.DuckDBPyConnection, ids: list[int]) -> list[tuple[int, str, list[int]]]:
    """Choose identities, equally many of every node of level 2, in the order of codes."""
    nodes = "code[:2]"
    each = f"least({FACES_OF_A_NODE}, greatest(1, {MOST_FACES} // (SELECT count(DISTINCT {nodes}) FROM here)))"
    return table.execute(
        "WITH here AS (SELECT identity_id, label, code FROM codes WHERE identity_id IN (SELECT unnest(?))), ranked AS"
        f" (SELECT *, row_number() OVER (PARTITION BY {nodes} ORDER BY identity_id) AS place FROM here)"
        f" FROM (FROM ranked WHERE place <= {each} ORDER BY place, code LIMIT {MOST_FACES})"
        " SELECT identity_id, label, code ORDER BY code",
        [ids],
    ).fetchall()


def _shrink(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    small = cv2.resize(image, (FACE_SIZE, FACE_SIZE), interpolation=cv2.INTER_AREA)
    return np.asarray(small, np.uint8)


def _encode_sheet(thumbnails: list[NDArray[np.uint8]]) -> bytes:
    """Encode all faces as one JPEG, row by row, at the best quality within `LARGEST_SHEET`."""
    num_rows = -(-len(thumbnails) // SHEET_COLUMNS)
    sheet = np.full((num_rows * FACE_SIZE, SHEET_COLUMNS * FACE_SIZE, 3), 128, np.uint8)
    for place, face in enumerate(thumbnails):
        row, column = (FACE_SIZE * number for number in divmod(place, SHEET_COLUMNS))
        sheet[row : row + FACE_SIZE, column : column + FACE_SIZE] = face
    for quality in QUALITIES:
        parameters = [cv2.IMWRITE_JPEG_QUALITY, quality]
        _, encoded = cv2.imencode(".jpg", cv2.cvtColor(sheet, cv2.COLOR_RGB2BGR), parameters)
        if len(encoded) <= LARGEST_SHEET:
            break
    return encoded.tobytes()


def _draw_fill(table: duckdb.DuckDBPyConnection) -> Any:
    """Draw the occupancy of clusters; nodes are counted in the database, as there may be millions."""
    shares: dict[int, NDArray[np.float64]] = {}
    for level, filled, count in _count_fill(table):
        shares.setdefault(level, np.zeros(FILL_BINS))[filled] = count
    return plots.draw_fill({level: counts / counts.sum() for level, counts in shares.items()})


def _count_fill(table: duckdb.DuckDBPyConnection) -> Iterator[tuple[int, int, int]]:
    filled = f"least({FILL_BINS - 1}, {FILL_BINS} * size // capacity)"
    yield from table.execute(
        f"SELECT level, {filled} AS filled, count(*) FROM nodes WHERE level > 0 GROUP BY ALL ORDER BY ALL"
    ).fetchall()
