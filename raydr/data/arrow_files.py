"""Readers for CSV and Parquet files through Arrow. Every error names the column, the line and the value."""

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
    WORDS,
    Kind,
    Survey,
    agree,
    common_words,
    indicators,
    kind_of_texts,
    kind_of_words,
    named_as_numbering,
    numbers_rows,
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
from raydr.data.written_numbers import MISSING_WORDS, Writing, writing_of
from raydr.errors import DataError
from raydr.geometry.points import Progress, unheard
from raydr.memory import lacking_memory, size
from raydr.parquet_files import is_text, open_parquet

_LOGGER = logging.getLogger(__name__)

_BLOCK_CELLS = 2**23
"""Cells per block of a Parquet file."""


def read_csv(path: Path, choice: Choice, progress: Progress = unheard) -> Columns:
    """Read a CSV file with a header line, plain or packed by gzip. :class:`Dialect` detects the format.

    ``progress`` is in bytes.

    Empty cells are missing values in every column. In columns of numbers, NaN, NA, N/A, n/a, null, NULL and
    similar words are missing values too. In columns of text they are text: "NA" can be Namibia.

    Raises
    ------
    DataError
        If the file is not such a table, or its columns cannot be used as ``choice`` asks.
    """
    return _columns(_csv(path, progress), choice)


@dataclass(kw_only=True)
class _Loaded:
    """An Arrow table that was read from the file ``name``.

    ``default`` are its columns that are not an index. ``locate`` describes the place of a row. ``nulls`` are
    spellings of an empty cell in a column of text. ``first`` is the file's number of the first row. ``decimal``
    is the file's decimal mark.
    """

    name: str
    table: Any
    default: list[str]
    locate: Callable[[int], str]
    nulls: frozenset[str] = frozenset()
    first: int = 0
    decimal: str = "."

    def let_go(self) -> Any:
        """Return the table and release it."""
        table, self.table = self.table, None
        return table


def _csv(path: Path, progress: Progress = unheard) -> _Loaded:
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    dialect = Dialect.of(path)
    if dialect.encoding == "cp1252":
        _LOGGER.warning("%s is not UTF-8 text. It is read as cp1252 (Western Europe)", path.name)

    try:
        table = read_text_table(path, dialect, progress)
    except (pa.ArrowException, UnicodeError) as error:
        raise DataError(_why_not_csv(path, dialect, error)) from error
    names = [column.strip() for column in table.column_names]
    if _looks_like_values(names):
        raise DataError(
            f"{path.name} has no header: its first line holds the numbers {listing(names, 5)}. "
            f"Add a line with the column names above it."
        )
    nulls = frozenset(arrow_csv.ConvertOptions().null_values)

    def locate(row: int) -> str:
        return f"line {_line_of(path, dialect, row)}"

    return _Loaded(
        name=path.name,
        table=table.rename_columns(names),
        default=names,
        locate=locate,
        nulls=nulls,
        decimal=dialect.decimal,
    )


def read_parquet(path: Path, choice: Choice) -> Columns:
    """Read a Parquet file. An index that pandas stored is not a feature unless it is listed.

    Raises
    ------
    DataError
        If the file is not such a table, or its columns cannot be used as ``choice`` asks.
    """
    return _columns(_parquet(path), choice)


def read_parquet_blocks(path: Path, choice: Choice) -> Iterator[Columns]:
    """Read a Parquet file in blocks of rows, in the memory that its largest row group takes.

    A file without rows gives one empty block. Raises as :func:`read_parquet`.
    """
    import pyarrow as pa

    with _parquet_errors(path), open_parquet(path) as file:
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
    """Return the number of rows of a Parquet file. Raises as :func:`read_parquet`."""
    import pyarrow.parquet as parquet

    with _parquet_errors(path):
        return int(parquet.read_metadata(path).num_rows)


