"""Record of which places of a run's map stay on other maps: counts by map, and columns by row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
from pydantic import Field

from raydr.arrays import Float64Array, Int64Array
from raydr.files import whole, write_whole
from raydr.journal import Count, Seconds
from raydr.parquet_files import open_parquet, with_plain_text
from raydr.runfolder.manifest import seal
from raydr.runfolder.maps import identities, read_columns
from raydr.runfolder.records import EMBEDDING, RELIABILITY, STABILITIES, STABILITY
from raydr.runfolder.refusals import not_whole
from raydr.signals import signals_deferred

NOT_COMPARED = "not compared"
"""Verdict on a row that is not in the sample."""
_REMEDY = "free space or permissions there, and repeat the command"
Cost: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_OVER_SEEDS, _OVER_SITES, _VERDICT = "stability_seeds", "stability_sites", "stability"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The map, compared with one other map.

    Attributes
    ----------
    seed : int
        Seed of the other map.
    without : str or None
        The site that was left out; None for another seed.
    rows : int
        Compared rows. The left-out site's are not among them.
    changed : int
        Places that change: the other map shows less than half of their neighbours next to them.
    stable : int
        Those of them that stay with other seeds.
    dissolved : sequence of int
        Islands of the map that dissolve, from 0.
    """

    seed: int
    without: str | None = None
    rows: Count
    changed: Count
    stable: Count
    dissolved: Sequence[Count] = ()


@dataclass(frozen=True, kw_only=True)
class RepetitionCost:
    """Cost of the other maps in a deployed federation. In the simulation, nothing leaves a site.

    Attributes
    ----------
    redrawn : bool
        Whether all maps were drawn from the run's own messages, so that they cost nothing.
    repetitions : int
        Number of repetitions of the run.
    messages, per_record, bytes : int
        Messages that would leave sites, those of them that describe single records, and bytes of all.
    epsilon : float or None
        Epsilon of the run and all repetitions together; None if it is infinite.
    accounted : float or None
        Epsilon of all their releases under noise; None if their units or relations differ.
    epsilon_run : float or None
        Epsilon of the run alone.
    delta : float
        Delta at which all are stated.
    """

    redrawn: bool
    repetitions: Count
    messages: Count
    per_record: Count
    bytes: Count
    epsilon: Cost | None
    accounted: Cost | None
    epsilon_run: Cost | None
    delta: Cost


@dataclass(frozen=True, kw_only=True)
class StabilityRecord:
    """Content of ``stability.json``.

    Attributes
    ----------
    map : str
        SHA-256 of the map.
    raydr, started : str
        Version, and time of the start.
    seconds : float
        Duration.
    neighbors : int
        Neighbours of each place that were compared; fewer without a site if few rows remain.
    rows : int
        Compared rows: all, or a sample.
    with_seed, without_site : int
        Places that change with the seed, and those that stay with the seed and change without a site.
    islands : sequence of int
        Examined rows of each island of the map, the largest first; empty if the map has none.
    comparisons : sequence of Comparison
        The other maps: with other seeds first, then without sites.
    kept : sequence of str
        Sentences on sites that were not left out.
    cost : RepetitionCost
        What this would cost in a deployed federation.
    """

    map: str
    raydr: str
    started: str
    seconds: Seconds
    neighbors: Count
    rows: Count
    with_seed: Count
    without_site: Count
    islands: Sequence[Count]
    comparisons: Sequence[Comparison]
    kept: Sequence[str]
    cost: RepetitionCost


@dataclass(frozen=True, eq=False)
class Stability:
    """Result of a comparison of a run's map with others.

    Attributes
    ----------
    record : StabilityRecord
        Counts by map, and the cost.
    over_seeds, over_sites : (rows,) float64
        Mean share of its neighbours that each row keeps with other seeds, and the lowest share without a site. NaN for
        rows that were not compared.
    verdicts : (rows,) int64
        The verdict on each place, as a place in `records.STABILITIES`, and -1 for rows that were not compared.
    """

    record: StabilityRecord
    over_seeds: Float64Array
    over_sites: Float64Array
    verdicts: Int64Array


def write_stability(folder: Path, found: Stability) -> None:
    """Write both files of a run folder, or replace them. A signal in between takes effect afterwards.

    ``reliability.parquet`` has ``row, client``, the columns ``reliability, verdict`` of the map if it has them, and
    ``stability_seeds, stability_sites, stability``.

    Raises
    ------
    OutputError
        If a file cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_parquet(folder / EMBEDDING) as table:
        names = table.schema_arrow.names
        copied = [name for name in ("row", "client", "reliability", "verdict") if name in names]
        known = with_plain_text(table.read(columns=copied))
    texts = np.array([*STABILITIES, NOT_COMPARED])[found.verdicts]
    columns = {
        _OVER_SEEDS: pa.array(found.over_seeds, from_pandas=True),
        _OVER_SITES: pa.array(found.over_sites, from_pandas=True),
        _VERDICT: pa.array(texts.tolist(), pa.string()),
    }
    for name, column in columns.items():
        known = known.append_column(name, column)
    content = json.dumps(asdict(found.record), indent=1, allow_nan=False) + "\n"
    with signals_deferred():
        with whole(folder / RELIABILITY, _REMEDY) as unfinished:
            pq.write_table(known, unfinished)
        write_whole(folder / STABILITY, content.encode(), _REMEDY)
        seal(folder, RELIABILITY, STABILITY)


def require_writable(folder: Path) -> None:
    """Raise OutputError if a file cannot be written to a folder, before hours of work."""
    probe = folder / f".{STABILITY}.incomplete"
    write_whole(probe, b"", _REMEDY)
    probe.unlink(missing_ok=True)


def read_places(
    folder: Path, rows: Int64Array | tuple[str, ...]
) -> tuple[Float64Array, Float64Array, Int64Array]:
    """Return ``over_seeds``, ``over_sites`` and ``verdicts`` of a run's ``rows``: see :class:`Stability`.

    Raises
    ------
    OutputError
        If the file has other rows or other values.
    """
    columns = read_columns(folder, RELIABILITY, ("row", _OVER_SEEDS, _OVER_SITES, _VERDICT))
    if not np.array_equal(np.asarray(identities(folder, RELIABILITY, columns["row"])), np.asarray(rows)):
        raise not_whole(folder, RELIABILITY, f"does not hold the rows of {EMBEDDING} in the same order")
    places = {name: place for place, name in enumerate(STABILITIES)} | {NOT_COMPARED: -1}
    texts = columns[_VERDICT].to_pylist()
    if wrong := [text for text in texts if text not in places]:
        raise not_whole(
            folder, RELIABILITY, f"has a stability {wrong[0]!r}, which is none of {', '.join(places)}"
        )
    return (
        _shares(folder, _OVER_SEEDS, columns[_OVER_SEEDS]),
        _shares(folder, _OVER_SITES, columns[_OVER_SITES]),
        np.array([places[text] for text in texts], np.int64),
    )


def _shares(folder: Path, name: str, column: Any) -> Float64Array:
    import pyarrow as pa

    numbers = pa.types.is_floating(column.type)
    shares = column.to_numpy().astype(np.float64) if numbers else np.full(1, -1.0)
    if not (np.isnan(shares) | ((shares >= 0) & (shares <= 1))).all():
        raise not_whole(folder, RELIABILITY, f"has shares outside 0 to 1 in the column {name!r}")
    return np.asarray(shares)
