"""Reader for NumPy files and arrays in memory: a matrix ``X`` and one-dimensional arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.array_files import ArrayArchive, ArrayFileError, read_array_file
from raydr.data.survey.columns import (
    NOT_LISTED,
    Choice,
    Columns,
    IdColumn,
    Key,
    cells,
    encode,
    first_text,
    identify,
    listing,
    refuse_repeats,
)
from raydr.errors import DataError, did_you_mean
from raydr.sparse_rows import SparseRows

_ARCHIVE, _ARRAY, _PICKLE = b"PK", b"\x93NUMPY", b"\x80"
"""First bytes of an .npz file, of a .npy file, and of a pickle."""

_DEFAULT_LABELS = ("y", "label", "labels")


def read_npy(path: Path, choice: Choice) -> Columns:
    """Read a .npy file: one (rows, features) array, without labels, clients or ids.

    Raises
    ------
    DataError
        If it cannot be read as such an array, or ``choice`` names a label, client or id.
    """
    for knob, column in choice.named.items():
        raise DataError(
            f"{path.name} is a .npy file, which holds only features, so {knob} cannot name {column!r} in it. "
            f"Save a .npz file with the features as X and the array {column!r} next to it."
        )
    if _begins(path, _ARCHIVE):
        raise DataError(f"{path} holds an archive of arrays, which is a .npz file. Rename it to end in .npz.")
    try:
        matrix = read_array_file(path)
    except ArrayFileError as error:
        raise DataError(f"{path} cannot be read as a .npy file: {_reason(path, error)}") from error
    return from_arrays(path.name, {"X": matrix}, choice)


def read_npz(path: Path, choice: Choice, name: str | None = None) -> Columns:
    """Read a .npz file: see `from_arrays` for the arrays that it can hold. ``name`` defaults to the file's.

    Raises
    ------
    DataError
        If it cannot be read, or its arrays cannot be used as ``choice`` asks.
    """
    if _begins(path, _ARRAY):
        raise DataError(f"{path} holds one array, which is a .npy file. Rename it to end in .npy.")
    try:
        with ArrayArchive(path) as archive:
            return from_arrays(name or path.name, archive, choice)
    except ArrayFileError as error:
        raise DataError(f"{path} cannot be read as a .npz file: {_reason(path, error)}") from error


def from_arrays(name: str, arrays: Mapping[str, NDArray[Any]], choice: Choice) -> Columns:
    """Arrange named arrays as columns.

    Parameters
    ----------
    name : str
        The name of the source in error messages.
    arrays : mapping
        ``X`` (rows, features) numbers, dense or a `SparseRows`. Optional: ``feature_names`` (features,), by default
        "x0", "x1", ...; ``y``, ``label`` or ``labels`` (rows,), the label unless ``choice`` names another; any other
        (rows,) array, to use as label, time, client, mark or id. The time can also be a feature. If there is an
        array ``key_names``, it gives the names of the codes from 0 in the array ``key``. For ``y`` it is
        ``class_names``.
    choice : Choice
        The columns that the user named.

    Raises
    ------
    DataError
        If an array is absent, has the wrong shape or is not numeric.
    """
    if "X" not in arrays:
        raise DataError(
            f"{name} has no array X for the features{did_you_mean('X', list(arrays))}. "
            f"It holds {listing(list(arrays))}. Save the (rows, features) array under the name X."
        )
    matrix = arrays["X"]
    if matrix.ndim != 2:
        raise DataError(
            f"{name}: the features have the shape {matrix.shape}, but a (rows, features) array is needed. "
            f"Reshape it, for images with X.reshape(len(X), -1)."
        )
    names, named = _feature_names(arrays, matrix.shape[1])
    refuse_repeats(names, where=name, remedy="give every feature its own name in feature_names")
    features = choice.pick_features(name, names, names, named=named)
    lacking = [] if choice.layout is None else sorted(set(features) - set(names))
    if choice.layout is not None and (choice.layout.words or lacking):
        raise DataError(
            f"{name} has only numbers, but others have {listing([*choice.layout.words, *lacking])}. Add columns"
            " of numbers with these names, NaN where they are missing, and leave text columns out of data.features."
        )
    listed = set(features)
    if len(features) < len(names) or features != names:
        position = {feature: column for column, feature in enumerate(names)}
        places = [position[feature] for feature in features]
        matrix = matrix.of_columns(places) if isinstance(matrix, SparseRows) else matrix[:, places]
    _refuse_text(name, matrix, features)

    label = choice.label
    if label is None and choice.alike is None:
        label = next((default for default in _DEFAULT_LABELS if default in arrays), None)
    return Columns(
        name=name,
        matrix=matrix,
        features=tuple(features),
        label=None if label is None else _key(name, arrays, label, "data.label", len(matrix)),
        time=None if choice.time is None else _time(name, arrays, choice.time, names, len(matrix)),
        client=None
        if choice.client is None
        else _key(name, arrays, choice.client, "clients.partition.column", len(matrix)),
        identity=None if choice.id is None else _identity(name, arrays, choice.id, len(matrix)),
        locate=lambda row: f"row {row} (the first is row 0)",
        marks=None
        if choice.marks is None
        else _key(name, arrays, choice.marks, "data.holdout.column", len(matrix)),
        named=named,
        unread={name: NOT_LISTED for name in names if name not in listed and name != choice.time}
        # An array of names gives the words for another array. It is not a column.
        | {
            name: "an array next to X"
            for name in arrays
            if name not in {"X", label, choice.time, choice.client, choice.id, choice.marks}
            and not name.endswith("_names")
        },
    )


def _feature_names(arrays: Mapping[str, NDArray[Any]], count: int) -> tuple[list[str], bool]:
    """Return the names of the features, and whether they come from the source."""
    if "feature_names" in arrays:
        names = arrays["feature_names"]
        if names.shape == (count,):
            return [str(name) for name in names], True
    return [f"x{column}" for column in range(count)], False


def _refuse_text(name: str, matrix: NDArray[Any], features: Sequence[str]) -> None:
    """Raise a DataError if the matrix does not hold real numbers. For text, the message names the first cell."""
    if matrix.dtype.kind in "biuf":
        return
    if matrix.dtype.kind in "SU" and matrix.size:
        for position, feature in enumerate(features):
            offending = first_text(enumerate(matrix[:, position].astype(np.str_).tolist()))
            if offending is not None:
                raise DataError(
                    f"{name}: the features are stored as text: {offending[1]!r} in feature {feature!r}, row "
                    f"{offending[0]} (the first is row 0). Save X as numbers (X.astype(float)) and keep text "
                    f"in an array next to it, to use as data.label, clients.partition.column or data.id."
                )
    raise DataError(f"{name}: the features are {matrix.dtype} values. They must be real numbers.")


def _column(name: str, arrays: Mapping[str, NDArray[Any]], column: str, knob: str, rows: int) -> NDArray[Any]:
    """Return the (rows,) array that the key ``knob`` names."""
    if column not in arrays:
        usable = [key for key in arrays if key != "X" and arrays[key].shape == (rows,)]
        raise DataError(
            f"{name} has no array {column!r}, which {knob} names{did_you_mean(column, usable)}. "
            f"The arrays with one value per row are {listing(usable) or 'none'}."
        )
    values = arrays[column]
    if values.shape != (rows,):
        raise DataError(
            f"{name}: {knob} is the array {column!r} of shape {values.shape}, but X has {rows} rows. "
            f"It needs one value per row, the shape ({rows},)."
        )
    return values


def _key(name: str, arrays: Mapping[str, NDArray[Any]], column: str, knob: str, rows: int) -> Key:
    raw = _column(name, arrays, column, knob, rows)
    values, missing = cells(name, column, raw)
    for spelling in (f"{column}_names", "class_names") if column in _DEFAULT_LABELS else (f"{column}_names",):
        if spelling in arrays and raw.dtype.kind in "iu" and rows:
            names = arrays[spelling]
            if names.ndim == 1 and raw.min() >= 0 and raw.max() < len(names):
                return Key(column, raw.astype(np.int64), tuple(str(spelt) for spelt in names))
    return encode(column, values, missing)


def _time(
    name: str, arrays: Mapping[str, NDArray[Any]], column: str, features: Sequence[str], rows: int
) -> Key:
    """Return the column of times, which can also be a column of X."""
    if column in arrays or column not in features:
        return _key(name, arrays, column, "data.time", rows)
    values: NDArray[Any] = np.asarray(arrays["X"][:, [features.index(column)]])[:, 0]
    return encode(column, *cells(name, column, values))


def _identity(name: str, arrays: Mapping[str, NDArray[Any]], column: str, rows: int) -> IdColumn:
    return identify(column, *cells(name, column, _column(name, arrays, column, "data.id", rows)))


def _begins(path: Path, *starts: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(6).startswith(starts)


def _reason(path: Path, error: ArrayFileError) -> str:
    if not _begins(path, _ARCHIVE, _ARRAY, _PICKLE):
        return "it is not one. Save it with numpy.save or numpy.savez."
    if _begins(path, _PICKLE):
        return (
            "it holds pickled Python objects, which raydr does not open, because they can run code. "
            "Save plain arrays of numbers or text (astype(float), astype(str))."
        )
    return str(error)
