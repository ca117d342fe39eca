"""From a built-in name or a file to a `Table`: every row accounted for, every doubt raised before work starts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import BoolArray, Int64Array
from raydr.data.arrow_files import read_csv, read_parquet, survey_csv, survey_parquet
from raydr.data.catalogue import IN_MEMORY, find, read_builtin
from raydr.data.categories import Survey
from raydr.data.columns import Choice, Columns, Key, listing
from raydr.data.h5ad_files import read_h5ad
from raydr.data.layout import Categories, Layout
from raydr.data.numpy_files import from_arrays, read_npy, read_npz
from raydr.data.provenance import Source, sha256_of_arrays, sha256_of_file
from raydr.data.sampling import sample_rows
from raydr.data.spelling import DEFAULT_THRESHOLD, Threshold
from raydr.data.table import Table
from raydr.errors import DataError, did_you_mean
from raydr.geometry.points import Progress, unheard
from raydr.memory import available_memory_bytes
from raydr.memory import size as file_size

Read = TypeVar("Read")
Filling: TypeAlias = Literal["mean", "median"]
"""What clients fill missing values in by."""
FILLINGS: tuple[Filling, ...] = ("mean", "median")
Missing: TypeAlias = Literal["error", "drop", "mean", "median"]
NO_LABEL = "(none)"
"""The class of rows that lack a label, where missing values are filled in: they are mapped all the same."""

_LOGGER = logging.getLogger(__name__)

TEXTS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_READERS = {
    ".csv": read_csv,
    ".parquet": read_parquet,
    ".npy": read_npy,
    ".npz": read_npz,
    ".tsv": read_csv,
    ".csv.gz": read_csv,
    ".tsv.gz": read_csv,
    ".h5ad": read_h5ad,
}
SHEETS = (".xlsx", ".xls", ".ods")
"""Of files that hold tables which nobody reads here."""
_SURVEYORS = dict.fromkeys(TEXTS, survey_csv) | {".parquet": survey_parquet}
ENDINGS, TABLES = tuple(_READERS), tuple(_SURVEYORS)
"""Of files that can be read, and of those of them whose columns may hold text; ``TEXTS`` are text themselves."""


def load(
    *,
    source: str | None = None,
    path: str | Path | None = None,
    label: str | None = None,
    features: Sequence[str] | None = None,
    client: str | None = None,
    id_column: str | None = None,
    marks: str | None = None,
    matrix: str | None = None,
    rows: int | None = None,
    missing: Missing = "error",
    categories: Categories = "error",
    threshold: Threshold = DEFAULT_THRESHOLD,
    layout: Layout | None = None,
    seed: int = 0,
    data_dir: Path | None = None,
    for_map: bool = True,
    progress: Progress = unheard,
) -> Table:
    """Read a built-in data set or a file, check it, and sub-sample it when asked.

    Parameters
    ----------
    source : str, optional
        A built-in name (`raydr.data.DATASETS`). Exactly one of ``source`` and ``path`` is given.
    path : str or Path, optional
        A .csv or .tsv (with a header line; also packed, .csv.gz), .parquet, .npy, .npz or .h5ad file; relative to the
        current directory.
    label : str, optional
        The column of class labels. Built-in data sets and .npz files with ``y`` or ``label`` have a default.
    features : sequence of str, optional
        The columns to embed, in this order; by default every column that is not label, client or id.
    client : str, optional
        The column whose values own the rows: a hospital, a device, an animal.
    id_column : str, optional
        The column of row identities (the key ``data.id``); by default the row's index from 0.
    marks : str, optional
        The column that tells which rows are held out (the key ``data.holdout.column``).
    matrix : str, optional
        Of an .h5ad file the numbers to map: ``X`` (the default), ``layers/NAME`` or ``obsm/NAME``.
    rows : int, optional
        Sub-sample this many rows, at least 2, without replacement and in their original order; where there
        are labels every class keeps its share to within one row. The same seed draws the same rows.
    missing : {"error", "drop", "mean", "median"}
        What to do about rows with an empty or NaN cell in a column that is used, be it a feature, the
        label, the client, the mark or the id: refuse the table, or leave those rows out before sub-sampling.
        With mean and median features keep their gaps, for clients to fill in
        (:func:`raydr.statistics.filling.fit_filling`), and the other columns may have none.
    categories : {"error", "leave-out", "one-hot"}
        What becomes of columns of text: refused, left out, or made a column of zeros and ones for each of at most 50
        words. Unless they are refused, dates, identities and columns without any value are left out too.
    threshold : Threshold
        How many rows and sites must have a word that is mapped; ``client`` tells sites apart, and without it the table
        is one site. A row with any other word has only zeros.
    layout : Layout, optional
        Which columns are the features, and as what, as others have agreed; instead of ``features`` and
        ``categories``. Columns that are not there are missing in all rows, where clients fill missing values in.
    seed : int
        Seed of the sub-sample, at least 0.
    data_dir : Path, optional
        Where built-in data sets lie as NAME.npz; by default the folder in ``RAYDR_DATA``.
    for_map : bool
        Whether a map is to be drawn of these rows, which takes two rows that differ.
    progress : callable
        Of a text file called as ``progress(done, total)`` while it is read, in bytes.

    Returns
    -------
    Table

    Raises
    ------
    DataError
        For a source that is unknown, absent or unreadable, a column that does not exist or is not numeric,
        missing or infinite values, duplicate ids, and tables too small or too uniform to draw a map of.

    Examples
    --------
    >>> table = load(source="iris", rows=30)
    >>> table.rows.shape, table.label_names
    ((30, 4), ('setosa', 'versicolor', 'virginica'))
    """
    if missing not in get_args(Missing):
        raise DataError(f"data.missing is {missing!r}; it must be 'error', 'drop', 'mean' or 'median'.")
    if categories not in get_args(Categories):
        raise DataError(
            f"data.categories is {categories!r}; it must be one of {listing(get_args(Categories))}."
        )
    choice = Choice(
        label=label,
        features=None if features is None else tuple(features),
        client=client,
        id=id_column,
        marks=marks,
        categories=categories,
        threshold=threshold,
        layout=layout,
        absent=missing in FILLINGS,
        matrix=matrix,
    )
    stamp = None if path is None else _stamp(path)
    if source is not None and path is None:
        columns = read_builtin(find(source), choice, data_dir)
    elif path is not None and source is None:
        columns = read_file(path, choice, progress)
    else:
        raise DataError(
            "Exactly one of data.source (a built-in name) and data.path (a file of your own) must be given; "
            f"got source={source!r}, path={None if path is None else str(path)!r}."
        )
    gaps = missing in FILLINGS
    if gaps:
        columns = replace(columns, label=_with_a_class_for_none(columns.label))
    kept = complete_rows(columns, missing)
    table = _checked(columns, kept, rows=rows, seed=seed, path=path, gaps=gaps, for_map=for_map)
    if path is not None and _stamp(path) != stamp:
        raise DataError(f"{path} changed while it was read: try again once nothing writes to it.")
    return table


def _stamp(path: str | Path) -> tuple[int, int] | None:
    """What tells a file from one that was written since; None where there is none."""
    try:
        found = Path(path).expanduser().stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def in_memory(arrays: Mapping[str, NDArray[Any]], *, for_map: bool = True) -> Table:
    """Check arrays that the caller holds as if they came from a .npz file; they are nobody's to read again.

    Parameters
    ----------
    arrays : mapping
        ``X`` (rows, features), and where there are any ``feature_names``, ``y`` for labels, ``client`` for the owners
        and ``id`` for the identities of rows; see :func:`raydr.data.numpy_files.from_arrays`.
    for_map : bool
        Whether a map is to be drawn of these rows, which takes two rows that differ.

    Returns
    -------
    Table
        Which may share memory with ``X``.

    Raises
    ------
    DataError
        As :func:`load`.

    Examples
    --------
    >>> in_memory({"X": np.eye(3), "client": np.array(["north", "east", "east"])}).client_names
    ('east', 'north')
    """
    owner, identity = (name if name in arrays else None for name in ("client", "id"))
    columns = from_arrays(IN_MEMORY, arrays, Choice(client=owner, id=identity))
    kept = complete_rows(columns, "error", remedy="Fill them in, or leave those rows out.")
    return _checked(columns, kept, for_map=for_map)


def _checked(
    columns: Columns,
    kept: Int64Array,
    *,
    rows: int | None = None,
    seed: int = 0,
    path: str | Path | None = None,
    gaps: bool = False,
    for_map: bool,
) -> Table:
    """The table of the rows ``kept``, or of a sub-sample of them, once a map can be drawn of it if one is to be."""
    origin = source_of(columns, kept, path)
    if rows is not None:
        kept = kept[_sampled(columns, kept, rows, seed)]
    if len(kept) < 2 and for_map:
        raise DataError(
            f"{columns.name} has {len(kept)} usable row{'' if len(kept) == 1 else 's'} of {len(columns.matrix)}; "
            f"a map needs at least 2."
        )
    table = table_of(columns, kept, origin, gaps=gaps)
    if for_map:
        if table.gaps:
            refuse_empty(table.features, np.asarray(np.isnan(table.rows).all(axis=0)), table.name)
        _refuse_equal_rows(table)
    return table


def ending(path: PurePath) -> str:
    """What tells how a file is to be read: its suffix, with the one before where it is packed.

    >>> ending(Path("Patients.CSV.gz"))
    '.csv.gz'
    """
    packed = path.suffix.lower() == ".gz"
    return "".join(suffix.lower() for suffix in path.suffixes[-2 if packed else -1 :])


def read_file(path: str | Path, choice: Choice, progress: Progress = unheard) -> Columns:
    """Read a file by its suffix, once it is known to be there and not empty; of text ``progress`` is in bytes.

    Raises
    ------
    DataError
        For a file that is absent or unreadable, and for columns that cannot be used as ``choice`` asks.
    """
    return _opened(path, _READERS, choice, progress)


def _opened(
    path: str | Path, readers: Mapping[str, Callable[..., Read]], choice: Choice, progress: Progress
) -> Read:
    """What the reader for a file's suffix makes of it."""
    path = Path(path).expanduser()
    reader = readers.get(ending(path))
    try:
        size = path.stat().st_size
    except OSError as error:
        beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise DataError(
            f"The data file {path} cannot be opened ({error.strerror}){did_you_mean(path.name, beside)}. "
            f"Relative paths start from the current directory, {Path.cwd()}."
        ) from error
    if path.is_dir():
        raise DataError(f"{path} is a folder; data.path must name a {', '.join(_READERS)} file.")
    if reader is None:
        raise DataError(
            f"{path.name} is not a kind of file that raydr reads: its suffix is {ending(path)!r}, and it must be "
            f"one of {', '.join(_READERS)}." + " Save the sheet as CSV." * (ending(path) in SHEETS)
        )
    if choice.matrix is not None and ending(path) != ".h5ad":
        raise DataError(
            f"data.matrix names one of the matrices of an .h5ad file, and {path.name} is none: leave it out."
        )
    if size == 0:
        raise DataError(f"{path} is empty; it needs column names and at least two rows.")
    try:
        return reader(path, choice, progress) if ending(path) in TEXTS else reader(path, choice)
    except OSError as error:
        raise DataError(f"The data file {path} cannot be read: {error}.") from error
    except MemoryError as error:
        raise DataError(
            f"{path} ({file_size(size)}) needs more memory to be read than the {file_size(available_memory_bytes())}"
            f" that are free here{f' ({error})' if str(error) else ''}. Take fewer rows or columns, or a machine with"
            " more memory."
        ) from error


