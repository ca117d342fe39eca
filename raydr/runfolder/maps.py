"""The maps of a run folder, read from its parquet files: places, names and columns of rows, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from raydr.arrays import Float64Array, Int64Array
from raydr.documents import MEGABYTE, require_limited
from raydr.errors import OutputError
from raydr.parquet_files import open_parquet, with_plain_text
from raydr.runfolder import records
from raydr.runfolder.refusals import not_whole

LARGEST = {
    ".yaml": 4 * MEGABYTE,
    ".json": 256 * MEGABYTE,
    ".jsonl": 1024 * MEGABYTE,
    ".parquet": 4096 * MEGABYTE,
}
"""Sizes of files past which a run folder is no run's: a million rounds have 300 MB."""
MOST_ROWS = 5_000_000
"""Rows of a map that a page or a picture can hold; a few bytes of a parquet file can claim more than any memory."""
LONGEST_NAME = 100_000
"""Letters of a label or a client's name."""
FARTHEST = 1e30
"""Places on a map are drawn in single precision, which ends at 3e38."""

OPTIONAL = ("z", "cluster", "label")
"""Columns of a map that not all have."""

KEPT = re.compile(r"npa_([1-9][0-9]{0,3})")
"""How the column is called that says what share of its nearest neighbours, and of how many, each row keeps on a map."""

NO_LABEL = "no label"
"""What a row without a label is called on the maps."""


@dataclass(frozen=True)
class Faithfulness:
    """What share of its nearest neighbours in the data, so many ``neighbors``, each row keeps on a map, (rows,)."""

    neighbors: int
    shares: Float64Array


def read_columns(
    folder: Path, file: str, needed: tuple[str, ...], prefix: str | None = None
) -> dict[str, Any]:
    """Read the columns of a map from a parquet file as Arrow arrays, all that are ``needed`` among them.

    With a ``prefix``, those that are needed and those whose names begin so.
    """
    import pyarrow as pa

    try:
        with open_parquet(require_limited(folder / file, LARGEST[".parquet"])) as table:
            rows = table.metadata.num_rows
            kept = [name for name in table.schema_arrow.names if KEPT.fullmatch(name)]
            present = [name for name in (*needed, *OPTIONAL) if name in table.schema_arrow.names] + kept[:1]
            if prefix is not None:
                present = [*needed, *(name for name in table.schema_arrow.names if name.startswith(prefix))]
            lacking = [name for name in needed if name not in present]
            if lacking:
                its = ", ".join(table.schema_arrow.names[:20])
                raise not_whole(folder, file, f"lacks the column {lacking[0]!r} (it has: {its})")
            if rows > MOST_ROWS:
                raise not_whole(folder, file, f"has {rows} rows, of at most {MOST_ROWS} that can be shown")
            content = with_plain_text(table.read(columns=present))
            content.validate(full=True)
    except FileNotFoundError:
        raise not_whole(folder, file, "is missing") from None
    except OutputError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise not_whole(folder, file, f"is not a parquet file ({' '.join(str(error).split())})") from error
    return {name: content.column(name) for name in present}


def coordinates(folder: Path, file: str, columns: Mapping[str, Any]) -> Float64Array:
    """Places of a map, (rows, 2 or 3)."""
    import pyarrow as pa

    axes = [axis for axis in records.AXES if axis in columns]
    for axis in axes:
        kind = columns[axis].type
        if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
            raise not_whole(folder, file, f"holds coordinates that are not numbers ({axis} is {kind})")
    with np.errstate(invalid="ignore"):  # what is no number is refused below
        points = np.column_stack([columns[axis].to_numpy().astype(np.float64) for axis in axes])
    broken = int((~(np.abs(points) <= FARTHEST)).any(axis=1).sum())
    if broken or not len(points):
        reason = f"has {broken} rows whose place is not finite" if broken else "has no rows"
        raise not_whole(folder, file, reason)
    return points


def identities(folder: Path, file: str, column: Any) -> Int64Array | tuple[str, ...]:
    """Names of rows (rows,): whole numbers, or text."""
    import pyarrow as pa

    if pa.types.is_integer(column.type):
        if column.null_count or pa.types.is_uint64(column.type):
            raise not_whole(folder, file, "has rows without identity")
        return np.asarray(column.to_numpy(), dtype=np.int64)
    return tuple(name or "" for name in _names(folder, file, "row", column))


