"""Loader from a built-in name or a file to a `Table`.

It accounts for every row and raises errors before work starts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import BoolArray, Int64Array
from raydr.data.catalogue import find, read_builtin
from raydr.data.files.arrow_files import read_csv, read_parquet, survey_csv, survey_parquet
from raydr.data.files.h5ad_files import read_h5ad
from raydr.data.files.matrix_market import read_mtx
from raydr.data.files.numpy_files import read_npy, read_npz
from raydr.data.provenance import Source, sha256_of_arrays, sha256_of_file
from raydr.data.sampling import sample_rows
from raydr.data.survey.categories import Survey
from raydr.data.survey.codebook import Codebook
from raydr.data.survey.columns import Choice, Columns, Key, listing
from raydr.data.survey.layout import Categories, Layout
from raydr.data.survey.site_names import with_joined_sites
from raydr.data.survey.spelling import DEFAULT_THRESHOLD, Threshold
from raydr.data.table import Table
from raydr.errors import DataError, did_you_mean
from raydr.geometry.points import Progress, unheard
from raydr.memory import available_memory_bytes
from raydr.memory import size as file_size
from raydr.sparse_rows import SparseRows, rows_taken

Read = TypeVar("Read")
Filling: TypeAlias = Literal["mean", "median"]
"""How clients fill in missing values."""
FILLINGS: tuple[Filling, ...] = ("mean", "median")
Missing: TypeAlias = Literal["error", "drop", "mean", "median"]
NO_LABEL = "(none)"
"""Class of rows without a label, and period of rows without a time, if missing values are filled in. Such rows are
mapped too."""

_LOGGER = logging.getLogger(__name__)

TEXTS = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".txt", ".data")
_READERS = {
    ".csv": read_csv,
    ".parquet": read_parquet,
    ".npy": read_npy,
    ".npz": read_npz,
    ".tsv": read_csv,
    ".csv.gz": read_csv,
    ".tsv.gz": read_csv,
    ".h5ad": read_h5ad,
    ".mtx": read_mtx,
    ".mtx.gz": read_mtx,
    ".txt": read_csv,
    ".data": read_csv,
}
SHEETS = (".xlsx", ".xls", ".ods")
"""Suffixes of spreadsheets, which raydr does not read."""
_SURVEYORS = dict.fromkeys(TEXTS, survey_csv) | {".parquet": survey_parquet}
OTHER_FILES = (".txt", ".data")
"""Suffixes of text files that are often no table. In a folder they are not read."""
ENDINGS, TABLES = tuple(_READERS), tuple(_SURVEYORS)
"""Suffixes of readable files, and of those whose columns can hold text. ``TEXTS`` are text files."""


def load(
    *,
    source: str | None = None,
    path: str | Path | None = None,
    label: str | None = None,
    time: str | None = None,
    features: Sequence[str] | None = None,
    client: str | None = None,
    id_column: str | None = None,
    marks: str | None = None,
    matrix: str | None = None,
    exclude: Sequence[str] = (),
    rows: int | None = None,
    missing: Missing = "error",
    categories: Categories = "error",
    threshold: Threshold = DEFAULT_THRESHOLD,
    layout: Layout | None = None,
    codebook: Codebook | None = None,
    join_spellings: bool = False,
    cells: bool = False,
    seed: int = 0,
    data_dir: Path | None = None,
    for_map: bool = True,
    sparse: bool = False,
    progress: Progress = unheard,
) -> Table:
    """Read a built-in data set or a file, check it, and sub-sample it when asked.

    Parameters
    ----------
    source : str, optional
        A built-in name (`raydr.data.DATASETS`). Exactly one of ``source`` and ``path`` is given.
    path : str or Path, optional
        A .csv or .tsv file (with a header line, optionally packed as .csv.gz), or a .parquet, .npy, .npz,
        .h5ad or .mtx (also .mtx.gz) file. The path is relative to the current directory.
    label : str, optional
        The column of class labels. Built-in data sets and .npz files with ``y`` or ``label`` have a default.
    time : str, optional
        The column that says when a row was taken (the key ``data.time``).
    features : sequence of str, optional
        The columns to map, in this order. Default: every column that is not label, time, client or id.
    client : str, optional
        The column that names the owner of each row: a hospital, a device, an animal.
    id_column : str, optional
        The column of row identities (the key ``data.id``). Default: the row's index from 0.
    marks : str, optional
        The column that marks the held-out rows (the key ``data.holdout.column``).
    matrix : str, optional
        The matrix to read from an .h5ad file: ``X`` (the default), ``layers/NAME`` or ``obsm/NAME``.
    exclude : sequence of str
        Columns that are not features (the key ``data.exclude``), instead of ``features``.
    rows : int, optional
        Sub-sample this many rows, at least 2, without replacement and in their original order. If there are
        labels, every class keeps its share to within one row. The same seed draws the same rows.
    missing : {"error", "drop", "mean", "median"}
        What to do with rows that have an empty or NaN cell in a used column (a feature, the label, the time,
        the client, the mark or the id). "error" refuses the table. "drop" drops those rows before sub-sampling.
        With "mean" and "median", features keep their gaps and clients fill them in
        (:func:`raydr.statistics.filling.fit_filling`), and the other columns must be complete.
    categories : {"error", "leave-out", "one-hot"}
        What to do with columns of text: refuse them, leave them out, or make one 0/1 column for each of at
        most 50 words. Unless they are refused, dates, identities and empty columns are left out too.
    threshold : Threshold
        How many rows and sites must have a word before it is mapped. ``client`` names the sites, and without
        it the table is one site. A row with any other word has only zeros.
    layout : Layout, optional
        The columns that are the features, and their form, as agreed with others. Use it instead of
        ``features`` and ``categories``. If clients fill in missing values, absent columns are missing in all
        rows.
    codebook : Codebook, optional
        How columns of a text table or a Parquet file are read. It wins over ``categories``.
    join_spellings : bool
        Whether names in ``client`` that differ only in case and blanks are one site: see
        :func:`raydr.data.survey.site_names.join_spellings`.
    cells : bool
        Whether each cell of a column is read by itself, as a number or a word, so that no row decides how others are
        read (:mod:`raydr.data.survey.raw_cells`). Features can then have gaps, and ``categories`` has no effect.
    seed : int
        Seed of the sub-sample, at least 0.
    data_dir : Path, optional
        The folder with built-in data sets as NAME.npz. Default: the folder in ``RAYDR_DATA``.
    for_map : bool
        Whether these rows will be mapped, which takes two rows that differ.
    sparse : bool
        Whether a sparse matrix stays so (`raydr.sparse_rows.SparseRows`); by default rows are dense.
    progress : callable
        Called as ``progress(done, total)`` while a text file is read, in bytes.

    Returns
    -------
    Table

    Raises
    ------
    DataError
        If the source is unknown, absent or unreadable. If a column does not exist or is not numeric. If there
        are missing or infinite values, or duplicate ids. If the table is too small or too uniform for a map.

    Examples
    --------
    >>> table = load(source="iris", rows=30)
    >>> table.rows.shape, table.label_names
    ((30, 4), ('setosa', 'versicolor', 'virginica'))
    """
    if missing not in get_args(Missing):
        raise DataError(f"data.missing is {missing!r}. It must be 'error', 'drop', 'mean' or 'median'.")
    if categories not in get_args(Categories):
        raise DataError(
            f"data.categories is {categories!r}. It must be one of {listing(get_args(Categories))}."
        )
    choice = Choice(
        label=label,
        time=time,
        features=None if features is None else tuple(features),
        client=client,
        id=id_column,
        marks=marks,
        categories=categories,
        threshold=threshold,
        layout=layout,
        absent=missing in FILLINGS or cells,
        matrix=matrix,
        exclude=tuple(exclude),
        codebook=codebook,
        join_spellings=join_spellings,
        cells=cells,
    )
    stamp = None if path is None else _stamp(path)
    if source is not None and path is None:
        columns = read_builtin(find(source), choice, data_dir)
    elif path is not None and source is None:
        columns = read_file(path, choice, progress)
    else:
        raise DataError(
            "Give exactly one of data.source (a built-in name) and data.path (your own file); "
            f"got source={source!r}, path={None if path is None else str(path)!r}."
        )
    if join_spellings:
        columns = with_joined_sites(columns)
    cells_read = columns.matrix
    if cells and isinstance(cells_read, np.ndarray) and cells_read.dtype.kind == "f":
        # An infinite number is no value, as in text.
        columns = replace(
            columns, matrix=np.where(np.isinf(cells_read), np.nan, cells_read).astype(cells_read.dtype)
        )
    gaps = missing in FILLINGS or cells
    if gaps:
        columns = with_names_for_none(columns)
    kept = complete_rows(columns, "median" if cells else missing)
    # Whether rows differ is not checked if a survey finds it.
    checks = for_map and not cells
    table = checked(columns, kept, rows=rows, seed=seed, path=path, gaps=gaps, for_map=checks)
    if path is not None and _stamp(path) != stamp:
        raise DataError(f"{path} changed while it was read. Try again when nothing writes to it.")
    return table if sparse else table.made_dense("this step takes dense rows")


def _stamp(path: str | Path) -> tuple[int, int] | None:
    """Return the size and modification time of a file, to detect changes, or None if it does not exist."""
    try:
        found = Path(path).expanduser().stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def checked(
    columns: Columns,
    kept: Int64Array,
    *,
    rows: int | None = None,
    seed: int = 0,
    path: str | Path | None = None,
    gaps: bool = False,
    for_map: bool,
) -> Table:
    """Return the table of the rows ``kept``, or of a sub-sample of them.

    With ``for_map``, check that a map is possible.
    """
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
            cells = table.rows
            empty = cells.gaps == len(cells) if isinstance(cells, SparseRows) else np.isnan(cells).all(axis=0)
            refuse_empty(table.features, np.asarray(empty), table.name)
        _refuse_equal_rows(table)
    return table


def ending(path: PurePath) -> str:
    """Return the suffix that decides how a file is read. For a packed file, it includes the suffix before.

    >>> ending(Path("Patients.CSV.gz"))
    '.csv.gz'
    """
    packed = path.suffix.lower() == ".gz"
    return "".join(suffix.lower() for suffix in path.suffixes[-2 if packed else -1 :])


def read_file(path: str | Path, choice: Choice, progress: Progress = unheard) -> Columns:
    """Read a file by its suffix, after a check that it exists and is not empty. For text, ``progress`` is in bytes.

    Raises
    ------
    DataError
        If the file is absent or unreadable, or its columns cannot be used as ``choice`` asks.
    """
    return _opened(path, _READERS, choice, progress)


def _opened(
    path: str | Path, readers: Mapping[str, Callable[..., Read]], choice: Choice, progress: Progress
) -> Read:
    """Return the result of the reader for a file's suffix."""
    path = Path(path).expanduser()
    reader = readers.get(ending(path))
    try:
        size = path.stat().st_size
    except OSError as error:
        siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise DataError(
            f"The data file {path} cannot be opened ({error.strerror}){did_you_mean(path.name, siblings)}. "
            f"Relative paths start from the current directory, {Path.cwd()}."
        ) from error
    if path.is_dir():
        raise DataError(f"{path} is a folder. data.path must name a {', '.join(_READERS)} file.")
    if reader is None:
        raise DataError(
            f"raydr cannot read {path.name}: its suffix is {ending(path)!r}, but it must be "
            f"one of {', '.join(_READERS)}." + " Save the sheet as CSV." * (ending(path) in SHEETS)
        )
    if choice.matrix is not None and ending(path) != ".h5ad":
        raise DataError(
            f"data.matrix names a matrix of an .h5ad file, but {path.name} is not one. Remove data.matrix."
        )
    if choice.codebook is not None and ending(path) not in TABLES:
        raise DataError(
            f"data.codebook is for tables ({', '.join(TABLES)}), but {path.name} is none: leave it out."
        )
    if size == 0:
        raise DataError(f"{path} is empty. It needs column names and at least two rows.")
    try:
        return reader(path, choice, progress) if ending(path) in TEXTS else reader(path, choice)
    except OSError as error:
        raise DataError(f"The data file {path} cannot be read: {error}.") from error
    except MemoryError as error:
        raise DataError(
            f"Reading {path} ({file_size(size)}) needs more than the {file_size(available_memory_bytes())} of memory"
            f" that are free here{f' ({error})' if str(error) else ''}. Use fewer rows or columns, or a machine with"
            " more memory."
        ) from error