def survey(path: str | Path, choice: Choice, progress: Progress = unheard) -> Survey:
    """What the columns of a file hold that would be features; those of arrays are numbers."""
    if ending(Path(path)) in _SURVEYORS:
        return _opened(path, _SURVEYORS, choice, progress)
    return Survey(dict.fromkeys(read_file(path, choice).features, "number"))


def complete_rows(
    columns: Columns,
    missing: Missing,
    remedy: str = "Fill them in, leave those columns out with data.features, or set data.missing: drop to drop those"
    " rows, mean or median to have clients fill features in.",
) -> Int64Array:
    """Return the indices of the rows that can be used: with every cell that is, finite, and told apart by their ids.

    Features may lack cells that clients are to fill in.

    Raises
    ------
    DataError
        For rows with an empty cell unless these are dropped, and for infinite values and repeated ids.
    """
    filled = missing in FILLINGS
    if filled:
        remedy = (
            f"data.missing: {missing} fills features alone: fill that column in, or set data.missing: drop."
        )
    kept = _rows_without_gap(columns, None if missing == "drop" else remedy, features=not filled)
    _refuse_infinite(columns, kept)
    _refuse_duplicate_ids(columns, kept)
    return kept


def _with_a_class_for_none(label: Key | None) -> Key | None:
    """Have rows that lack a label be of the class :data:`NO_LABEL`."""
    if label is None or (label.codes >= 0).all():
        return label
    names = label.names if NO_LABEL in label.names else (*label.names, NO_LABEL)
    return Key(label.column, np.where(label.codes < 0, names.index(NO_LABEL), label.codes), names)