def _names(folder: Path, file: str, name: str, column: Any) -> tuple[str | None, ...]:
    """Values of a column of text; None where there is none."""
    import pyarrow as pa
    import pyarrow.compute as compute

    if not (
        pa.types.is_string(column.type)
        or pa.types.is_large_string(column.type)
        or pa.types.is_null(column.type)
    ):
        raise not_whole(folder, file, f"holds {column.type} where names belong, in the column {name!r}")
    longest = compute.max(compute.binary_length(column.cast(pa.large_string()))).as_py()
    if longest is not None and longest > LONGEST_NAME:
        raise not_whole(folder, file, f"has a name of {longest} letters in the column {name!r}")
    return tuple(column.to_pylist())


def _clusters(folder: Path, file: str, column: Any) -> tuple[str, ...]:
    import pyarrow as pa

    if not pa.types.is_integer(column.type) or column.null_count:
        raise not_whole(folder, file, "holds clusters that are not whole numbers")
    return tuple(str(cluster) for cluster in column.to_pylist())


def _faithfulness(folder: Path, file: str, columns: Mapping[str, Any]) -> Faithfulness | None:
    import pyarrow as pa

    for name, column in columns.items():
        if (kept := KEPT.fullmatch(name)) is None:
            continue
        shares = column.to_numpy().astype(np.float64) if pa.types.is_floating(column.type) else np.array([-1])
        if not ((shares >= 0) & (shares <= 1)).all():
            raise not_whole(folder, file, f"holds shares that are none, in the column {name!r}")
        return Faithfulness(int(kept.group(1)), shares)
    return None


def read_embedding(
    folder: Path,
) -> tuple[
    Int64Array | tuple[str, ...],
    tuple[str, ...],
    tuple[str, ...] | None,
    tuple[str, ...] | None,
    Float64Array,
    Faithfulness | None,
]:
    """Names of rows, their clients, labels and clusters, the federated map, and its rows' faithfulness."""
    file = records.EMBEDDING
    columns = read_columns(folder, file, ("row", "client", "x", "y"))
    labels = None
    if "label" in columns:
        found = _names(folder, file, "label", columns["label"])
        labels = tuple(NO_LABEL if value is None else value for value in found)
    clients = tuple(str(value) for value in _names(folder, file, "client", columns["client"]))
    clusters = _clusters(folder, file, columns["cluster"]) if "cluster" in columns else None
    rows = identities(folder, file, columns["row"])
    return (
        rows,
        clients,
        labels,
        clusters,
        coordinates(folder, file, columns),
        _faithfulness(folder, file, columns),
    )


def read_central(
    folder: Path, rows: Int64Array | tuple[str, ...], dimensions: int
) -> tuple[Float64Array | None, Faithfulness | None]:
    """The pooled-data map and its rows' faithfulness; None where there is none."""
    file = records.CENTRAL
    if not (folder / file).exists():
        return None, None
    columns = read_columns(folder, file, ("row", "x", "y"))
    if not np.array_equal(np.asarray(identities(folder, file, columns["row"])), np.asarray(rows)):
        raise not_whole(folder, file, f"does not hold the rows of {records.EMBEDDING} in the same order")
    points = coordinates(folder, file, columns)
    if points.shape[1] != dimensions:
        reason = f"is a map in {points.shape[1]} dimensions, {records.EMBEDDING} in {dimensions}"
        raise not_whole(folder, file, reason)
    return points, _faithfulness(folder, file, columns)


def read_shown(folder: Path, rows: Int64Array | tuple[str, ...]) -> dict[str, Float64Array]:
    """Columns by name, (rows,) each, NaN where a value is missing; none where the run shows none."""
    import pyarrow as pa

    file = records.SHOWN
    if not (folder / file).exists():
        return {}
    columns = read_columns(folder, file, ("row",), records.SHOWN_COLUMN)
    if not np.array_equal(np.asarray(identities(folder, file, columns.pop("row"))), np.asarray(rows)):
        raise not_whole(folder, file, f"does not hold the rows of {records.EMBEDDING} in the same order")
    shown = {}
    for name, column in columns.items():
        if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
            raise not_whole(folder, file, f"holds {column.type} where numbers belong, in the column {name!r}")
        values = column.to_numpy().astype(np.float64)
        shown[name.removeprefix(records.SHOWN_COLUMN)] = np.where(np.isfinite(values), values, np.nan)
    return shown