def survey(path: str | Path, choice: Choice, progress: Progress = unheard) -> Survey:
    """Return what the candidate feature columns of a file hold. Those of arrays are numbers."""
    if ending(Path(path)) in _SURVEYORS:
        return _opened(path, _SURVEYORS, choice, progress)
    return Survey(dict.fromkeys(read_file(path, choice).features, "number"))


def complete_rows(
    columns: Columns,
    missing: Missing,
    remedy: str = "Fill them in, name those columns in data.exclude, or set data.missing: drop to drop those rows, or"
    " mean or median to make clients fill features in.",
) -> Int64Array:
    """Return the indices of the usable rows: complete, finite, and with distinct ids.

    With mean or median, features can have gaps, which clients fill in. Rows without a site are left out then: no
    client has them.

    Raises
    ------
    DataError
        If rows have an empty cell and are not dropped, or if there are infinite values or repeated ids.
    """
    filled = missing in FILLINGS
    if filled:
        remedy = (
            f"data.missing: {missing} fills in features only. Fill that column in, or set data.missing: drop."
        )
    owned = columns.client.codes >= 0 if filled and columns.client is not None else None
    if owned is not None and not owned.all():
        _LOGGER.warning("%s: left out %d rows without a site", columns.name, (~owned).sum())
    kept = _rows_without_gap(columns, None if missing == "drop" else remedy, features=not filled, owned=owned)
    _refuse_infinite(columns, kept)
    _refuse_duplicate_ids(columns, kept)
    return kept


