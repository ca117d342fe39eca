"""Inputs of estimators: arrays, data frames and AnnData, one table or one for each site."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import type_of_target

from raydr.data.in_memory import TIME
from raydr.data.survey.columns import refuse_repeats
from raydr.errors import DataError
from raydr.sparse_rows import is_sparse


@dataclass(frozen=True)
class Given:
    """Feature tables, one or one for each site, with keys (clients, classes, ids) and names for all rows.

    If the tables are data frames, or arrays with words, their columns are ``surveyed`` as those of a file.
    """

    tables: list[Any]
    keys: dict[str, NDArray[Any]]
    names: dict[str, NDArray[Any]]
    surveyed: bool


def gathered(
    X: Any, y: Any, sites: Any, label: str | None, time: str | None = None, *, steers: bool = False
) -> Given:
    """Separate features from columns of classes, times, sites and row names; a ``y`` that steers may be a quantity."""
    tables, several = tables_of(X)
    keys: dict[str, NDArray[Any]] = {}
    if sites is not None and several:
        raise DataError("X is a list with one table per site: leave sites out, or give one table.")
    if y is not None and label is not None:
        raise DataError(f"y and label={label!r} both give classes: leave one of them out.")
    if label is not None:
        keys["y"] = np.concatenate([_key(_column(table, label, "label")) for table in tables])
    elif y is not None:
        parts = y if several and isinstance(y, list | tuple) and np.ndim(y[0]) == 1 else [y]
        classes = np.concatenate([_key(part) for part in parts])
        known = classes[~np.isnan(classes)] if classes.dtype.kind == "f" else classes
        if steers or classes.dtype.kind not in "biuf" or type_of_target(known) in ("binary", "multiclass"):
            keys["y"] = classes
    if time is not None:
        keys[TIME] = np.concatenate([_key(_column(table, time, "time")) for table in tables])
    names = owners_of(X, sites)
    if "client" in names:
        keys["client"] = names.pop("client")
    ids = _names_of_rows(tables)
    if ids is not None:
        keys["id"] = ids
    dropped = [name for name in (label, time, sites) if isinstance(name, str)]
    features = [_without(table, dropped) for table in tables]
    surveyed = all(is_frame(table) and not _is_sparse_frame(table) for table in tables) or (
        all(map(_is_array, features)) and any(map(_has_words, features))
    )
    return Given(features, keys, names, surveyed=surveyed)


def owners_of(X: Any, sites: Any) -> dict[str, NDArray[Any]]:
    """Return ``client`` of each row, with ``client_names`` for a list of tables; empty if there are no sites."""
    tables, several = tables_of(X)
    if several:
        return {
            "client_names": np.array([f"site-{place}" for place in range(len(tables))]),
            "client": np.repeat(np.arange(len(tables)), [table.shape[0] for table in tables]),
        }
    if sites is None:
        return {}
    return {"client": _key(_column(tables[0], sites, "sites") if isinstance(sites, str) else sites)}


def tables_of(X: Any) -> tuple[list[Any], bool]:
    """Return the tables of X, and whether X is a list."""
    several = isinstance(X, list | tuple) and len(X) > 0 and len(getattr(X[0], "shape", ())) == 2
    return (list(X) if several else [X]), several


def _is_anndata(table: Any) -> bool:
    return hasattr(table, "obs") and hasattr(table, "var_names")


def _obs(table: Any) -> Any:
    """Return the table with columns of the rows: obs for AnnData."""
    return table.obs if _is_anndata(table) else table


def _column(table: Any, name: str, knob: str) -> Any:
    columns = names_of(_obs(table))
    if name not in columns:
        raise DataError(f"{knob} is {name!r}, but X has no such column: choose one of {columns[:12]}.")
    return _obs(table)[name]


def names_of(table: Any) -> list[Any]:
    """Return the names of a table's columns; none if it is an array."""
    return list(table.column_names if _is_of(table, "pyarrow") else getattr(table, "columns", ()))


