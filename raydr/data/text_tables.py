"""Text of a known dialect as an Arrow table, in little more memory than the table takes.

Arrow finds out what a column holds by reading all of it, and keeps the text until then, several times the table. So
columns are read as what they hold at the beginning; one that turns out to hold more is read as the next wider kind of
number, and what is no number either is left to Arrow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from raydr.data.dialect import LONGEST_LINE, Dialect
from raydr.data.watching import read_watched
from raydr.errors import DataError
from raydr.geometry.points import Progress, unheard
from raydr.memory import available_memory_bytes, size

_LEAST_BLOCK, _LARGEST_BLOCK, _OF_A_COLUMN = 2**21, LONGEST_LINE, 2**14
"""Bytes that are read at once. Of 20,000 columns a small block holds few rows, and each block costs something by
column; of few, several blocks are in memory at a time."""
_TRIES = 20
_REFUSED = re.compile(r"In CSV column #(\d+): ")


def read_text_table(path: Path, dialect: Dialect, progress: Progress = unheard) -> Any:
    """The table that Arrow's reader makes of a file; ``progress`` is in bytes, and begins anew where a column is wider.

    Raises
    ------
    pyarrow.ArrowException, UnicodeError
        If it is no table.
    DataError
        If it takes more than half of the free memory.
    """
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    wider = {pa.null(): pa.int64(), pa.int64(): pa.float64()}
    columns = next((len(record) for _, record in dialect.records(path)), 0)

    def options(types: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return {
            "read_options": arrow_csv.ReadOptions(
                block_size=min(max(_LEAST_BLOCK, columns * _OF_A_COLUMN), _LARGEST_BLOCK),
                encoding="utf8" if dialect.encoding == "utf-8-sig" else dialect.encoding,
            ),
            # A quoted cell may hold a line break: slower to split among threads, but it is read right.
            "parse_options": arrow_csv.ParseOptions(delimiter=dialect.separator, newlines_in_values=True),
            "convert_options": arrow_csv.ConvertOptions(decimal_point=dialect.decimal, column_types=types),
        }

    def unpacked(file: BinaryIO) -> Any:
        return pa.CompressedInputStream(file, "gzip") if dialect.packed else file

    def streamed(file: BinaryIO) -> Any:
        before = pa.total_allocated_bytes()
        with arrow_csv.open_csv(unpacked(file), **options(types)) as reader:
            batches = within_memory(reader, before, path, dialect.text_bytes)
            return pa.Table.from_batches(list(batches), reader.schema)

    def whole(file: BinaryIO) -> Any:
        text = dialect.text_bytes(path)
        if text > available_memory_bytes() // 2:
            raise _too_large(path, text, text)
        return arrow_csv.read_csv(unpacked(file), **options())

    with path.open("rb") as file, arrow_csv.open_csv(unpacked(file), **options()) as reader:
        types = {field.name: field.type for field in reader.schema}
    for _ in range(_TRIES):
        try:
            return read_watched(path, streamed, progress)
        except pa.ArrowInvalid as error:
            refused = _REFUSED.match(str(error))
            name = list(types)[int(refused[1])] if refused else None
            if name is None or types[name] not in wider:
                break
            types[name] = wider[types[name]]
    return read_watched(path, whole, progress)


def within_memory(
    batches: Iterable[Any], before: int, path: Path, content: Callable[[Path], int]
) -> Iterator[Any]:
    """Yield batches of an Arrow table as long as all of them take at most half of the memory that is free at first.

    How large a table is cannot be told before it is unpacked. Half, since the rows of a run are in memory twice.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch
        Which the caller keeps.
    before : int
        Bytes that Arrow held before the file was opened.
    path : Path
        The file that they are read from.
    content : callable
        How many bytes the file holds, unpacked.

    Raises
    ------
    DataError
        If they take more.
    """
    import pyarrow as pa

    room = available_memory_bytes() // 2
    for batch in batches:
        taken = pa.total_allocated_bytes() - before
        if taken > room:
            raise _too_large(path, content(path), taken)
        yield batch


def _too_large(path: Path, content: int, taken: int) -> DataError:
    return DataError(
        f"{path} ({size(path.stat().st_size)}) holds {size(content)} unpacked, and as a table it takes {size(taken)} or"
        f" more, which is over half of the memory that is free here. Take fewer rows or columns, or a machine with more"
        " memory. A file with some of the rows tells `raydr plan FILE --rows N` what a run of all N needs."
    )
