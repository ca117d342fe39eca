"""Features and keys of an Arrow table, and the survey of its columns. Every error names the column and the place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
    EXCLUDED,
    NAMELESS,
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
from raydr.data.spelling import Threshold
from raydr.data.written_numbers import MISSING_WORDS, Writing, writing_of
from raydr.errors import DataError
from raydr.memory import lacking_memory
from raydr.parquet_files import is_text


@dataclass(kw_only=True)
class Loaded:
    """An Arrow table that was read from the file ``name``.

    ``default`` are its columns that are not an index. ``locate`` describes the place of a row. ``nulls`` are
    spellings of an empty cell in a column of text. ``first`` is the file's number of the first row, and ``part``
    is whether other rows of the file are in other tables. ``decimal`` is the file's decimal mark, and ``notices``
    say what was assumed about it.
    """

    name: str
    table: Any
    default: list[str]
    locate: Callable[[int], str]
    nulls: frozenset[str] = frozenset()
    first: int = 0
    part: bool = False
    decimal: str = "."
    notices: tuple[str, ...] = ()

    def let_go(self) -> Any:
        """Return the table and release it."""
        table, self.table = self.table, None
        return table


def columns_of(loaded: Loaded, choice: Choice) -> Columns:
    """Pick the columns of a table, and release the table.

    Raises
    ------
    DataError
        If its columns cannot be used as ``choice`` asks.
    """
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
    doubts = list(loaded.notices)
    for column, unit in {} if layout is None else layout.units.items():
        if column in there and column in numbers:
            table, doubt = _with_numbers(loaded, table, column, unit)
            doubts += doubt
    _refuse_text(name, table, numbers, loaded.locate, nulls, surveyed=choice.categories != "error")
    label, client, identity, marks = (
        None if column is None else (column, *_cells(name, column, table[column]))
        for column in (choice.label, choice.client, choice.id, choice.marks)
    )
    used, listed = {*features, *choice.named.values()}, set(default)
    tables = [table]
    del table
    if choice.alike is None:
        doubts += _numbers_among_words(words)
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
            column or NAMELESS: EXCLUDED
            if column in choice.exclude
            else NOT_LISTED
            if column in listed
            else "an index that pandas stored"
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


def survey_of(loaded: Loaded, choice: Choice) -> Survey:
    """Return what the candidate feature columns of a table hold. Listed columns that it does not have are skipped."""
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
    loaded: Loaded, table: Any, features: Sequence[str], threshold: Threshold, client: str | None = None
) -> list[Survey]:
    """Return what each site reports about its columns. Without a column of sites, the table is one site.

    Whether a column is text, numbers or dates follows from the whole table, because each column has one type.
    """
    sites = _rows_of_sites(loaded.name, table, client)
    kinds: list[dict[str, Kind]] = [{} for _ in sites]
    words: list[dict[str, tuple[str, ...]]] = [{} for _ in sites]
    units: list[dict[str, str]] = [{} for _ in sites]
    for feature in features:
        whole, texts, unit = _kind(loaded, feature, table[feature])
        for place, rows in enumerate(sites):
            counts = Counter() if texts is None else Counter(texts[rows].tolist())
            del counts[""]
            kind = kind_of_words(counts) if whole in WORDS else whole
            if unit is not None and counts:
                if unit and sum(counts.values()) < threshold.rows:  # few rows reveal no text of theirs
                    kind = "few"
                else:
                    units[place][feature] = unit
            elif unit is not None:
                kind = "empty"
            kinds[place][feature] = kind
            if common := common_words(counts, kind, threshold):
                words[place][feature] = common
    return [Survey(*found) for found in zip(kinds, words, units, strict=True)]


def _rows_of_sites(name: str, table: Any, client: str | None) -> list[Any]:
    """Return the rows of each site. Rows without a site belong to none."""
    if client is None:
        return [slice(None)]
    owners = encode(client, *_cells(name, client, table[client]))
    return [np.flatnonzero(owners.codes == site) for site in range(len(owners.names))]


def _kind(loaded: Loaded, feature: str, stored: Any) -> tuple[Kind, NDArray[np.str_] | None, str | None]:
    """Return what a column holds.

    If it is text, return its cells too, empty where a value is missing. If its text spells numbers, return also
    their unit.
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
        return "numbering" if alone and named_as_numbering(feature) else "number", known, writing.unit
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
    spelt = [text for text in np.unique(texts).tolist() if text in nulls or text.casefold() in MISSING_WORDS]
    return texts, missing | np.isin(texts, spelt)


def _with_numbers(loaded: Loaded, table: Any, column: str, unit: str) -> tuple[Any, list[str]]:
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
        raise _other_unit(
            loaded.name, column, f"the unit {writing.unit!r}" if writing.unit else "no unit", unit
        )
    odd = next((row for row in np.flatnonzero(~missing) if not writing.reads(str(texts[row]))), None)
    if odd is not None:
        raise DataError(
            f"{loaded.name}: the column {column!r} spells numbers{f' with the unit {unit!r}' if unit else ''}, but it"
            f" holds {str(texts[odd])[:60]!r} on {loaded.locate(int(odd))}. Correct or empty that cell."
        )
    values = np.array([writing.read(text) if text else np.nan for text in different.tolist()])[inverse]
    doubt = (
        f"{column!r}: a comma or point could be a decimal mark or a thousands separator. It is read with {writing}. If"
        " that is wrong, write thousands without a separator."
    )
    if loaded.part and not writing.certain:  # other parts could decide otherwise
        raise DataError(f"{loaded.name}: {doubt}")
    return table.set_column(at, column, pa.array(values, from_pandas=True)), [doubt] * (not writing.certain)


def _numbers_among_words(words: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a sentence on columns of words some of which are numbers, which could be numbers with typing errors."""
    half = [column for column, each in words.items() if 0 < sum(map(reads_as_number, each)) < len(each)]
    if not half:
        return []
    return [
        f"{listing(half)}: numbers and words, all read as words. If they are numbers, correct the other cells."
    ]


def _other_unit(name: str, column: str, found: str, unit: str) -> DataError:
    return DataError(
        f"{name}: the column {column!r} has {found}, but {f'the unit {unit!r}' if unit else 'no unit'} in the other"
        " data. Write it with the same unit."
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
    name: str,
    table: Any,
    features: Sequence[str],
    locate: Callable[[int], str],
    nulls: frozenset[str],
    *,
    surveyed: bool,
) -> None:
    """Raise a DataError that names the first cell of the first feature column that does not hold numbers.

    If columns were ``surveyed``, it is a cell to correct in a column of numbers.
    """
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
    remedy = "Correct or empty that cell, or name the column in data.exclude."
    if not surveyed:
        remedy += (
            " If the column names the owner of each row, use it as clients.partition.column (with kind: by-column). If"
            " it is a class, use it as data.label. If it identifies rows, use it as data.id. To make 0/1 columns of its"
            f" words, set data.categories: one-hot. Columns of numbers: {listing(numeric) or 'there is none'}."
        )
    also = f" (nor, it seems, are {listing(textual[1:], 5)})" if textual[1:] else ""
    raise DataError(
        f"{name}: the feature column {column!r} is not numeric{also}: it {found}. Features must be numbers. {remedy}"
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
