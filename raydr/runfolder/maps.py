"""Checked readers of the parquet files of a run folder: positions, names and columns of rows."""

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
"""Largest accepted file sizes in bytes; for scale, the rounds of a million rounds take 300 MB."""
MOST_ROWS = 5_000_000
"""Largest number of rows of a map. A few bytes of a parquet file can claim more rows than any memory holds."""
LONGEST_NAME = 100_000
"""Largest number of bytes of a label or a client's name."""
FARTHEST = 1e30
"""Largest coordinate: maps are drawn in float32, which ends at 3e38."""

OPTIONAL = ("z", "cluster", "label", "period", "novelty", "verdict", "singularity", "perturbation", "island")
"""Columns that a map may lack."""

KEPT = re.compile(r"npa_([1-9][0-9]{0,3})")
"""Name of the column with the share of its K nearest neighbours that each row keeps: ``npa_K``."""

NO_LABEL = "no label"
"""Name of a missing label on the maps."""


@dataclass(frozen=True)
class Faithfulness:
    """Share of its ``neighbors`` nearest neighbours in the data that each row keeps on a map, ``shares`` (rows,)."""

    neighbors: int
    shares: Float64Array


def read_columns(
    folder: Path, file: str, needed: tuple[str, ...], prefix: str | None = None
) -> dict[str, Any]:
    """Read columns of a parquet file as Arrow arrays: the ``needed`` ones, and optional ones.

    With a ``prefix``, read the needed columns and those whose names begin with it.
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
                raise not_whole(folder, file, f"has {rows} rows; at most {MOST_ROWS} can be shown")
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
    """Return the coordinates of a map, (rows, 2 or 3)."""
    import pyarrow as pa

    axes = [axis for axis in records.AXES if axis in columns]
    for axis in axes:
        kind = columns[axis].type
        if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
            raise not_whole(folder, file, f"has coordinates that are not numbers ({axis} is {kind})")
    with np.errstate(invalid="ignore"):  # NaN is refused below
        points = np.column_stack([columns[axis].to_numpy().astype(np.float64) for axis in axes])
    broken = int((~(np.abs(points) <= FARTHEST)).any(axis=1).sum())
    if broken or not len(points):
        reason = f"has {broken} rows with a position that is not finite" if broken else "has no rows"
        raise not_whole(folder, file, reason)
    return points


def identities(folder: Path, file: str, column: Any) -> Int64Array | tuple[str, ...]:
    """Return the names of rows (rows,): integers or text."""
    import pyarrow as pa

    if pa.types.is_integer(column.type):
        if column.null_count or pa.types.is_uint64(column.type):
            raise not_whole(folder, file, "has rows without a name")
        return np.asarray(column.to_numpy(), dtype=np.int64)
    return tuple(name or "" for name in _names(folder, file, "row", column))


def _names(folder: Path, file: str, name: str, column: Any) -> tuple[str | None, ...]:
    """Return the values of a text column, None for missing ones."""
    import pyarrow as pa
    import pyarrow.compute as compute

    if not (
        pa.types.is_string(column.type)
        or pa.types.is_large_string(column.type)
        or pa.types.is_null(column.type)
    ):
        raise not_whole(folder, file, f"has {column.type} instead of names in the column {name!r}")
    longest = compute.max(compute.binary_length(column.cast(pa.large_string()))).as_py()
    if longest is not None and longest > LONGEST_NAME:
        raise not_whole(folder, file, f"has a name of {longest} bytes in the column {name!r}")
    return tuple(column.to_pylist())


def _numbers(folder: Path, file: str, name: str, columns: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the numbers of a column as text, such as those of clusters, or None without the column."""
    import pyarrow as pa

    if name not in columns:
        return None
    column = columns[name]
    if not pa.types.is_integer(column.type) or column.null_count:
        raise not_whole(folder, file, f"has {name}s that are not whole numbers")
    return tuple(map(str, column.to_pylist()))


def _faithfulness(folder: Path, file: str, columns: Mapping[str, Any]) -> Faithfulness | None:
    import pyarrow as pa

    for name, column in columns.items():
        if (kept := KEPT.fullmatch(name)) is None:
            continue
        shares = column.to_numpy().astype(np.float64) if pa.types.is_floating(column.type) else np.array([-1])
        if not ((shares >= 0) & (shares <= 1)).all():
            raise not_whole(folder, file, f"has shares outside 0 to 1 in the column {name!r}")
        return Faithfulness(int(kept.group(1)), shares)
    return None


