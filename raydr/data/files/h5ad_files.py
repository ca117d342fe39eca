"""Reader for annotated matrices (.h5ad) of single-cell biology: one of the matrices, and the notes on its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.data.files.numpy_files import from_arrays
from raydr.data.survey.columns import Choice, Columns, listing
from raydr.errors import DataError, did_you_mean
from raydr.extras import lacking as lacking_package
from raydr.memory import lacking_memory, size
from raydr.sparse_rows import SparseRows


def read_h5ad(path: Path, choice: Choice) -> Columns:
    """Read an .h5ad file. ``choice.matrix`` picks the matrix. Any column of ``obs`` can be a label, client or id.

    Sparse matrices stay sparse. The names of the rows are the column ``obs_names``.

    Raises
    ------
    DataError
        If anndata is not installed, or the file or the matrix cannot be used.
    """
    missing = lacking_package("anndata", f"Reading {path.name}")
    if missing is not None:
        raise DataError(f"{missing}, or save its matrix as .npz or .parquet.")
    import anndata

    try:
        lacking = lacking_memory(_unpacked_bytes(path))
    except Exception as error:  # h5py raises many types
        raise DataError(f"{path} cannot be read as an .h5ad file: {' '.join(str(error).split())}") from error
    if lacking is not None:
        raise DataError(
            f"{path} ({size(path.stat().st_size)}) is larger than the free memory when unpacked: {lacking}. Save fewer"
            " rows or columns, or save only the matrix to map as .npz or .parquet."
        )
    try:
        content = anndata.read_h5ad(path)
    except Exception as error:  # h5py and anndata raise many types
        raise DataError(f"{path} cannot be read as an .h5ad file: {' '.join(str(error).split())}") from error
    arrays = {"obs_names": np.asarray(content.obs_names, np.str_)}
    for column in content.obs.columns:
        if column not in ("X", "feature_names"):
            arrays[str(column)] = _plain(content.obs[column])
    matrix, names = _matrix(path, content, choice.matrix or "X")
    return from_arrays(path.name, {**arrays, "X": matrix, "feature_names": names}, choice)


def _unpacked_bytes(path: Path) -> int:
    """Return the bytes of all arrays of a file."""
    import h5py

    stored = 0

    def count(_: str, item: Any) -> None:
        nonlocal stored
        if isinstance(item, h5py.Dataset):
            stored += item.nbytes

    with h5py.File(path, "r") as file:
        file.visititems(count)
    return stored


def _matrix(path: Path, content: Any, which: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return a matrix and the names of its columns."""
    places = {"X": content.X} if content.X is not None else {}
    places |= {f"layers/{name}": values for name, values in content.layers.items() if name is not None}
    places |= {f"obsm/{name}": values for name, values in content.obsm.items()}
    if which not in places:
        raise DataError(
            f"{path.name} has no matrix {which!r}, which data.matrix names{did_you_mean(which, list(places))}. Its"
            f" matrices are {listing(list(places))}."
        )
    found = places[which]
    if hasattr(found, "columns"):  # a data frame
        return np.asarray(found), np.array([str(column) for column in found.columns])
    full: Any = SparseRows.of(found) if hasattr(found, "tocsr") else np.asarray(found)
    if which.startswith("obsm/"):
        return full, np.array([f"{which.removeprefix('obsm/')}{column}" for column in range(full.shape[1])])
    return full, np.asarray(content.var_names, np.str_)


def _plain(column: Any) -> NDArray[Any]:
    """Return a column of ``obs`` as numbers, or as text that is empty where a value is missing."""
    kind = getattr(column.dtype, "kind", "O")
    if kind in "biuf":
        return np.asarray(column)
    values = column.astype(object)
    return np.array(
        ["" if missing else str(value) for value, missing in zip(values, column.isna(), strict=True)]
    )