def with_names_for_none(columns: Columns) -> Columns:
    """Give rows without a label or without a time the name :data:`NO_LABEL`."""
    return replace(
        columns, label=with_a_class_for_none(columns.label), time=with_a_class_for_none(columns.time)
    )


def with_a_class_for_none(label: Key | None) -> Key | None:
    """Give rows without a label the class :data:`NO_LABEL`."""
    if label is None or (label.codes >= 0).all():
        return label
    names = label.names if NO_LABEL in label.names else (*label.names, NO_LABEL)
    return Key(label.column, np.where(label.codes < 0, names.index(NO_LABEL), label.codes), names)


def source_of(columns: Columns, kept: Int64Array, path: str | Path | None) -> Source:
    """Describe what was read: a file, or a built-in data set if ``path`` is None."""
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
    """Raise a DataError if a feature has no value at all, by ``empty`` (features,)."""
    if empty.any():
        names = [name for name, nothing in zip(features, empty, strict=True) if nothing]
        raise DataError(
            f"{where} has no value at all in {listing(names)}, so these columns cannot be filled in. Name them in"
            " data.exclude."
        )


def _rows_without_gap(
    columns: Columns, remedy: str | None, *, features: bool = True, owned: BoolArray | None = None
) -> Int64Array:
    """Return the indices of the rows without an empty cell in a used column, of those ``owned`` (rows,) if given.

    With a remedy, raise if there are others.
    """
    if owned is None:
        owned = np.ones(len(columns.matrix), np.bool_)
    gaps: dict[str, BoolArray] = {}
    if features and columns.matrix.dtype.kind == "f":
        matrix = columns.matrix
        some: NDArray[Any] | SparseRows = matrix
        places = np.arange(matrix.shape[1])
        if isinstance(matrix, SparseRows):  # look only at the columns with a gap
            places = np.unique(matrix.indices[np.isnan(matrix.data)])
            some = matrix[:, places]
        empty = np.isnan(some)
        for column in np.flatnonzero(empty.any(axis=0)):
            gaps[columns.features[places[column]]] = empty[:, column]
    for key in columns.keys:
        if (lacking := owned & (key.codes < 0)).any():
            gaps[key.column] = lacking
    if columns.identity is not None and (owned & columns.identity.missing).any():
        gaps[columns.identity.column] = owned & columns.identity.missing
    if not gaps:
        return np.flatnonzero(owned)
    incomplete = np.logical_or.reduce(list(gaps.values()))
    if remedy is None:
        _LOGGER.info("%s: dropped %d rows with missing values", columns.name, incomplete.sum())
        return np.flatnonzero(owned & ~incomplete)
    cells = sum(int(gap.sum()) for gap in gaps.values())
    first = int(np.flatnonzero(incomplete)[0])
    holed = next(name for name, gap in gaps.items() if gap[first])
    raise DataError(
        f"{columns.name} has {cells} missing value{'' if cells == 1 else 's'} in the column"
        f"{'' if len(gaps) == 1 else 's'} {listing(list(gaps))}, in {incomplete.sum()} of {len(incomplete)} "
        f"rows; the first is in {holed!r} on {columns.locate(first)}. {remedy}"
    )