def _verdicts(folder: Path, file: str, columns: Mapping[str, Any]) -> Int64Array | None:
    """Return the verdicts (rows,) as places in `records.VERDICTS`, or None if there are none."""
    if "verdict" not in columns:
        return None
    names = _names(folder, file, "verdict", columns["verdict"])
    places = {name: place for place, name in enumerate(records.VERDICTS)}
    wrong = [name for name in names if name not in places]
    if wrong:
        raise not_whole(
            folder, file, f"has a verdict {wrong[0]!r}, which is none of {', '.join(records.VERDICTS)}"
        )
    return np.array([places[str(name)] for name in names], dtype=np.int64)


def _scores(folder: Path, file: str, name: str, columns: Mapping[str, Any]) -> Float64Array | None:
    """Return scores (rows,) of at least 0, which can be infinite, or None if there are none."""
    if name not in columns:
        return None
    found = np.asarray(columns[name], np.float64)
    if not (found >= 0.0).all():
        raise not_whole(folder, file, f"has a {name} that is not at least 0")
    return found


@dataclass(frozen=True, kw_only=True)
class MapFile:
    """Rows of a federated map: their names and clients, the map (rows, 2 or 3), and optional columns.

    ``verdicts`` (rows,) are places in `records.VERDICTS`. ``singularities`` (rows,) are in units of their median,
    and ``perturbations`` (rows,) in radii of the map.
    """

    rows: Int64Array | tuple[str, ...]
    clients: tuple[str, ...]
    places: Float64Array
    labels: tuple[str, ...] | None
    clusters: tuple[str, ...] | None
    islands: tuple[str, ...] | None
    periods: tuple[str, ...] | None
    faithfulness: Faithfulness | None
    verdicts: Int64Array | None
    singularities: Float64Array | None
    perturbations: Float64Array | None


def read_embedding(folder: Path) -> MapFile:
    """Read the federated map of a run folder, or of a site that joined it."""
    file = records.EMBEDDING
    columns = read_columns(folder, file, ("row", "client", "x", "y"))
    labels = None
    if "label" in columns:
        found = _names(folder, file, "label", columns["label"])
        labels = tuple(NO_LABEL if value is None else value for value in found)
    periods = None
    if "period" in columns:
        periods = tuple(str(value) for value in _names(folder, file, "period", columns["period"]))
    return MapFile(
        rows=identities(folder, file, columns["row"]),
        clients=tuple(str(value) for value in _names(folder, file, "client", columns["client"])),
        places=coordinates(folder, file, columns),
        labels=labels,
        clusters=_numbers(folder, file, "cluster", columns),
        islands=_numbers(folder, file, "island", columns),
        periods=periods,
        faithfulness=_faithfulness(folder, file, columns),
        verdicts=_verdicts(folder, file, columns),
        singularities=_scores(folder, file, "singularity", columns),
        perturbations=_scores(folder, file, "perturbation", columns),
    )


def read_novelty(folder: Path) -> Float64Array | None:
    """Return the p-values (rows,) of placed rows, or None if there are none."""
    columns = read_columns(folder, records.EMBEDDING, ("row",))
    if "novelty" not in columns:
        return None
    found = np.asarray(columns["novelty"], np.float64)
    if not ((found > 0.0) & (found <= 1.0)).all():
        raise not_whole(folder, records.EMBEDDING, "has a novelty that is not above 0 and at most 1")
    return found


def read_central(
    folder: Path, rows: Int64Array | tuple[str, ...], dimensions: int
) -> tuple[Float64Array | None, Faithfulness | None, Int64Array | None]:
    """Return the pooled-data map and the faithfulness and verdicts of its rows, None for what is missing."""
    file = records.CENTRAL
    if not (folder / file).exists():
        return None, None, None
    columns = read_columns(folder, file, ("row", "x", "y"))
    if not np.array_equal(np.asarray(identities(folder, file, columns["row"])), np.asarray(rows)):
        raise not_whole(folder, file, f"does not hold the rows of {records.EMBEDDING} in the same order")
    points = coordinates(folder, file, columns)
    if points.shape[1] != dimensions:
        reason = f"has {points.shape[1]} dimensions, but {records.EMBEDDING} has {dimensions}"
        raise not_whole(folder, file, reason)
    return points, _faithfulness(folder, file, columns), _verdicts(folder, file, columns)


def read_shown(folder: Path, rows: Int64Array | tuple[str, ...]) -> dict[str, Float64Array]:
    """Return the shown columns (rows,) by name, with NaN for missing values."""
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
            raise not_whole(folder, file, f"has {column.type} instead of numbers in the column {name!r}")
        values = column.to_numpy().astype(np.float64)
        shown[name.removeprefix(records.SHOWN_COLUMN)] = np.where(np.isfinite(values), values, np.nan)
    return shown