def source_of(columns: Columns, kept: Int64Array, path: str | Path | None) -> Source:
    """Write down what was read: from a file, or without a path a built-in data set."""
    return Source(
        name=columns.name,
        sha256=sha256_of_arrays(columns.arrays) if path is None else sha256_of_file(Path(path).expanduser()),
        hashed="numbers" if path is None else "file",
        rows=len(columns.matrix),
        dropped=len(columns.matrix) - len(kept),
        named=columns.named,
        left_out=columns.left_out,
        dropped_by_client=_clients_of_dropped(columns, kept),
    )


def refuse_empty(features: Sequence[str], empty: BoolArray, where: str) -> None:
    """Raise a DataError where a feature has no value at all, by ``empty`` (features,)."""
    if empty.any():
        names = [name for name, nothing in zip(features, empty, strict=True) if nothing]
        raise DataError(
            f"{where} has no value at all in {listing(names)}, so nothing fills these columns in: leave them out of"
            " data.features."
        )


def _rows_without_gap(columns: Columns, remedy: str | None, *, features: bool = True) -> Int64Array:
    """Return the indices of the rows without an empty cell in a used column; refuse others where there is a remedy."""
    gaps: dict[str, BoolArray] = {}
    if features and columns.matrix.dtype.kind == "f":
        empty = np.isnan(columns.matrix)
        for column in np.flatnonzero(empty.any(axis=0)):
            gaps[columns.features[column]] = empty[:, column]
    for key in columns.keys:
        if (key.codes < 0).any():
            gaps[key.column] = key.codes < 0
    if columns.identity is not None and columns.identity.missing.any():
        gaps[columns.identity.column] = columns.identity.missing
    if not gaps:
        return np.arange(len(columns.matrix), dtype=np.int64)
    incomplete = np.logical_or.reduce(list(gaps.values()))
    if remedy is None:
        _LOGGER.info("%s: dropped %d rows with missing values", columns.name, incomplete.sum())
        return np.flatnonzero(~incomplete)
    cells = sum(int(gap.sum()) for gap in gaps.values())
    first = int(np.flatnonzero(incomplete)[0])
    holed = next(name for name, gap in gaps.items() if gap[first])
    raise DataError(
        f"{columns.name} has {cells} missing value{'' if cells == 1 else 's'} in the column"
        f"{'' if len(gaps) == 1 else 's'} {listing(list(gaps))}, in {incomplete.sum()} of {len(incomplete)} "
        f"rows; the first is in {holed!r} on {columns.locate(first)}. {remedy}"
    )


