"""CSV and Parquet files through Arrow; every complaint names the column, the line and the value."""

from __future__ import annotations

import csv
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import BoolArray
from raydr.data.categories import (
    TEXT_KINDS,
    Kind,
    Survey,
    agree,
    indicators,
    kind_of_texts,
    kind_of_words,
    named_as_numbering,
    numbers_rows,
    words_to_tell,
)
from raydr.data.columns import (
    NOT_LISTED,
    Choice,
    Columns,
    cells,
    encode,
    first_text,
    identify,
    listing,
    reads_as_number,
    refuse_repeats,
    require,
    spell,
)
from raydr.data.dialect import Dialect
from raydr.data.spelling import Threshold
from raydr.data.text_tables import read_text_table, within_memory
from raydr.errors import DataError
from raydr.geometry.points import Progress, unheard
from raydr.memory import lacking_memory, size
from raydr.parquet_files import is_text, open_parquet

_LOGGER = logging.getLogger(__name__)

_BLOCK_CELLS = 2**23
"""Of a Parquet file that is read a block at a time."""


def read_csv(path: Path, choice: Choice, progress: Progress = unheard) -> Columns:
    """Read a CSV file with a header line, packed by gzip or not; :class:`Dialect` finds out how it is written.

    ``progress`` is in bytes.

    Empty cells are missing values everywhere; so are NaN, NA, N/A, n/a, null, NULL and the like in columns
    that otherwise hold numbers. In text they are text: "NA" may be Namibia.

    Raises
    ------
    DataError
        For a file that is no such table, and for columns that cannot be used as ``choice`` asks.
    """
    return _columns(_csv(path, progress), choice)


@dataclass(kw_only=True)
class _Loaded:
    """An Arrow table that was read from a file, ``name``.

    ``default`` are its columns that are no index, ``locate`` says where a row stands, ``nulls`` are spellings of an
    empty cell in a column of text, and ``first`` is the number of its first row in the file.
    """

    name: str
    table: Any
    default: list[str]
    locate: Callable[[int], str]
    nulls: frozenset[str] = frozenset()
    first: int = 0

    def let_go(self) -> Any:
        """The table, which is not held any more."""
        table, self.table = self.table, None
        return table


def _csv(path: Path, progress: Progress = unheard) -> _Loaded:
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    dialect = Dialect.of(path)
    if dialect.encoding == "cp1252":
        _LOGGER.warning("%s is no UTF-8 text; it is read as cp1252, that of Western Europe", path.name)

    try:
        table = read_text_table(path, dialect, progress)
    except (pa.ArrowException, UnicodeError) as error:
        raise DataError(_why_not_csv(path, dialect, error)) from error
    names = [column.strip() for column in table.column_names]
    if _looks_like_values(names):
        raise DataError(
            f"{path.name} has no header: its first line holds the numbers {listing(names, 5)}. "
            f"Put a line with the column names above it."
        )
    nulls = frozenset(arrow_csv.ConvertOptions().null_values)

    def locate(row: int) -> str:
        return f"line {_line_of(path, dialect, row)}"

    return _Loaded(
        name=path.name, table=table.rename_columns(names), default=names, locate=locate, nulls=nulls
    )


def read_parquet(path: Path, choice: Choice) -> Columns:
    """Read a Parquet file. An index that pandas stored beside the columns is no feature unless listed.

    Raises
    ------
    DataError
        For a file that is no such table, and for columns that cannot be used as ``choice`` asks.
    """
    return _columns(_parquet(path), choice)


def read_parquet_blocks(path: Path, choice: Choice) -> Iterator[Columns]:
    """Read a Parquet file a block of rows at a time, in the memory that its largest group of rows takes.

    A file without rows is one block of none. Raises as :func:`read_parquet`.
    """
    import pyarrow as pa

    with _told_as_no_parquet(path), open_parquet(path) as file:
        schema, first = file.schema_arrow, 0
        for batch in _batches(file):
            table = pa.Table.from_batches([batch], schema)
            found = _Loaded(
                name=path.name,
                table=table,
                default=_no_index(schema),
                locate=partial(_row, first),
                first=first,
            )
            first += table.num_rows
            del table
            yield _columns(found, choice)


