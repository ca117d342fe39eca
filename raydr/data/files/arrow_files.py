"""Readers for CSV and Parquet files through Arrow. Every error names the column, the line and the value."""

from __future__ import annotations

import csv
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from raydr.data.files.arrow_cells import Loaded
from raydr.data.files.arrow_columns import columns_of, survey_of
from raydr.data.files.dialect import Dialect
from raydr.data.files.header import TOTALS, distinct_names, looks_like_row
from raydr.data.files.text_tables import read_text_table, within_memory
from raydr.data.survey.categories import Survey
from raydr.data.survey.column_names import named_as_time
from raydr.data.survey.columns import Choice, Columns, listing
from raydr.data.survey.written_numbers import has_leading_zero
from raydr.errors import DataError
from raydr.geometry.points import Progress, unheard
from raydr.memory import lacking_memory, size
from raydr.parquet_files import is_text, open_parquet

_LOGGER = logging.getLogger(__name__)

_LEADING_ZERO = re.compile(rb"[,;\t|\n\"]0\d+[,;\t|\r\n\"]")
_SEEN = 100  # rows that show whether the header is a row
_BLOCK_CELLS = 2**23
"""Cells per block of a Parquet file."""


def read_csv(path: Path, choice: Choice, progress: Progress = unheard) -> Columns:
    """Read a CSV file with a header line, plain or packed by gzip. :class:`Dialect` detects the format.

    ``progress`` is in bytes.

    Empty cells are missing values in every column. In columns of numbers, NaN, NA, N/A, n/a, null, NULL and
    similar words are missing values too. In labels and names of sites they are text: "NA" can be Namibia.

    Raises
    ------
    DataError
        If the file is not such a table, or its columns cannot be used as ``choice`` asks.
    """
    return columns_of(_csv(path, choice, progress), choice)


def _csv(path: Path, choice: Choice, progress: Progress = unheard) -> Loaded:
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    dialect = Dialect.of(path)
    if dialect.encoding == "cp1252":
        _LOGGER.warning("%s is not UTF-8 text. It is read as cp1252 (Western Europe)", path.name)

    try:
        codes = _codes(path, dialect, choice)
        table = read_text_table(path, dialect, progress, codes)
        if (
            choice.layout is None
            and not choice.cells
            and choice.categories != "error"
            and (late := _late_codes(path, dialect, table))
        ):
            table = read_text_table(path, dialect, progress, [*codes, *late])
    except (pa.ArrowException, UnicodeError) as error:
        raise DataError(_why_not_csv(path, dialect, error)) from error
    spelt = list(map(_name, table.column_names))
    if looks_like_row(spelt, [cells for _, cells in islice(dialect.head(path, _SEEN), 1, None)]):
        raise DataError(
            f"{path.name} has no header: its first line holds {listing(spelt, 5)}, with numbers where the other lines"
            " have numbers. Add a line with the column names above it."
        )
    nulls = frozenset(arrow_csv.ConvertOptions().null_values)
    names = distinct_names(spelt)
    table = table.rename_columns(names)
    rows, total = _true_rows(table)
    notices = [str(dialect.header)] if str(dialect.header) else []
    if not dialect.certain:
        notices.append(
            "Commas are read as decimal marks, but all of them could separate thousands: 1,234 is 1.234."
        )
    if renamed := [name for name, before in zip(names, spelt, strict=True) if name != before]:
        notices.append(f"Columns with the name of another column are called {listing(renamed)}.")
    if rows < table.num_rows:
        why = f"a total, by its word {total!r}, or no values" if total else "no values"
        notices.append(f"Lines at the end that are not read as rows: {table.num_rows - rows} ({why}).")
        table = table.slice(0, rows)

    def locate(row: int) -> str:
        return f"line {_line_of(path, dialect, row)}"

    return Loaded(
        name=path.name,
        table=table,
        default=[name for name in names if name or not _numbers_all(table[""])],
        locate=locate,
        nulls=nulls,
        decimal=dialect.decimal,
        commas=dialect.separator != ",",
        notices=tuple(notices),
    )


def _name(cell: str) -> str:
    """Return the name of a column by its cell of the header."""
    return cell.strip().removeprefix("#").strip()


