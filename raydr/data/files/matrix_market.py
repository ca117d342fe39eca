"""Reader for MatrixMarket files (.mtx): a matrix of numbers, usually sparse."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from raydr.data.files.numpy_files import from_arrays
from raydr.data.survey.columns import Choice, Columns
from raydr.errors import DataError
from raydr.sparse_rows import SparseRows


def read_mtx(path: Path, choice: Choice) -> Columns:
    """Read a MatrixMarket file, which can be packed (.mtx.gz): one row of the table per row of the matrix.

    A matrix in coordinates stays sparse. It has no labels, clients or ids.

    Raises
    ------
    DataError
        If it cannot be read, is complex, or ``choice`` names a label, client or id.
    """
    from scipy.io import mmread

    for knob, column in choice.named.items():
        raise DataError(
            f"{path.name} is a MatrixMarket file, which holds only features, so {knob} cannot name {column!r} in it."
            " Save an .h5ad file with the column in obs."
        )
    try:
        matrix = mmread(path)
    except (ValueError, OverflowError, EOFError) as error:
        raise DataError(
            f"{path} cannot be read as a MatrixMarket file: {' '.join(str(error).split())}. Save it with"
            " scipy.io.mmwrite."
        ) from error
    found = SparseRows.of(matrix) if hasattr(matrix, "tocsr") else np.asarray(matrix)
    return from_arrays(path.name, {"X": found}, choice)  # type: ignore[dict-item]