def rows_of_parquet(path: Path) -> int:
    """How many rows a Parquet file has; raises as :func:`read_parquet`."""
    import pyarrow.parquet as parquet

    with _told_as_no_parquet(path):
        return int(parquet.read_metadata(path).num_rows)


def _parquet(path: Path) -> _Loaded:
    import pyarrow as pa

    before = pa.total_allocated_bytes()
    with _told_as_no_parquet(path), open_parquet(path) as file:
        _refuse_promises(path, file.metadata)
        batches = within_memory(_batches(file), before, path, lambda _: _unpacked_bytes(file.metadata))
        table = pa.Table.from_batches(list(batches), file.schema_arrow)
    return _Loaded(name=path.name, table=table, default=_no_index(table.schema), locate=partial(_row, 0))


def _batches(file: Any) -> Iterator[Any]:
    """Blocks of the rows of a Parquet file; of a file without rows one block of none."""
    import pyarrow as pa

    schema = file.schema_arrow
    rows = min(max(_BLOCK_CELLS // max(len(schema), 1), 2**8), 2**17)
    if not file.metadata.num_rows:
        yield pa.RecordBatch.from_pylist([], schema)
    # Over several groups at once Arrow holds what it has read of all of them.
    for group in range(file.num_row_groups):
        yield from file.iter_batches(rows, row_groups=[group])


_WIDTHS = {"INT64": 8, "DOUBLE": 8, "INT96": 8}
"""Bytes of a value as a table has it; 4 of others, which become float32 or stand for a word."""


def _refuse_promises(path: Path, metadata: Any) -> None:
    """Raise a DataError where the table that a footer promises takes more than the free memory."""
    groups = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    rows = max(metadata.num_rows, sum(groups))
    columns = [metadata.schema.column(column) for column in range(metadata.num_columns)]
    lacking = lacking_memory(rows * sum(_WIDTHS.get(column.physical_type, 4) for column in columns))
    if lacking is not None or min(groups, default=0) < 0:
        raise DataError(
            f"{path} cannot be read as a Parquet file: its footer promises {rows} rows of {len(columns)} columns in"
            f" {len(groups)} row groups, the largest of {max(groups, default=0)}, in a file of"
            f" {size(path.stat().st_size)}: {lacking or 'no file has such groups'}. Take fewer rows or columns, or a"
            f" machine with more memory. A file with some of the rows tells `raydr plan FILE --rows {rows}` what a run"
            " needs."
        )


def _unpacked_bytes(metadata: Any) -> int:
    return sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))


@contextmanager
def _told_as_no_parquet(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path} cannot be read as a Parquet file: {reason}") from error


def _no_index(schema: Any) -> list[str]:
    """Columns that are no index of pandas."""
    index = (schema.pandas_metadata or {}).get("index_columns", [])
    return [column for column in schema.names if column not in index]


def _row(first: int, row: int) -> str:
    """Where a row of a part stands whose first is the source's row ``first``."""
    return f"row {first + row} (the first is row 0)"


def _columns(loaded: _Loaded, choice: Choice) -> Columns:
    """Pick the columns of a table, which is gone afterwards."""
    name, default, nulls, table = loaded.name, loaded.default, loaded.nulls, loaded.let_go()
    available = list(table.column_names)
    refuse_repeats(
        available, where=name, remedy="give every column a name of its own (in CSV, a header line)"
    )
    for knob, column in choice.named.items():
        require(column, available, knob=knob, where=name)
    features = choice.pick_features(name, available, default)
    layout = choice.layout
    if layout is None and choice.categories != "error":
        if not table.num_rows:
            raise DataError(f"{name} has column names and no rows; a map needs at least 2.")
        found = _surveys(name, table, features, nulls, choice.threshold, choice.client)
        layout = agree(
            found, choice.categories, listed=choice.features, where=name, threshold=choice.threshold
        )
    if layout is not None:
        features = list(layout.columns)
    if "" in features and choice.features is None:
        raise DataError(
            f"{name}: column {available.index('') + 1} has no name. If it is a row index (pandas writes one), "
            f"leave it out (to_csv(index=False)) or give it a name and set data.id to that; else name it."
        )
    words = {} if layout is None else layout.words
    there = set(available)
    absent = [feature for feature in features if feature not in there]
    for feature in absent:
        table = table.append_column(feature, _nothing(table.num_rows))
    numbers = [feature for feature in features if feature not in words]
    _refuse_text(name, table, numbers, loaded.locate, nulls)
    label, client, identity, marks = (
        None if column is None else (column, *_cells(name, column, table[column]))
        for column in (choice.label, choice.client, choice.id, choice.marks)
    )
    used, listed = {*features, *choice.named.values()}, set(default)
    tables = [table]
    del table
    matrix, strange = _matrix(name, tables, features, words, nulls)
    return Columns(
        name=name,
        matrix=matrix,
        features=tuple(features) if layout is None else layout.features,
        label=None if label is None else encode(*label),
        client=None if client is None else encode(*client),
        identity=None if identity is None else identify(*identity),
        locate=loaded.locate,
        marks=None if marks is None else encode(*marks),
        unread={
            column: NOT_LISTED if column in listed else "an index that pandas stored"
            for column in available
            if column not in used
        }
        | ({} if layout is None else dict(layout.left_out)),
        words=words,
        strange=strange,
        absent=tuple(absent),
        first=loaded.first,
        agreement=None if layout is None else layout.agreement,
    )