def _clients_of_dropped(columns: Columns, kept: Int64Array) -> dict[str, int]:
    """How many rows each client lost, where a column names the clients; rows that name none are nobody's."""
    if columns.client is None:
        return {}
    lost = np.delete(columns.client.codes, kept)
    codes, counts = np.unique(lost[lost >= 0], return_counts=True)
    return {columns.client.names[code]: int(count) for code, count in zip(codes, counts, strict=True)}


def _refuse_infinite(columns: Columns, kept: Int64Array) -> None:
    if columns.matrix.dtype.kind != "f":
        return
    infinite = kept[np.isinf(columns.matrix).any(axis=1)[kept]]
    if infinite.size:
        row = int(infinite[0])
        column = int(np.flatnonzero(np.isinf(columns.matrix[row]))[0])
        raise DataError(
            f"{columns.name} has infinite values in {infinite.size} row{'' if infinite.size == 1 else 's'}; the "
            f"first is {columns.matrix[row, column]} in {columns.features[column]!r} on {columns.locate(row)}. "
            f"Distances to such a row are not numbers: correct it, or empty the cell and set data.missing: drop."
        )


def _refuse_duplicate_ids(columns: Columns, kept: Int64Array) -> None:
    if columns.identity is None:
        return
    ids = columns.identity.values[kept]
    _, first, group = np.unique(ids, return_index=True, return_inverse=True)
    repeats = np.flatnonzero(first[group] != np.arange(len(ids)))
    if repeats.size:
        again = int(repeats[0])
        earlier = int(first[group[again]])
        raise DataError(
            f"{columns.name}: the id {str(ids[again])!r} in column {columns.identity.column!r} stands on "
            f"{columns.locate(int(kept[earlier]))} and again on {columns.locate(int(kept[again]))} (repeated ids in "
            f"all: {repeats.size}). Ids tell rows apart: make them distinct, or leave data.id out and "
            f"rows are numbered from 0."
        )