def _parquet(path: Path) -> _Loaded:
    import pyarrow as pa

    before = pa.total_allocated_bytes()
    with _parquet_errors(path), open_parquet(path) as file:
        _refuse_promises(path, file.metadata)
        batches = within_memory(_batches(file), before, path, lambda _: _unpacked_bytes(file.metadata))
        table = pa.Table.from_batches(list(batches), file.schema_arrow)
    return _Loaded(name=path.name, table=table, default=_no_index(table.schema), locate=partial(_row, 0))


def _batches(file: Any) -> Iterator[Any]:
    """Yield blocks of the rows of a Parquet file. A file without rows gives one empty block."""
    import pyarrow as pa

    schema = file.schema_arrow
    rows = min(max(_BLOCK_CELLS // max(len(schema), 1), 2**8), 2**17)
    if not file.metadata.num_rows:
        yield pa.RecordBatch.from_pylist([], schema)
    # Over several row groups at once, Arrow keeps everything that it has read of them.
    for group in range(file.num_row_groups):
        yield from file.iter_batches(rows, row_groups=[group])


_WIDTHS = {"INT64": 8, "DOUBLE": 8, "INT96": 8}
"""Bytes of a value in the table. Other types take 4, because they become float32 or a code for a word."""


def _refuse_promises(path: Path, metadata: Any) -> None:
    """Raise a DataError if the table that a footer describes takes more than the free memory."""
    groups = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    rows = max(metadata.num_rows, sum(groups))
    columns = [metadata.schema.column(column) for column in range(metadata.num_columns)]
    lacking = lacking_memory(rows * sum(_WIDTHS.get(column.physical_type, 4) for column in columns))
    if lacking is not None or min(groups, default=0) < 0:
        raise DataError(
            f"{path} cannot be read as a Parquet file: its footer gives {rows} rows of {len(columns)} columns in"
            f" {len(groups)} row groups, the largest of {max(groups, default=0)}, but the file has"
            f" {size(path.stat().st_size)}: {lacking or 'no file has such row groups'}. Use fewer rows or columns, or a"
            f" machine with more memory. To see what a run needs, run `raydr plan FILE --rows {rows}` on a file with"
            " some of the rows."
        )


def _unpacked_bytes(metadata: Any) -> int:
    return sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))


@contextmanager
def _parquet_errors(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path} cannot be read as a Parquet file: {reason}") from error


def _no_index(schema: Any) -> list[str]:
    """Return the columns that are not a pandas index."""
    index = (schema.pandas_metadata or {}).get("index_columns", [])
    return [column for column in schema.names if column not in index]


def _row(first: int, row: int) -> str:
    """Describe the place of a row of a part that starts at the source's row ``first``."""
    return f"row {first + row} (the first is row 0)"


def _columns(loaded: _Loaded, choice: Choice) -> Columns:
    """Pick the columns of a table, and release the table."""
    name, default, nulls, table = loaded.name, loaded.default, loaded.nulls, loaded.let_go()
    available = list(table.column_names)
    refuse_repeats(
        available, where=name, remedy="give every column its own name (in a CSV file, in the header line)"
    )
    for knob, column in choice.named.items():
        require(column, available, knob=knob, where=name)
    features = choice.pick_features(name, available, default)
    layout = choice.layout
    if layout is None and choice.categories != "error":
        if not table.num_rows:
            raise DataError(f"{name} has column names but no rows. A map needs at least 2 rows.")
        found = _surveys(loaded, table, features, choice.threshold, choice.client)
        layout = agree(
            found, choice.categories, listed=choice.features, where=name, threshold=choice.threshold
        )
    if layout is not None:
        features = list(layout.columns)
    if "" in features and choice.features is None:
        raise DataError(
            f"{name}: column {available.index('') + 1} has no name. If it is a row index (pandas writes one), "
            f"drop it (to_csv(index=False)), or name it and set data.id to that name. Otherwise, name it."
        )
    words = {} if layout is None else layout.words
    there = set(available)
    absent = [feature for feature in features if feature not in there]
    for feature in absent:
        table = table.append_column(feature, _nothing(table.num_rows))
    numbers = [feature for feature in features if feature not in words]
    doubts: list[str] = []
    for column, unit in {} if layout is None else layout.units.items():
        if column in there and column in numbers:
            table, doubt = _with_numbers(loaded, table, column, unit)
            doubts += doubt
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
        units={} if layout is None else layout.units,
        doubts=tuple(doubts),
        absent=tuple(absent),
        first=loaded.first,
        agreement=None if layout is None else layout.agreement,
    )