def survey_csv(path: Path, choice: Choice, progress: Progress = unheard) -> Survey:
    """What the columns of a CSV file hold that would be features, of those listed as many as it has."""
    return _surveyed(_csv(path, progress), choice)


def survey_parquet(path: Path, choice: Choice) -> Survey:
    """What the columns of a Parquet file hold that would be features, of those listed as many as it has."""
    return _surveyed(_parquet(path), choice)


def _surveyed(loaded: _Loaded, choice: Choice) -> Survey:
    candidates = _candidates(loaded.name, loaded.table, choice, loaded.default)
    if choice.categories == "error":  # then no row decides what is mapped
        return Survey(dict.fromkeys(candidates, "number"))
    (found,) = _surveys(loaded.name, loaded.table, candidates, loaded.nulls, choice.threshold)
    return found


def _candidates(name: str, table: Any, choice: Choice, default: Sequence[str]) -> list[str]:
    refuse_repeats(table.column_names, where=name, remedy="give every column a name of its own")
    for knob, column in choice.named.items():
        require(column, table.column_names, knob=knob, where=name)
    if choice.features is None:
        return choice.pick_features(name, table.column_names, default)
    there = set(table.column_names)
    return [feature for feature in choice.features if feature in there]


def _surveys(
    name: str,
    table: Any,
    features: Sequence[str],
    nulls: frozenset[str],
    threshold: Threshold,
    client: str | None = None,
) -> list[Survey]:
    """Return what each site tells of its columns; without a column that names the sites the table is one site.

    Whether a column is text, numbers or dates follows from the whole table, whose columns have one type each.
    """
    sites = _rows_of_sites(name, table, client)
    kinds: list[dict[str, Kind]] = [{} for _ in sites]
    words: list[dict[str, tuple[str, ...]]] = [{} for _ in sites]
    for feature in features:
        whole, texts = _kind(name, feature, table[feature], nulls)
        for place, rows in enumerate(sites):
            counts = Counter() if texts is None else Counter(texts[rows].tolist())
            del counts[""]
            kind = kinds[place][feature] = kind_of_words(counts) if whole in TEXT_KINDS else whole
            if told := words_to_tell(counts, kind, threshold):
                words[place][feature] = told
    return [Survey(*found) for found in zip(kinds, words, strict=True)]


def _rows_of_sites(name: str, table: Any, client: str | None) -> list[Any]:
    """Return which rows of a table are each site's; rows without a site are no site's."""
    if client is None:
        return [slice(None)]
    owners = encode(client, *_cells(name, client, table[client]))
    return [np.flatnonzero(owners.codes == site) for site in range(len(owners.names))]


def _kind(
    name: str, feature: str, stored: Any, nulls: frozenset[str]
) -> tuple[Kind, NDArray[np.str_] | None]:
    """Return what a column holds, and where it is text its cells, empty where a value is missing."""
    import pyarrow as pa

    kind = _plain_type(stored.type)
    if stored.null_count == len(stored):
        return "empty", None
    if pa.types.is_temporal(kind):
        return "date", None
    if not _is_number(kind):
        texts, missing = _texts(name, feature, stored, nulls)
        known = np.where(missing, "", texts)
        counts = Counter(known.tolist())
        del counts[""]
        return kind_of_texts(counts), known
    if named_as_numbering(feature):
        values, missing = _cells(name, feature, stored)
        return "numbering" if numbers_rows(values[~missing]) else "number", None
    return "number", None


