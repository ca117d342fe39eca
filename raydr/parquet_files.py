"""Readers for Parquet files from untrusted sources.

A megabyte can hold a terabyte of text, if one word fills many rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raydr.memory import lacking_memory


def open_parquet(path: Path) -> Any:
    """Open a Parquet file. Text is read as dictionaries, each word once, as it is stored.

    Raises
    ------
    OSError, pyarrow.ArrowException
        If it cannot be opened as a Parquet file.
    """
    import pyarrow.parquet as parquet

    schema = parquet.read_schema(path)
    texts = [field.name for field in schema if is_text(field.type)]
    # With pre_buffer, the file's bytes stay in memory too: 1.5 more tables at the peak, and no faster.
    return parquet.ParquetFile(path, pre_buffer=False, read_dictionary=texts)


def read_parquet(path: Path) -> Any:
    """Read a Parquet file as an Arrow table with plain text.

    Raises
    ------
    OSError, pyarrow.ArrowException
        If it cannot be read as a Parquet file.
    ValueError
        If there is not enough memory for its text.
    """
    with open_parquet(path) as file:
        return with_plain_text(file.read())


def with_plain_text(table: Any) -> Any:
    """Return a table with its dictionaries as plain text.

    Raises
    ------
    ValueError
        If there is not enough memory for the text.
    """
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if not (pa.types.is_dictionary(field.type) and is_text(field.type.value_type)):
            continue
        column = table.column(place)
        lacking = lacking_memory(sum(map(_plain_bytes, column.chunks)))
        if lacking is not None:
            raise ValueError(f"the text of the column {field.name!r} needs too much memory: {lacking}")
        table = table.set_column(place, field.name, column.cast(field.type.value_type))
    return table


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text, or bytes that can be text."""
    import pyarrow as pa

    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(is_kind(kind) for is_kind in kinds)


def _plain_bytes(words: Any) -> int:
    """Return the bytes of a dictionary array as plain text, with each cell written out."""
    import pyarrow.compute as compute

    lengths = compute.cast(compute.binary_length(words.dictionary), "int64")
    return compute.sum(compute.take(lengths, words.indices)).as_py() or 0