def survey_csv(path: Path, choice: Choice, progress: Progress = unheard) -> Survey:
    """Return what the candidate feature columns of a CSV file hold.

    Listed columns that it does not have are skipped.
    """
    return _surveyed(_csv(path, progress), choice)


def survey_parquet(path: Path, choice: Choice) -> Survey:
    """Return what the candidate feature columns of a Parquet file hold.

    Listed columns that it does not have are skipped.
    """
    return _surveyed(_parquet(path), choice)


def _surveyed(loaded: _Loaded, choice: Choice) -> Survey:
    candidates = _candidates(loaded.name, loaded.table, choice, loaded.default)
    if choice.categories == "error":  # then the rows do not decide which columns are mapped
        return Survey(dict.fromkeys(candidates, "number"))
    (found,) = _surveys(loaded, loaded.table, candidates, choice.threshold)
    return found


def _candidates(name: str, table: Any, choice: Choice, default: Sequence[str]) -> list[str]:
    refuse_repeats(table.column_names, where=name, remedy="give every column its own name")
    for knob, column in choice.named.items():
        require(column, table.column_names, knob=knob, where=name)
    if choice.features is None:
        return choice.pick_features(name, table.column_names, default)
    there = set(table.column_names)
    return [feature for feature in choice.features if feature in there]


def _surveys(
    loaded: _Loaded, table: Any, features: Sequence[str], threshold: Threshold, client: str | None = None
) -> list[Survey]:
    """Return what each site reports about its columns. Without a column of sites, the table is one site.

    Whether a column is text, numbers or dates follows from the whole table, because each column has one type.
    """
    sites = _rows_of_sites(loaded.name, table, client)
    kinds: list[dict[str, Kind]] = [{} for _ in sites]
    words: list[dict[str, tuple[str, ...]]] = [{} for _ in sites]
    units: dict[str, str] = {}
    for feature in features:
        whole, texts, unit = _kind(loaded, feature, table[feature])
        if unit is not None:
            units[feature] = unit
        for place, rows in enumerate(sites):
            counts = Counter() if texts is None else Counter(texts[rows].tolist())
            del counts[""]
            kind = kinds[place][feature] = kind_of_words(counts) if whole in WORDS else whole
            if common := common_words(counts, kind, threshold):
                words[place][feature] = common
    return [Survey(*found, units) for found in zip(kinds, words, strict=True)]


def _rows_of_sites(name: str, table: Any, client: str | None) -> list[Any]:
    """Return the rows of each site. Rows without a site belong to none."""
    if client is None:
        return [slice(None)]
    owners = encode(client, *_cells(name, client, table[client]))
    return [np.flatnonzero(owners.codes == site) for site in range(len(owners.names))]


def _kind(
    loaded: _Loaded, feature: str, stored: Any
) -> tuple[Kind, NDArray[np.str_] | None, str | None]:
    """Return what a column holds.

    If it is text, return its cells too, empty where a value is missing. If its text spells numbers, return their
    unit.
    """
    import pyarrow as pa

    kind = _plain_type(stored.type)
    if stored.null_count == len(stored):
        return "empty", None, None
    if pa.types.is_temporal(kind):
        return "date", None, None
    if not _is_number(kind):
        texts, missing = _texts(loaded.name, feature, stored, loaded.nulls)
        known = np.where(missing, "", texts)
        counts = Counter(known.tolist())
        del counts[""]
        writing = writing_of(counts, decimal=loaded.decimal)
        if writing is None:
            return kind_of_texts(counts), known, None
        values = np.array([writing.read(text) for text in counts])
        alone = max(counts.values()) == 1 and numbers_rows(values[np.isfinite(values)])
        return "numbering" if alone and named_as_numbering(feature) else "number", None, writing.unit
    if named_as_numbering(feature):
        values, missing = _cells(loaded.name, feature, stored)
        return "numbering" if numbers_rows(values[~missing]) else "number", None, None
    return "number", None, None