def _key(values: Any) -> NDArray[Any]:
    """Return a column of names as numbers or text, with empty text for empty cells."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise DataError(
            f"Classes and sites must have one value for each row: expected (rows,), got {array.shape}."
        )
    if array.dtype.kind in "biufUSmM":
        return array
    return np.array(["" if repr(cell) in _EMPTY else str(cell) for cell in array.tolist()], np.str_)


_LISTS = (list, tuple, np.ndarray)
_EMPTY = ("None", "nan", "<NA>", "NaT")


def _without(table: Any, names: Sequence[str]) -> Any:
    """Return a table without the named columns."""
    if _is_anndata(table):
        return _features_of_anndata(table)
    if not names:
        return table
    if _is_of(table, "pyarrow"):
        return table.drop_columns(names)
    return table.drop(names) if _is_of(table, "polars") else table.drop(columns=names)


def _features_of_anndata(table: Any) -> Any:
    """Return the features as a data frame, which is sparse if they are."""
    if not is_sparse(table.X):
        return table.to_df()
    import pandas as pd

    return pd.DataFrame.sparse.from_spmatrix(table.X, index=table.obs_names, columns=table.var_names)


def is_frame(table: Any) -> bool:
    """Return whether a table is a data frame, of pandas or polars, or a table of pyarrow."""
    return hasattr(table, "columns") and (hasattr(table, "dtypes") or _is_of(table, "pyarrow"))


def _is_sparse_frame(table: Any) -> bool:
    """Return whether all columns of a pandas frame are sparse; such a frame is a sparse matrix with names."""
    kinds = getattr(table, "dtypes", ())
    return len(kinds) > 0 and all(hasattr(kind, "fill_value") for kind in kinds)


def _is_array(table: Any) -> bool:
    """Return whether a table is dense, has no column names, and is (rows, features)."""
    return not is_frame(table) and not is_sparse(table) and np.asarray(table).ndim == 2


def _has_words(table: Any) -> bool:
    cells = np.asarray(table)
    if cells.dtype.kind != "O":
        return cells.dtype.kind in "US"
    try:
        cells.astype(np.float64)
    except (TypeError, ValueError):
        return True
    return False


def as_arrow(tables: Sequence[Any], names: Sequence[str] = ()) -> Any:
    """Return tables, one below the other, as one Arrow table. Columns of arrays get ``names``.

    Raises
    ------
    DataError
        If two columns have one name. If a column has values that are neither numbers nor text, or other values in
        another table.
    """
    import pyarrow as pa

    for table in tables:
        refuse_repeats(list(map(str, names_of(table))), where="X", remedy="give every column its own name")
    try:
        return pa.concat_tables([_arrow(table, names) for table in tables], promote_options="permissive")
    except pa.ArrowException as error:
        raise DataError(f"X cannot be read as one table of numbers and text: {error.args[-1]}.") from error


def _arrow(table: Any, names: Sequence[str]) -> Any:
    import pyarrow as pa

    if _is_of(table, "pyarrow"):
        return table
    if _is_of(table, "polars"):
        return table.to_arrow()
    if not is_frame(table):
        cells = np.asarray(table)
        names = names or [f"x{column}" for column in range(cells.shape[1])]
        parts = [cells[:, place] for place in range(cells.shape[1])]
        if cells.dtype.kind in "OUS":
            parts = [column.tolist() for column in parts]
        columns = [pa.array(column, from_pandas=True) for column in parts]
        return pa.table(dict(zip(names, columns, strict=True)))
    return pa.Table.from_pandas(_plain(table), preserve_index=False)


def _plain(table: Any) -> Any:
    """Return a dense pandas frame with names of text, and text for cells of objects, except lists."""
    table = table.rename(columns=str)
    for name in table.columns:
        if hasattr(table[name].dtype, "fill_value"):
            table[name] = table[name].sparse.to_dense()
        elif table[name].dtype == object and not any(
            isinstance(cell, _LISTS) for cell in table[name].head(100)
        ):
            table[name] = [None if repr(cell) in _EMPTY else str(cell) for cell in table[name]]
    return table


def features_of(table: Any, known: NDArray[Any] | None) -> Any:
    """Return the known features of a table that may have other columns; all columns if it has no names."""
    table = _features_of_anndata(table) if _is_anndata(table) else table
    there = set(names_of(table))
    return table[list(known)] if known is not None and there.issuperset(known) else table


def _is_of(table: Any, package: str) -> bool:
    return type(table).__module__.partition(".")[0] == package


def _names_of_rows(tables: Sequence[Any]) -> NDArray[Any] | None:
    """Return the names of all rows; None unless all tables have names and they are unique."""
    indices = [getattr(_obs(table), "index", None) for table in tables]
    if not all(hasattr(index, "is_unique") for index in indices):
        return None
    names = [_key(np.asarray(index)) for index in indices]
    if len({array.dtype.kind for array in names}) > 1:
        return None
    ids = np.concatenate(names)
    return ids if len(np.unique(ids)) == len(ids) else None
