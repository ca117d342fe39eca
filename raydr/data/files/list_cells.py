"""Columns of lists: numbers, such as embeddings, as one column for each place of the lists; words as text."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import numpy as np

from raydr.arrays import Float64Array
from raydr.data.files.arrow_cells import Loaded, is_number, plain_type
from raydr.parquet_files import is_text

_LIST = re.compile(r"\s*\[(.*)\]\s*", re.DOTALL)
_SEEN = 100  # cells, one of which shows whether a column of text has lists
_BETWEEN = re.compile(r"[\s,;]+")
_COMMA = re.compile(r"\d,\d")
_SPACED = re.compile(r"[\s;]")


def unfold_lists(loaded: Loaded, kept: Collection[str]) -> None:
    """Replace each column of lists of numbers, all of one length, by a column for each place: ``name.0``, ``name.1``.

    Lists are those of Arrow, or text such as ``[0.1, 0.2]``. An empty cell is empty in each of the columns. Columns of
    lists of different lengths stay, and so do those that are ``kept``. Lists of texts become text such as
    ``["a", "b"]``.
    """
    import pyarrow as pa

    for at, stored in enumerate(loaded.table.columns):
        if _has_words(stored.type):
            loaded.table = loaded.table.set_column(at, loaded.table.column_names[at], [_as_text(stored)])
    unfolded = {
        name: places
        for name, stored in zip(loaded.table.column_names, loaded.table.columns, strict=True)
        if name not in kept and (places := _places(stored)) is not None
    }
    if not unfolded:
        return
    names = {name: [f"{name}.{place}" for place in range(len(each))] for name, each in unfolded.items()}
    columns: list[tuple[str, Any]] = []
    for name, stored in zip(loaded.table.column_names, loaded.table.columns, strict=True):
        columns += zip(names.get(name, [name]), unfolded.get(name, [stored]), strict=True)
    loaded.table = pa.table([values for _, values in columns], names=[name for name, _ in columns])
    loaded.default = [new for name in loaded.default for new in names.get(name, [name])]
    loaded.notices += tuple(
        f"{name!r}: lists of {len(each)} numbers, read as the columns {each[0]!r} to {each[-1]!r}. To leave them out,"
        f" name {name!r} in data.exclude."
        for name, each in names.items()
    )


def _has_words(kind: Any) -> bool:
    """Return whether a type is that of lists of texts."""
    import pyarrow as pa

    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(lists and is_text(plain_type(kind.value_type)))


def _as_text(stored: Any) -> Any:
    """Return lists of texts as text such as ``["fever", "cough"]``."""
    import pyarrow as pa

    lists = stored.to_pylist()
    texts = [
        None
        if each is None
        else "[" + ", ".join('"' + word.replace('"', "'") + '"' for word in each if word) + "]"
        for each in lists
    ]
    return pa.array(texts, pa.string())


def _places(stored: Any) -> Any:
    """Return the numbers of each place (places, rows), NaN where a cell is empty; None if they are no such lists."""
    import pyarrow as pa
    import pyarrow.compute as compute

    kind = stored.type
    if is_text(plain_type(kind)):
        return _spelt(stored)
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not lists or not is_number(kind.value_type) or pa.types.is_null(kind.value_type):
        return None
    lengths = compute.list_value_length(stored)
    ends = compute.min_max(lengths).as_py()
    if not ends["min"] or ends["min"] != ends["max"]:
        return None
    there = compute.is_valid(stored).to_numpy()
    numbers = compute.list_flatten(stored.filter(compute.is_valid(stored)))
    single = kind.value_type in (pa.float16(), pa.float32())
    numbers = compute.cast(numbers, pa.float32() if single else pa.float64(), safe=False)
    found = np.full((len(stored), ends["min"]), np.nan, np.float32 if single else np.float64)
    found[there] = numbers.to_numpy().reshape(-1, ends["min"])
    return found.T


def _spelt(stored: Any) -> Float64Array | None:
    """Return the numbers of texts such as ``[0.1, 0.2]``, as :func:`_places`."""
    texts = [(text or "").strip() for text in stored.to_pylist()] if _may_be_lists(stored) else []
    rows: list[list[float]] = []
    for text in filter(None, texts):
        parts = _LIST.fullmatch(text)
        if parts is None or (_COMMA.search(text) and _SPACED.search(parts[1].strip())):
            return None  # in [0,5 0,25] a comma can be a decimal mark
        try:
            rows.append([float(part) for part in _BETWEEN.split(parts[1].strip(" ,;\n"))])
        except ValueError:
            return None
        if len(rows[-1]) != len(rows[0]):
            return None
    if not rows:
        return None
    found = np.full((len(texts), len(rows[0])), np.nan)
    found[[bool(text) for text in texts]] = rows
    return found.T


def _may_be_lists(stored: Any) -> bool:
    """Return whether the first text of a column is a list."""
    seen = (cell.as_py() for cell in stored.slice(0, _SEEN) if cell.is_valid)
    return _LIST.fullmatch(next(filter(str.strip, seen), "")) is not None