def _codes(path: Path, dialect: Dialect, choice: Choice) -> list[int]:
    """Return the columns of digits that can be codes, since some have leading zeros, as in zip codes: they are text."""
    if not choice.surveyed and not choice.cells and choice.layout is None:
        return []
    try:
        records = [cells for _, cells in dialect.head(path)]
    except csv.Error:
        return []
    if choice.cells and choice.layout is None:
        others = set(choice.named.values())
        return [place for place, cell in enumerate(records[0]) if _name(cell) not in others]
    codebook = {} if choice.codebook is None else choice.codebook.codings
    codings = codebook if choice.layout is None else choice.layout.codings
    spelt = {column for column, coding in codings.items() if coding.as_text}
    if choice.layout is not None:
        spelt |= set(choice.layout.words)
    named = [place for place, cell in enumerate(records[0]) if _name(cell) in spelt]
    if choice.layout is not None or choice.categories == "error":
        return named
    columns = zip_longest(*(cells[: len(records[0])] for cells in records[1:]), fillvalue="")
    return named + [
        place
        for place, column in enumerate(columns)
        if place not in named
        and any(map(has_leading_zero, column))
        and not named_as_time(_name(records[0][place]))
    ]


def _late_codes(path: Path, dialect: Dialect, table: Any) -> list[int]:
    """Return the columns of whole numbers that have a leading zero such as 07 somewhere in the file."""
    import pyarrow as pa

    whole = {
        place
        for place, column in enumerate(table.columns)
        if pa.types.is_integer(column.type) and not named_as_time(_name(table.column_names[place]))
    }
    found: set[int] = set()
    for line in dialect.lines_with(path, _LEADING_ZERO) if whole else ():
        cells = next(csv.reader([line], delimiter=dialect.separator), [])
        found |= {place for place in whole if place < len(cells) and has_leading_zero(cells[place])}
        if found == whole:
            break
    return sorted(found)


def _true_rows(table: Any) -> tuple[int, str | None]:
    """Return the number of rows before blank rows and a total at the end, and the word of the total.

    Blank rows further up stay: without them, rows would have other numbers than in the file.
    """
    import pyarrow.compute as compute

    stop = _without_blanks(table, table.num_rows)
    for column in (each for each in table.columns if is_text(each.type)) if stop > 2 else ():
        word = str(column[stop - 1].as_py() or "").strip()
        if word.casefold() in TOTALS and compute.sum(compute.equal(column, column[stop - 1])).as_py() == 1:
            return _without_blanks(table, stop - 1), word
    return stop, None


def _without_blanks(table: Any, stop: int) -> int:
    """Return the number of rows, of the first ``stop``, before blank ones at the end."""
    while stop and not any(
        column[stop - 1].is_valid and str(column[stop - 1]).strip() for column in table.columns
    ):
        stop -= 1
    return stop


def _numbers_all(column: Any) -> bool:
    """Return whether a column without a name numbers or names all rows, as an index that pandas writes."""
    import pyarrow.compute as compute

    if column.null_count or not len(column):
        return False
    return bool(compute.count_distinct(column).as_py() == len(column))


def read_parquet(path: Path, choice: Choice) -> Columns:
    """Read a Parquet file. An index that pandas stored is not a feature unless it is listed.

    Raises
    ------
    DataError
        If the file is not such a table, or its columns cannot be used as ``choice`` asks.
    """
    return columns_of(_parquet(path), choice)


def read_parquet_blocks(path: Path, choice: Choice) -> Iterator[Columns]:
    """Read a Parquet file in blocks of rows, in the memory that its largest row group takes.

    A file without rows gives one empty block. Raises as :func:`read_parquet`.
    """
    import pyarrow as pa

    with _parquet_errors(path), open_parquet(path) as file:
        schema, first = file.schema_arrow, 0
        for batch in _batches(file):
            table = pa.Table.from_batches([batch], schema)
            found = Loaded(
                name=path.name,
                part=True,
                table=table,
                default=_no_index(schema),
                locate=partial(_row, first),
                first=first,
            )
            first += table.num_rows
            del table
            yield columns_of(found, choice)


def rows_of_parquet(path: Path) -> int:
    """Return the number of rows of a Parquet file. Raises as :func:`read_parquet`."""
    import pyarrow.parquet as parquet

    with _parquet_errors(path):
        return int(parquet.read_metadata(path).num_rows)


def _parquet(path: Path) -> Loaded:
    import pyarrow as pa

    before = pa.total_allocated_bytes()
    with _parquet_errors(path), open_parquet(path) as file:
        _refuse_promises(path, file.metadata)
        batches = within_memory(_batches(file), before, path, lambda _: _unpacked_bytes(file.metadata))
        table = pa.Table.from_batches(list(batches), file.schema_arrow)
    return Loaded(name=path.name, table=table, default=_no_index(table.schema), locate=partial(_row, 0))


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


def survey_csv(path: Path, choice: Choice, progress: Progress = unheard) -> Survey:
    """Return what the candidate feature columns of a CSV file hold.

    Listed columns that it does not have are skipped.
    """
    return survey_of(_csv(path, choice, progress), choice)


def survey_parquet(path: Path, choice: Choice) -> Survey:
    """Return what the candidate feature columns of a Parquet file hold.

    Listed columns that it does not have are skipped.
    """
    return survey_of(_parquet(path), choice)


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