def _texts(name: str, column: str, stored: Any, nulls: frozenset[str]) -> tuple[NDArray[Any], BoolArray]:
    """Cells of a column as text, and which are missing: empty, or spelt as a missing number is."""
    import pyarrow as pa

    values, missing = _cells(name, column, stored)
    if values.dtype.kind == "b":
        texts = np.where(values, "true", "false")
    elif values.dtype.kind != "U":
        texts = np.array([spell(value) for value in values], np.str_)
    else:
        texts = values
    if pa.types.is_null(stored.type) or not len(texts):
        return np.full(len(texts), "", np.str_), np.ones(len(texts), np.bool_)
    return texts, missing | np.isin(texts, list(nulls))


def _nothing(rows: int) -> Any:
    import pyarrow as pa

    return pa.nulls(rows, pa.float64())


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _is_number(kind.value_type)
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_null(kind)
    )


def _refuse_text(
    name: str, table: Any, features: Sequence[str], locate: Callable[[int], str], nulls: frozenset[str]
) -> None:
    """Raise a DataError that names the first cell of the first feature column that is not numbers."""
    textual = [feature for feature in features if not _is_number(table[feature].type)]
    if not textual:
        return
    column = textual[0]
    spelt = ((row, str(cell)) for row, cell in enumerate(map(_value, table[column])) if cell is not None)
    offending = first_text((row, text) for row, text in spelt if text not in nulls)
    found = (
        f"holds {_plain_type(table[column].type)} values"
        if offending is None
        else f"holds {offending[1][:60]!r} on {locate(offending[0])}"
    )
    numeric = [feature for feature in features if feature not in textual]
    also = f" (so, it seems, are {listing(textual[1:], 5)})" if textual[1:] else ""
    raise DataError(
        f"{name}: the feature column {column!r} is not numeric{also}: it {found}. Features must be numbers: "
        f"correct or empty that cell; name the column in clients.partition.column (with kind: by-column) if it says "
        f"whose a row is, in data.label if it is a class, in data.id if it tells rows apart; set data.categories: "
        f"one-hot to make zeros and ones of its words; or list the numeric columns in data.features: "
        f"{listing(numeric) or 'there is none'}."
    )


def _matrix(
    name: str,
    tables: list[Any],
    features: Sequence[str],
    words: Mapping[str, tuple[str, ...]],
    nulls: frozenset[str],
) -> tuple[NDArray[Any], dict[str, Sequence[str]]]:
    """The columns as one array, float32 where that holds their numbers exactly, NaN for empty cells.

    A column of words is one of zeros and ones for each; the other words that it holds come second. The one table of
    ``tables`` is let go of block by block as it is copied, so that there are never two of all.
    """
    import pyarrow as pa
    import pyarrow.compute as compute

    table = tables.pop()
    numbers = [feature for feature in features if feature not in words]
    narrow = {pa.bool_(), pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.float16(), pa.float32()}
    dtype = np.float32 if all(_plain_type(table[each].type) in narrow for each in numbers) else np.float64
    widths = [len(words.get(feature, "1")) for feature in features]
    place = dict(zip(features, np.cumsum([0, *widths[:-1]]), strict=True))
    # Of the table each block is let go of once it is copied.
    lacking = lacking_memory(table.num_rows * sum(widths) * np.dtype(dtype).itemsize - table.nbytes)
    if lacking is not None:
        raise DataError(
            f"{name} is a table of {table.num_rows} rows and {sum(widths)} features: {lacking} to hold them as numbers."
            " Take fewer rows or columns, or a machine with more memory."
        )
    matrix = np.empty((table.num_rows, sum(widths)), dtype)
    strange: dict[str, Sequence[str]] = {}
    for feature in words:
        texts, missing = _texts(name, feature, table[feature], nulls)
        found, others = indicators(texts, missing, words[feature])
        matrix[:, place[feature] : place[feature] + found.shape[1]] = found
        if others:
            strange[feature] = others
    blocks, start = table.select(numbers).to_batches()[::-1] if numbers else [], 0
    del table
    while blocks:
        block = blocks.pop()
        part, start = slice(start, start + block.num_rows), start + block.num_rows
        for feature, column in zip(numbers, block.columns, strict=True):
            if pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            # Unsafe only in rounding integers past 2**53, as every reader of numbers does.
            converted = compute.cast(column, pa.from_numpy_dtype(dtype), safe=False)
            matrix[part, place[feature]] = converted.to_numpy(zero_copy_only=False)
        del block, column, converted
        pa.default_memory_pool().release_unused()
    return matrix, strange


