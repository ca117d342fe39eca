"""Reader for text tables of a known format as Arrow tables, in little more memory than the table takes.

To infer types, Arrow reads a whole column and keeps its text until then, which takes several times the table.
So the types come from the start of the file. If a column does not fit its type later, the file is read again
with the next wider type of number. If it is not a number either, Arrow infers the types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from raydr.data.files.dialect import LONGEST_LINE, Dialect
from raydr.data.files.watching import read_watched
from raydr.errors import DataError
from raydr.geometry.points import Progress, unheard
from raydr.memory import available_memory_bytes, size

_LEAST_BLOCK, _LARGEST_BLOCK, _OF_A_COLUMN = 2**21, LONGEST_LINE, 2**14
"""Bytes to read at once. With 20,000 columns, a small block has few rows, and each block has a cost per column.
With few columns, several blocks are in memory at a time."""
_TRIES = 20
_REFUSED = re.compile(r"In CSV column #(\d+): ")


def read_text_table(
    path: Path, dialect: Dialect, progress: Progress = unheard, texts: Collection[int] = ()
) -> Any:
    """Read a text file as an Arrow table. ``progress`` is in bytes, and starts again if a column needs a wider type.

    The columns ``texts``, by position, are text even if all their cells are digits.

    Raises
    ------
    pyarrow.ArrowException, UnicodeError
        If it is not a table.
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
                skip_rows=dialect.header.line - 1,
                skip_rows_after_names=int(dialect.header.second is not None),
            ),
            # A quoted cell can hold a line break. This is slower to split among threads, but it is correct.
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
        return arrow_csv.read_csv(unpacked(file), **options({name: types[name] for name in spelt}))

    with path.open("rb") as file, arrow_csv.open_csv(unpacked(file), **options()) as reader:
        types = {field.name: field.type for field in reader.schema}
        spelt = [reader.schema.names[column] for column in texts]
        types |= dict.fromkeys(spelt, pa.string())
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
    """Yield batches of an Arrow table while all of them take at most half of the memory that is free at first.

    The size of a table is not known before it is unpacked. The limit is half, because a run holds its rows
    twice.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch
        Batches of a table. The caller keeps them.
    before : int
        Bytes that Arrow held before the file was opened.
    path : Path
        The file of the batches.
    content : callable
        Returns the bytes of the file, unpacked.

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
        f"{path} ({size(path.stat().st_size)}) holds {size(content)} unpacked. As a table it takes {size(taken)} or"
        f" more, which is over half of the free memory here. Use fewer rows or columns, or a machine with more memory."
        " To see what a run of N rows needs, run `raydr plan FILE --rows N` on a file with some of the rows."
    )
