"""Cells of an Arrow column, as text or as the numbers that the text spells. Errors name the column and the place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import BoolArray, Float64Array
from raydr.data.survey.circles import can_be_circular
from raydr.data.survey.clock import look_like_clock_digits
from raydr.data.survey.coding import Coding
from raydr.data.survey.column_names import days_or_years, named_as_time
from raydr.data.survey.columns import cells, listing, spell
from raydr.data.survey.notices import are_blocks
from raydr.data.survey.raw_cells import read_cells
from raydr.data.survey.written_numbers import MISSING_WORDS, Writing, has_leading_zero, mark_of, writing_of
from raydr.errors import DataError
from raydr.memory import lacking_memory
from raydr.parquet_files import is_text


@dataclass(kw_only=True)
class Loaded:
    """An Arrow table that was read from the file ``name``.

    ``default`` are its columns that are not an index. ``locate`` describes the place of a row. ``nulls`` are
    spellings of an empty cell in a column of text. ``first`` is the file's number of the first row, and ``part``
    is whether other rows of the file are in other tables. ``decimal`` is the file's decimal mark, ``commas`` whether
    its separator lets a comma be one, and ``notices`` say what was assumed about it.
    """

    name: str
    table: Any
    default: list[str]
    locate: Callable[[int], str]
    nulls: frozenset[str] = frozenset()
    first: int = 0
    part: bool = False
    decimal: str = "."
    commas: bool = False
    notices: tuple[str, ...] = ()

    def let_go(self) -> Any:
        """Return the table and release it."""
        table, self.table = self.table, None
        return table


def texts_of(name: str, column: str, stored: Any, nulls: frozenset[str]) -> tuple[NDArray[Any], BoolArray]:
    """Return the cells of a column as text, and which are missing: empty, or spelt like a missing number."""
    import pyarrow as pa

    values, missing = cells_of(name, column, stored)
    if values.dtype.kind == "b":
        texts = np.where(values, "true", "false")
    elif values.dtype.kind != "U":
        texts = np.array([spell(value) for value in values], np.str_)
    else:
        texts = values
    if pa.types.is_null(stored.type) or not len(texts):
        return np.full(len(texts), "", np.str_), np.ones(len(texts), np.bool_)
    spelt = [text for text in np.unique(texts).tolist() if text in nulls or text.casefold() in MISSING_WORDS]
    return texts, missing | np.isin(texts, spelt)


def with_numbers(loaded: Loaded, table: Any, column: str, unit: str) -> tuple[Any, list[str]]:
    """Return the table with a column of text as the numbers that it spells, and sentences on doubts.

    Raises
    ------
    DataError
        If the column has another unit, or a cell spells no number.
    """
    import pyarrow as pa

    stored, at = table[column], table.column_names.index(column)
    if is_number(stored.type):
        if unit and stored.null_count < len(stored):
            raise _other_unit(loaded.name, column, "no unit", unit)
        return table, []
    texts, missing = texts_of(loaded.name, column, stored, loaded.nulls)
    values, doubts = _spelt(loaded, column, texts, missing, (unit,))
    if values is None:
        return (table, []) if not missing.all() else (table.set_column(at, column, nothing(len(texts))), [])
    if any(map(has_leading_zero, np.unique(texts[~missing]).tolist())):
        doubts.append(
            f"{column!r}: whole numbers of different lengths, some with a leading zero such as 07, read as numbers. If"
            " they are codes, give them the kind words in a codebook: `raydr init --codebook FILE`."
        )
    return table.set_column(at, column, pa.array(values, from_pandas=True)), doubts


def numbers_of(loaded: Loaded, column: str, stored: Any, coding: Coding) -> tuple[Float64Array, list[str]]:
    """Return the numbers of a column (rows,), NaN where a cell is empty or a missing code, and sentences on doubts.

    The cells have the unit of the coding, or none.

    Raises
    ------
    DataError
        If the column has another unit, or a cell spells no number.
    """
    if is_number(stored.type):
        values, missing = cells_of(loaded.name, column, stored)
        doubts: list[str] = []
    else:
        texts, missing = texts_of(loaded.name, column, stored, loaded.nulls)
        missing |= np.isin(texts, coding.missing)
        found, doubts = _spelt(loaded, column, texts, missing, ("", coding.unit))
        if found is None:
            row = int(np.flatnonzero(~missing)[0]) if not missing.all() else None
            if row is not None:
                raise _no_number(loaded, column, str(texts[row]), row, coding.unit)
        values = np.full(len(texts), np.nan) if found is None else found
    numbers = np.where(missing, np.nan, values.astype(np.float64))
    numbers[np.isin(numbers, coding.missing_numbers)] = np.nan
    return numbers, doubts


def raw_cells_of(loaded: Loaded, column: str, stored: Any, coding: Coding) -> Float64Array:
    """Return the numbers and the codes of words of a column (rows, 2), each by its own cell."""
    if is_number(stored.type) and not coding.words and coding.cells is None:
        values, missing = cells_of(loaded.name, column, stored)
        numbers = values.astype(np.float64)
        numbers[missing | ~np.isfinite(numbers) | np.isin(numbers, coding.missing_numbers)] = np.nan
        return np.column_stack([numbers, np.full(len(numbers), np.nan)])
    texts, missing = texts_of(loaded.name, column, stored, loaded.nulls)
    return read_cells(np.where(missing, "", texts).tolist(), coding, commas=loaded.commas)


def _spelt(
    loaded: Loaded, column: str, texts: NDArray[Any], missing: BoolArray, units: Sequence[str]
) -> tuple[Float64Array | None, list[str]]:
    """Return the numbers that texts (rows,) spell with one of the units; None if they spell none."""
    different, inverse = np.unique(np.where(missing, "", texts), return_inverse=True)
    known = [text for text in different.tolist() if text]
    unit = units[-1]
    writing = writing_of(known, decimal=loaded.decimal)
    if writing is None and known:
        cells = list(map(Writing(unit=unit).reads, known))
        writing = writing_of([text for text, reads in zip(known, cells, strict=True) if reads])
    if writing is None:
        return None, []
    if writing.unit not in units:
        raise _other_unit(
            loaded.name, column, f"the unit {writing.unit!r}" if writing.unit else "no unit", unit
        )
    odd = next((row for row in np.flatnonzero(~missing) if not writing.reads(str(texts[row]))), None)
    if odd is not None:
        raise _no_number(loaded, column, str(texts[odd]), int(odd), unit)
    values = np.array([writing.read(text) if text else np.nan for text in different.tolist()])[inverse]
    doubts = _doubts_of_marks(column, known)
    doubt = (
        f"{column!r}: a comma or point could be a decimal mark or a thousands separator. It is read with {writing}. If"
        " that is wrong, write thousands without a separator."
    )
    if loaded.part and not writing.certain:  # other parts could decide otherwise
        raise DataError(f"{loaded.name}: {doubt}")
    return values, [doubt] * (not writing.certain) + doubts


def _doubts_of_marks(column: str, texts: Sequence[str]) -> list[str]:
    """Return sentences on numbers of a column that have a mark."""
    marks = set(map(mark_of, texts)) - {""}
    doubts = []
    if "(" in marks:
        doubts.append(
            f"{column!r}: numbers in parentheses are read as negative. If that is wrong, remove the parentheses."
        )
    if marks - {"("}:
        doubts.append(
            f"{column!r}: limits of detection, such as <0.5 or >90, are read by their numbers. To make them missing"
            " values, list them in missing of a codebook: `raydr init --codebook FILE`."
        )
    return doubts


def _no_number(loaded: Loaded, column: str, text: str, row: int, unit: str) -> DataError:
    return DataError(
        f"{loaded.name}: the column {column!r} spells numbers{f' with the unit {unit!r}' if unit else ''}, but it"
        f" holds {text[:60]!r} on {loaded.locate(row)}. Correct or empty that cell."
    )


def _other_unit(name: str, column: str, found: str, unit: str) -> DataError:
    return DataError(
        f"{name}: the column {column!r} has {found}, but {f'the unit {unit!r}' if unit else 'no unit'} in the other"
        " data. Write it with the same unit."
    )


def nothing(rows: int) -> Any:
    """Return a column of empty cells."""
    import pyarrow as pa

    return pa.nulls(rows, pa.float64())


def doubts_of_whole_numbers(table: Any, columns: Sequence[str]) -> list[str]:
    """Return sentences on columns of whole numbers that can be more than numbers, by their name and values."""
    import pyarrow as pa

    found: list[str | None] = []
    times, circles, blocks = list[str](), list[str](), list[str]()
    for column in columns:
        stored = table[column]
        if not (pa.types.is_integer(stored.type) or pa.types.is_floating(stored.type)):
            continue
        values = stored.drop_null().to_numpy()
        if not len(values) or (values != np.floor(values)).any():
            continue
        low, high = float(values.min()), float(values.max())
        found.append(days_or_years(column, low, high))
        circles += [column] * can_be_circular(column, low, high)
        times += [column] * look_like_clock_digits(values)
        blocks += [column] * (are_blocks(values) and not named_as_time(column))
    change = "in a codebook: `raydr init --codebook FILE`."
    doubts = (
        (
            times,
            "whole numbers such as 430 and 1545, mapped as numbers. If they are times of day, give them the kind time"
            f" with the unit hhmm {change}",
        ),
        (
            circles,
            "named like a circle, but mapped as numbers. If they are hours of the day or months of the year, give them"
            f" the kind circular with the period 24 or 12 {change}",
        ),
        (
            blocks,
            "whole numbers whose equal values stand in rows next to each other, as in a sorted table or in an identity"
            " of several rows. If they are an identity, name the column in data.exclude.",
        ),
    )
    return [each for each in found if each] + [
        f"{listing(names)}: {doubt}" for names, doubt in doubts if names
    ]


def can_be_dates(stored: Any) -> bool:
    """Return whether the least and largest of a column's whole numbers are such as 20210305."""
    import pyarrow as pa
    import pyarrow.compute as compute

    if not pa.types.is_integer(stored.type):
        return False
    ends = compute.min_max(stored).as_py()
    return bool(ends["min"] >= 19_000_101 and ends["max"] <= 21_001_231)