def _plain_type(kind: Any) -> Any:
    """Of the values of a column, however they are stored."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _cells(name: str, column: str, stored: Any) -> tuple[NDArray[Any], BoolArray]:
    """Return a key column of an Arrow table as values and the mask of its empty cells."""
    import pyarrow as pa
    import pyarrow.compute as compute

    _refuse_long_text(name, column, stored)
    if pa.types.is_dictionary(stored.type):
        stored = compute.cast(stored, stored.type.value_type)
    if pa.types.is_decimal(stored.type) or pa.types.is_null(stored.type):
        stored = compute.cast(stored, pa.float64())
    empty: BoolArray = compute.is_null(stored).to_numpy().astype(np.bool_)
    if _is_number(stored.type):
        raw = compute.fill_null(stored, False if pa.types.is_boolean(stored.type) else 0).to_numpy()
    else:
        try:
            text = compute.cast(stored, pa.string())
        except pa.ArrowException as error:
            raise DataError(
                f"{name}: the column {column!r} holds {stored.type} values that cannot be read as text "
                f"({error}); use numbers or UTF-8 text."
            ) from error
        raw = np.array(["" if cell is None else cell for cell in text.to_pylist()], dtype=np.str_)
    values, missing = cells(name, column, raw)
    return values, missing | empty


def _refuse_long_text(name: str, column: str, stored: Any) -> None:
    """Raise a DataError where the cells of a column of text, each as long as the longest, take more than is free."""
    import pyarrow as pa
    import pyarrow.compute as compute

    if not is_text(_plain_type(stored.type)):
        return
    texts = [part.dictionary if pa.types.is_dictionary(part.type) else part for part in stored.chunks]
    longest = max((compute.max(compute.binary_length(text)).as_py() or 0 for text in texts), default=0)
    lacking = lacking_memory(4 * longest * len(stored))
    if lacking is not None:
        raise DataError(
            f"{name}: the longest cell of the column {column!r} has {longest} bytes, and each of its {len(stored)}"
            f" cells takes as much room: {lacking}. Shorten that column's text, or leave the column out."
        )


def _value(cell: Any) -> Any:
    return cell.as_py()


def _looks_like_values(names: Sequence[str]) -> bool:
    """Whether a header is all numbers; counting 0, 1, 2, ... (pandas' own header) is a header."""
    if not all(map(reads_as_number, names)):
        return False
    return names not in ([str(i) for i in range(len(names))], [str(i + 1) for i in range(len(names))])


def _line_of(path: Path, dialect: Dialect, row: int) -> int:
    """Return the line where a data row starts: blank lines and line breaks inside quotes count too."""
    try:
        return next(line for record, (line, _) in enumerate(dialect.records(path)) if record == row + 1)
    except (csv.Error, StopIteration):  # Python's reader is the stricter one, as with very long cells
        return row + 2


def _why_not_csv(path: Path, dialect: Dialect, error: Exception) -> str:
    """Return what keeps a file from being a table: the first line of another width, else Arrow's reason."""
    try:
        records = dialect.records(path)
        _, header = next(records)
        ragged = next(((line, cells) for line, cells in records if len(cells) != len(header)), None)
    except (csv.Error, StopIteration):
        ragged = None
    if ragged is not None:
        return (
            f"{path} is not a table: line {ragged[0]} has {len(ragged[1])} cells where the header has "
            f"{len(header)}. Correct that line; a cell that holds the separator {dialect.separator!r} needs quotes."
        )
    return f"{path} cannot be read as a CSV file in UTF-8: {error}"