def _texts(name: str, column: str, stored: Any, nulls: frozenset[str]) -> tuple[NDArray[Any], BoolArray]:
    """Return the cells of a column as text, and which are missing: empty, or spelt like a missing number."""
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
    spelt = [
        text for text in np.unique(texts).tolist() if text in nulls or text.casefold() in MISSING_WORDS
    ]
    return texts, missing | np.isin(texts, spelt)


def _with_numbers(loaded: _Loaded, table: Any, column: str, unit: str) -> tuple[Any, list[str]]:
    """Return the table with a column of text as the numbers that it spells, and sentences on doubts.

    Raises
    ------
    DataError
        If the column has another unit, or a cell spells no number.
    """
    import pyarrow as pa

    stored, at = table[column], table.column_names.index(column)
    if _is_number(stored.type):
        if unit and stored.null_count < len(stored):
            raise _other_unit(loaded.name, column, "no unit", unit)
        return table, []
    texts, missing = _texts(loaded.name, column, stored, loaded.nulls)
    different, inverse = np.unique(np.where(missing, "", texts), return_inverse=True)
    known = [text for text in different.tolist() if text]
    writing = writing_of(known, decimal=loaded.decimal)
    if writing is None and known:
        cells = list(map(Writing(unit=unit).reads, known))
        writing = writing_of([text for text, reads in zip(known, cells, strict=True) if reads])
    if writing is None:
        return (table.set_column(at, column, _nothing(len(texts))), []) if not known else (table, [])
    if writing.unit != unit:
        raise _other_unit(loaded.name, column, f"the unit {writing.unit!r}" if writing.unit else "no unit", unit)
    odd = next((row for row in np.flatnonzero(~missing) if not writing.reads(str(texts[row]))), None)
    if odd is not None:
        raise DataError(
            f"{loaded.name}: the column {column!r} spells numbers{f' with the unit {unit!r}' if unit else ''}, but it"
            f" holds {str(texts[odd])[:60]!r} on {loaded.locate(int(odd))}. Correct or empty that cell."
        )
    values = np.array([writing.read(text) if text else np.nan for text in different.tolist()])[inverse]
    doubt = [] if writing.certain else [
        f"{column!r}: written so that a comma or point could be a decimal mark or a thousands separator. It is read with"
        f" {writing}. If that is wrong, write thousands without a separator."
    ]  # fmt: skip
    return table.set_column(at, column, pa.array(values, from_pandas=True)), doubt


def _other_unit(name: str, column: str, found: str, unit: str) -> DataError:
    return DataError(
        f"{name}: the column {column!r} has {found}, but {f'the unit {unit!r}' if unit else 'no unit'} in the other data."
        " Write it with the same unit."
    )


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
    """Raise a DataError that names the first cell of the first feature column that does not hold numbers."""
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
    also = f" (nor, it seems, are {listing(textual[1:], 5)})" if textual[1:] else ""
    raise DataError(
        f"{name}: the feature column {column!r} is not numeric{also}: it {found}. Features must be numbers. "
        f"Correct or empty that cell. If the column names the owner of each row, use it as clients.partition.column "
        f"(with kind: by-column). If it is a class, use it as data.label. If it identifies rows, use it as data.id. "
        f"To make 0/1 columns of its words, set data.categories: one-hot. Or list the numeric columns in data.features:"
        f" {listing(numeric) or 'there is none'}."
    )