def is_number(kind: Any) -> bool:
    """Return whether a type holds numbers, plain or by codes."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return is_number(kind.value_type)
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_null(kind)
    )


def plain_type(kind: Any) -> Any:
    """Return the type of a column's values, decoded or not."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def cells_of(name: str, column: str, stored: Any) -> tuple[NDArray[Any], BoolArray]:
    """Return the values of a key column of an Arrow table, and the mask of its empty cells."""
    import pyarrow as pa
    import pyarrow.compute as compute

    _refuse_long_text(name, column, stored)
    if pa.types.is_dictionary(stored.type):
        stored = compute.cast(stored, stored.type.value_type)
    if pa.types.is_decimal(stored.type) or pa.types.is_null(stored.type):
        stored = compute.cast(stored, pa.float64())
    empty: BoolArray = compute.is_null(stored).to_numpy().astype(np.bool_)
    if is_number(stored.type):
        raw = compute.fill_null(stored, False if pa.types.is_boolean(stored.type) else 0).to_numpy()
    else:
        try:
            text = compute.cast(stored, pa.string())
        except pa.ArrowException as error:
            if pa.types.is_nested(stored.type):
                raise DataError(
                    f"{name}: the column {column!r} holds {stored.type} values. Only lists of numbers can be mapped, if"
                    " all have the same length. Change them, or name the column in data.exclude."
                ) from error
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

    if not is_text(plain_type(stored.type)):
        return
    texts = [part.dictionary if pa.types.is_dictionary(part.type) else part for part in stored.chunks]
    longest = max((compute.max(compute.binary_length(text)).as_py() or 0 for text in texts), default=0)
    lacking = lacking_memory(4 * longest * len(stored))
    if lacking is not None:
        raise DataError(
            f"{name}: the longest cell of the column {column!r} has {longest} bytes, and each of its {len(stored)}"
            f" cells takes that much memory: {lacking}. Shorten the text in that column, or drop the column."
        )
