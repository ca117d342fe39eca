"""Reader for MatrixMarket files (.mtx): a matrix of numbers, usually sparse."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from raydr.data.files.numpy_files import from_arrays
from raydr.data.survey.columns import Choice, Columns
from raydr.errors import DataError
from raydr.memory import lacking_memory
from raydr.sparse_rows import SparseRows

_COPIES = 6
"""Numbers of 8 bytes per stored number while a file is read: row, column and value, twice."""
_NAME_BYTES = 120
"""Bytes of a column's name."""


def read_mtx(path: Path, choice: Choice) -> Columns:
    """Read a MatrixMarket file, which can be packed (.mtx.gz): one row of the table per row of the matrix.

    A matrix in coordinates stays sparse. It has no labels, clients or ids.

    Raises
    ------
    DataError
        If it cannot be read, is complex or larger than the free memory, or ``choice`` names a label, client or id.
    """
    from scipy.io import mminfo, mmread

    for knob, column in choice.named.items():
        raise DataError(
            f"{path.name} is a MatrixMarket file, which holds only features, so {knob} cannot name {column!r} in it."
            " Save an .h5ad file with the column in obs."
        )
    try:
        rows, columns, stored, form, *_ = mminfo(path)
        values = rows * columns if form == "array" else _COPIES * stored
        lacking = lacking_memory(8 * (rows + values) + _NAME_BYTES * columns)
        if lacking is not None:
            raise DataError(
                f"{path} claims {rows:,} rows of {columns:,} columns, {stored:,} stored: {lacking}."
            )
        matrix = mmread(path)
    except (ValueError, OverflowError, EOFError) as error:
        raise DataError(
            f"{path} cannot be read as a MatrixMarket file: {' '.join(str(error).split())}. Save it with"
            " scipy.io.mmwrite."
        ) from error
    found = SparseRows.of(matrix) if hasattr(matrix, "tocsr") else np.asarray(matrix)
    return from_arrays(path.name, {"X": found}, choice)  # type: ignore[dict-item]
