"""Writers of the files of a run folder, whose readers are in :mod:`raydr.runfolder.reading`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.data import Provenance, Table
from raydr.files import open_private
from raydr.journal import RoundEnded
from raydr.methods import Outcome, Pooled
from raydr.runfolder.records import AXES, DATA, FINGERPRINTS, SHOWN_COLUMN


class Rows(Protocol):
    """Names of the rows of a map and of their owners, in the table's order."""

    @property
    def ids(self) -> Any:
        """Identities, (rows,)."""

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
    def rows(self) -> int:
        """Number of rows."""


def write_json(path: Path, content: Any) -> None:
    """Write indented JSON; numbers that are not finite are refused."""
    path.write_text(_indented(content))


def _indented(content: Any) -> str:
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def write_data(folder: Path, data: Provenance) -> None:
    """Write what was mapped, and apart from it the hashes of what was read."""
    content = asdict(data)
    for source in [*content["sources"], content["anchors"]]:
        if source is not None:
            del source["sha256"], source["hashed"]
    write_json(folder / DATA, content)
    with open_private(folder / FINGERPRINTS) as file:
        file.write(_indented([asdict(each) for each in data.fingerprints]).encode())


def write_rounds(path: Path, rounds: Sequence[RoundEnded]) -> None:
    """One JSON object per round and line."""
    path.write_text("".join(ended.line for ended in rounds))


def write_embedding(
    path: Path, rows: Rows, outcome: Outcome, faithfulness: Mapping[str, Float64Array]
) -> None:
    """``row, client, x, y[, z][, cluster][, label][, npa_K]`` in the table's order."""
    columns: dict[str, Any] = {"row": rows.ids, "client": _names(rows.names, rows.client_of_row)}
    columns |= axes(outcome.embedding) | _clusters(outcome)
    if rows.labels is not None:
        columns["label"] = _names(rows.label_names, rows.labels)
    _write_parquet(path, {**columns, **faithfulness})


def write_central(path: Path, rows: Rows, pooled: Pooled, faithfulness: Mapping[str, Float64Array]) -> None:
    """``row, x, y[, z][, cluster][, npa_K]`` of the pooled-data map, in the table's order."""
    columns = {"row": rows.ids} | axes(pooled.embedding) | _clusters(pooled)
    _write_parquet(path, {**columns, **faithfulness})


def write_shown(path: Path, rows: Rows, columns: Mapping[str, FloatArray]) -> None:
    """``row, column.NAME...`` of mapped columns as they were read, (rows,) each, in the table's order."""
    _write_parquet(
        path, {"row": rows.ids} | {SHOWN_COLUMN + name: values for name, values in columns.items()}
    )


def write_held_out(path: Path, held_out: Table, places: FloatArray) -> None:
    """``row, x, y[, z][, label]`` of rows that were held out, in the table's order."""
    write_placed(path, held_out, places, {}, {})


def write_placed(
    path: Path, table: Table, places: FloatArray, every: Mapping[str, str], more: Mapping[str, Any]
) -> None:
    """``row, ..., x, y[, z], ...[, label]`` of rows of a table; ``every`` row has the same of some columns."""
    columns: dict[str, Any] = {"row": table.ids}
    columns |= {name: [value] * len(places) for name, value in every.items()}
    columns |= axes(places) | dict(more)
    if table.labels is not None:
        columns["label"] = _names(table.label_names, table.labels)
    _write_parquet(path, columns)


def _clusters(found: Outcome | Pooled) -> dict[str, Int64Array]:
    return {} if found.clusters is None else {"cluster": found.clusters}


def write_progress(path: Path, rows: Rows, maps: Mapping[int, FloatArray]) -> None:
    """``round, row, x, y[, z]`` of the maps along the way, one after the other, each in the table's order."""
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
    """Columns of a map by their names."""
    return dict(zip(AXES, embedding.T, strict=False))


def _write_parquet(path: Path, columns: Mapping[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(dict(columns)), path)