def _sampled(columns: Columns, kept: Int64Array, rows: int, seed: int) -> Int64Array:
    """Return which of the ``kept`` rows a sub-sample of ``rows`` holds."""
    if rows < 2:
        raise DataError(f"data.rows is {rows}; a map needs at least 2 rows.")
    if rows > len(kept):
        dropped = len(columns.matrix) - len(kept)
        after = f" once {dropped} rows with missing values are dropped" if dropped else ""
        raise DataError(
            f"data.rows asks for {rows} rows, but {columns.name} has {len(kept)}{after}. "
            f"Ask for at most {len(kept)}, or leave data.rows out to take them all."
        )
    return sample_rows(len(kept), rows, None if columns.label is None else columns.label.codes[kept], seed)


def table_of(
    columns: Columns, kept: Int64Array, source: Source | None = None, *, gaps: bool = False
) -> Table:
    """Return the rows of the columns at the indices ``kept``, which may lack values where there may be ``gaps``."""
    stored = columns.matrix.dtype
    exact_in_float32 = stored.itemsize <= (4 if stored.kind == "f" else 2)
    taken = columns.matrix if len(kept) == len(columns.matrix) else columns.matrix[kept]
    return Table(
        name=columns.name,
        rows=np.ascontiguousarray(taken, dtype=np.float32 if exact_in_float32 else np.float64),
        features=columns.features,
        ids=columns.first + kept if columns.identity is None else columns.identity.values[kept],
        labels=None if columns.label is None else columns.label.codes[kept],
        label_names=() if columns.label is None else columns.label.names,
        client_keys=None if columns.client is None else columns.client.codes[kept],
        client_names=() if columns.client is None else columns.client.names,
        marks=None if columns.marks is None else columns.marks.codes[kept],
        mark_names=() if columns.marks is None else columns.marks.names,
        source=source,
        gaps=gaps,
        words=columns.words,
        agreement=columns.agreement,
    )


def _refuse_equal_rows(table: Table) -> None:
    constant = table.constant_features
    if len(constant) == len(table.features):
        raise DataError(
            f"{table.name}: all {len(table.rows)} rows are equal in every feature ({listing(constant)}), so there "
            f"is no distance to draw. Check data.features, or raise data.rows."
        )
