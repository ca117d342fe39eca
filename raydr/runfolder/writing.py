"""Writers of the files of a run folder; :mod:`raydr.runfolder.reading` has the readers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from raydr.arrays import FloatArray, Int64Array
from raydr.data import Provenance, Table
from raydr.files import open_private
from raydr.journal import RoundEnded
from raydr.methods import Outcome, Pooled
from raydr.methods.outcome import Placed
from raydr.runfolder.records import AXES, DATA, FINGERPRINTS, SHOWN_COLUMN, VERDICTS


class MapRows(Protocol):
    """Rows of a map and their owners, in table order."""

    @property
    def ids(self) -> Any:
        """Names of rows, (rows,)."""

    @property
    def names(self) -> Sequence[str]:
        """Names of clients."""

    @property
    def client_of_row(self) -> Int64Array:
        """Index of the client of each row, (rows,)."""

    @property
    def label_names(self) -> Sequence[str]:
        """Names of labels."""

    @property
    def labels(self) -> Int64Array | None:
        """Index of the label of each row, (rows,); None without labels."""

    @property
    def period_names(self) -> Sequence[str]:
        """Names of periods."""

    @property
    def periods(self) -> Int64Array | None:
        """Index of the period of each row, (rows,); None without periods."""

    @property
    def rows(self) -> int:
        """Number of rows."""


def write_json(path: Path, content: Any) -> None:
    """Write indented JSON; raise on numbers that are not finite."""
    path.write_text(_indented(content))


def _indented(content: Any) -> str:
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def write_data(folder: Path, data: Provenance) -> None:
    """Write the provenance of the mapped data, and in a separate file the hashes of the data that were read."""
    content = asdict(data)
    for source in [*content["sources"], content["anchors"]]:
        if source is not None:
            del source["sha256"], source["hashed"]
    write_json(folder / DATA, content)
    with open_private(folder / FINGERPRINTS) as file:
        file.write(_indented([asdict(each) for each in data.fingerprints]).encode())


def write_rounds(path: Path, rounds: Sequence[RoundEnded]) -> None:
    """Write one line of JSON per round."""
    path.write_text("".join(ended.line for ended in rounds))


def write_embedding(path: Path, rows: MapRows, outcome: Outcome, scores: Mapping[str, Any]) -> None:
    """Write ``row, client, x, y[, z][, cluster][, label][, period]`` and ``scores`` by row, in table order."""
    columns: dict[str, Any] = {"row": rows.ids, "client": _names(rows.names, rows.client_of_row)}
    columns |= axes(outcome.embedding) | _clusters(outcome)
    if rows.labels is not None:
        columns["label"] = _names(rows.label_names, rows.labels)
    if rows.periods is not None:
        columns["period"] = _names(rows.period_names, rows.periods)
    _write_parquet(path, {**columns, **_scored(scores)})


def write_central(path: Path, rows: MapRows, pooled: Pooled, scores: Mapping[str, Any]) -> None:
    """Write ``row, x, y[, z][, cluster]`` of the pooled-data map and columns of ``scores`` by row, in table order."""
    columns = {"row": rows.ids} | axes(pooled.embedding) | _clusters(pooled)
    _write_parquet(path, {**columns, **_scored(scores)})


def write_shown(path: Path, rows: MapRows, columns: Mapping[str, FloatArray]) -> None:
    """Write the columns ``row, column.NAME...``: mapped columns (rows,) as they were read, in table order."""
    _write_parquet(
        path, {"row": rows.ids} | {SHOWN_COLUMN + name: values for name, values in columns.items()}
    )


def write_held_out(path: Path, held_out: Table, placed: Placed) -> None:
    """Write the columns ``row, x, y[, z][, novelty][, label]`` of held-out rows in table order."""
    more = {} if placed.novelty is None else {"novelty": placed.novelty}
    write_placed(path, held_out, placed.places, {}, more)


def write_placed(
    path: Path, table: Table, places: FloatArray, every: Mapping[str, str], more: Mapping[str, Any]
) -> None:
    """Write ``row, ..., x, y[, z], ...[, label]`` of a table; ``every`` has columns with one value for all rows."""
    columns: dict[str, Any] = {"row": table.ids}
    columns |= {name: [value] * len(places) for name, value in every.items()}
    columns |= axes(places) | dict(more)
    if table.labels is not None:
        columns["label"] = _names(table.label_names, table.labels)
    _write_parquet(path, columns)


def _scored(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of scores by row, with verdicts by name."""
    return {
        name: _names(VERDICTS, values) if name == "verdict" else values for name, values in scores.items()
    }


def _clusters(found: Outcome | Pooled) -> dict[str, Int64Array]:
    return {} if found.clusters is None else {"cluster": found.clusters}


def write_progress(path: Path, rows: MapRows, maps: Mapping[int, FloatArray]) -> None:
    """Write ``round, row, x, y[, z]`` of the maps during training, by round, each in table order."""
    rounds = np.repeat(np.array(list(maps), np.int64), rows.rows)
    _write_parquet(
        path,
        {"round": rounds, "row": np.tile(rows.ids, len(maps))} | axes(np.concatenate(list(maps.values()))),
    )


def _names(names: Sequence[str], codes: Any) -> Any:
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(names, pa.string())).cast(
        pa.string()
    )


def axes(embedding: FloatArray) -> dict[str, FloatArray]:
    """Return the coordinates of a map as columns by name."""
    return dict(zip(AXES, embedding.T, strict=False))


def _write_parquet(path: Path, columns: Mapping[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(dict(columns)), path)