def _clients_of_dropped(columns: Columns, kept: Int64Array) -> dict[str, int]:
    """Count the rows that each client lost, if a column names the clients. Rows without a client are not counted."""
    if columns.client is None:
        return {}
    lost = np.delete(columns.client.codes, kept)
    codes, counts = np.unique(lost[lost >= 0], return_counts=True)
    return {columns.client.names[code]: int(count) for code, count in zip(codes, counts, strict=True)}


def _refuse_infinite(columns: Columns, kept: Int64Array) -> None:
    if columns.matrix.dtype.kind != "f":
        return
    matrix = columns.matrix
    if isinstance(matrix, SparseRows):
        having = np.isin(np.arange(len(matrix)), _rows_of_stored(matrix, np.isinf(matrix.data)))
    else:
        having = np.isinf(matrix).any(axis=1)
    infinite = kept[having[kept]]
    if infinite.size:
        row = int(infinite[0])
        column = int(np.flatnonzero(np.isinf(columns.matrix[row]))[0])
        raise DataError(
            f"{columns.name} has infinite values in {infinite.size} row{'' if infinite.size == 1 else 's'}; the "
            f"first is {columns.matrix[row, column]} in {columns.features[column]!r} on {columns.locate(row)}. "
            f"Distances to such a row are not numbers. Correct it, or empty the cell and set data.missing: drop."
        )