def _matrix(
    name: str,
    tables: list[Any],
    features: Sequence[str],
    words: Mapping[str, tuple[str, ...]],
    nulls: frozenset[str],
) -> tuple[NDArray[Any], dict[str, Sequence[str]]]:
    """Return the columns as one array, with NaN for empty cells, in float32 if that holds the numbers exactly.

    A column of words becomes one 0/1 column per word. The second value is the other words that such columns
    hold. The table in ``tables`` is released block by block while it is copied, so that memory never holds it
    twice.
    """
    import pyarrow as pa
    import pyarrow.compute as compute

    table = tables.pop()
    numbers = [feature for feature in features if feature not in words]
    narrow = {pa.bool_(), pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.float16(), pa.float32()}
    dtype = np.float32 if all(_plain_type(table[each].type) in narrow for each in numbers) else np.float64
    widths = [len(words.get(feature, "1")) for feature in features]
    place = dict(zip(features, np.cumsum([0, *widths[:-1]]), strict=True))
    # Each block of the table is released after it is copied.
    lacking = lacking_memory(table.num_rows * sum(widths) * np.dtype(dtype).itemsize - table.nbytes)
    if lacking is not None:
        raise DataError(
            f"{name} is a table of {table.num_rows} rows and {sum(widths)} features. To hold it as numbers, {lacking}."
            " Use fewer rows or columns, or a machine with more memory."
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
            # Unsafe only in rounding integers above 2**53, as every reader of numbers does.
            converted = compute.cast(column, pa.from_numpy_dtype(dtype), safe=False)
            matrix[part, place[feature]] = converted.to_numpy(zero_copy_only=False)
        del block, column, converted
        pa.default_memory_pool().release_unused()
    return matrix, strange


def _plain_type(kind: Any) -> Any:
    """Return the type of a column's values, decoded or not."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _cells(name: str, column: str, stored: Any) -> tuple[NDArray[Any], BoolArray]:
    """Return the values of a key column of an Arrow table, and the mask of its empty cells."""
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
                f"({error}). Use numbers or UTF-8 text."
            ) from error
        raw = np.array(["" if cell is None else cell for cell in text.to_pylist()], dtype=np.str_)
    values, missing = cells(name, column, raw)
    return values, missing | empty


def _refuse_long_text(name: str, column: str, stored: Any) -> None:
    """Raise a DataError if a text column, with each cell as long as its longest, takes more than the free memory."""
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
            f" cells takes that much memory: {lacking}. Shorten the text in that column, or drop the column."
        )


def _value(cell: Any) -> Any:
    return cell.as_py()


def _looks_like_values(names: Sequence[str]) -> bool:
    """Whether a header is all numbers. A count such as 0, 1, 2, ... (pandas' default) is a header."""
    if not all(map(reads_as_number, names)):
        return False
    return names not in ([str(i) for i in range(len(names))], [str(i + 1) for i in range(len(names))])


def _line_of(path: Path, dialect: Dialect, row: int) -> int:
    """Return the line where a data row starts. Blank lines and line breaks inside quotes count too."""
    try:
        return next(line for record, (line, _) in enumerate(dialect.records(path)) if record == row + 1)
    except (csv.Error, StopIteration):  # Python's reader is stricter, for example with very long cells
        return row + 2


def _why_not_csv(path: Path, dialect: Dialect, error: Exception) -> str:
    """Return why a file is not a table: the first line of another width, or else Arrow's reason."""
    try:
        records = dialect.records(path)
        _, header = next(records)
        ragged = next(((line, cells) for line, cells in records if len(cells) != len(header)), None)
    except (csv.Error, StopIteration):
        ragged = None
    if ragged is not None:
        return (
            f"{path} is not a table: line {ragged[0]} has {len(ragged[1])} cells but the header has "
            f"{len(header)}. Correct that line. A cell that holds the separator {dialect.separator!r} needs quotes."
        )
    return f"{path} cannot be read as a CSV file in UTF-8: {error}"
