"""Text of a known dialect as an Arrow table, in little more memory than the table takes.

Arrow finds out what a column holds by reading all of it, and keeps the text until then, several times the table. So
columns are read as what they hold at the beginning; one that turns out to hold more is read as the next wider kind of
number, and what is no number either is left to Arrow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from raydr.data.dialect import Dialect
from raydr.data.watching import read_watched
from raydr.geometry.points import Progress, unheard

_LEAST_BLOCK, _LARGEST_BLOCK, _OF_A_COLUMN = 2**21, 2**26, 2**14
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
        with arrow_csv.open_csv(unpacked(file), **options(types)) as reader:
            return pa.Table.from_batches(list(reader), reader.schema)

    def whole(file: BinaryIO) -> Any:
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