def _rows_of_stored(matrix: SparseRows, which: BoolArray) -> Int64Array:
    """Return the rows of the stored numbers that are flagged."""
    return np.searchsorted(matrix.starts, np.flatnonzero(which), side="right") - 1


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
            f"{columns.name}: the id {str(ids[again])!r} in column {columns.identity.column!r} is on "
            f"{columns.locate(int(kept[earlier]))} and again on {columns.locate(int(kept[again]))} (repeated ids in "
            f"all: {repeats.size}). Each row needs its own id: make them distinct, or leave data.id out to number the "
            f"rows from 0."
        )


def _sampled(columns: Columns, kept: Int64Array, rows: int, seed: int) -> Int64Array:
    """Return the positions of a sub-sample of ``rows`` among the ``kept`` rows."""
    if rows < 2:
        raise DataError(f"data.rows is {rows}, but a map needs at least 2 rows.")
    if rows > len(kept):
        dropped = len(columns.matrix) - len(kept)
        after = f" after {dropped} rows with missing values are dropped" if dropped else ""
        raise DataError(
            f"data.rows is {rows}, but {columns.name} has {len(kept)} rows{after}. "
            f"Use at most {len(kept)}, or leave data.rows out to use all rows."
        )
    return sample_rows(len(kept), rows, None if columns.label is None else columns.label.codes[kept], seed)


def table_of(
    columns: Columns, kept: Int64Array, source: Source | None = None, *, gaps: bool = False
) -> Table:
    """Return the table of the columns' rows ``kept``. With ``gaps``, values can be missing."""
    stored = columns.matrix.dtype
    exact_in_float32 = stored.itemsize <= (4 if stored.kind == "f" else 2)
    taken: Any = columns.matrix if len(kept) == len(columns.matrix) else rows_taken(columns.matrix, kept)
    dtype = np.float32 if exact_in_float32 else np.float64
    rows: Any = (
        taken.astype(dtype, copy=False)
        if isinstance(taken, SparseRows)
        else np.ascontiguousarray(taken, dtype=dtype)
    )
    return Table(
        name=columns.name,
        rows=rows,
        features=columns.features,
        ids=columns.first + kept if columns.identity is None else columns.identity.values[kept],
        labels=None if columns.label is None else columns.label.codes[kept],
        label_names=() if columns.label is None else columns.label.names,
        times=None if columns.time is None else columns.time.codes[kept],
        time_names=() if columns.time is None else columns.time.names,
        client_keys=None if columns.client is None else columns.client.codes[kept],
        client_names=() if columns.client is None else columns.client.names,
        marks=None if columns.marks is None else columns.marks.codes[kept],
        mark_names=() if columns.marks is None else columns.marks.names,
        source=source,
        gaps=gaps,
        words=columns.words,
        units=columns.units,
        codings=columns.codings,
        doubts=columns.doubts,
        agreement=columns.agreement,
    )


def _refuse_equal_rows(table: Table) -> None:
    constant = table.constant_features
    if len(constant) == len(table.features):
        raise DataError(
            f"{table.name}: all {len(table.rows)} rows are equal in every feature ({listing(constant)}), so "
            f"all distances are 0. Check data.features, or raise data.rows."
        )
