"""Features and keys of an Arrow table, and the survey of its columns. Every error names the column and the place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import Float64Array, FloatArray
from raydr.data.files.arrow_cells import (
    Loaded,
    can_be_dates,
    cells_of,
    doubts_of_whole_numbers,
    is_number,
    nothing,
    numbers_of,
    plain_type,
    raw_cells_of,
    texts_of,
    with_numbers,
)
from raydr.data.files.list_cells import unfold_lists
from raydr.data.survey.categories import (
    LISTS,
    WHY,
    WORDS,
    Kind,
    Survey,
    agree,
    are_few,
    common_words,
    indicators,
    kind_of_codes,
    kind_of_numbers,
    kind_of_texts,
    kind_of_words,
)
from raydr.data.survey.circles import period_named
from raydr.data.survey.coding import Coding, recognised
from raydr.data.survey.column_names import (
    named_as_categories,
    named_as_duration,
    named_as_identity,
    named_as_numbering,
    named_as_time,
)
from raydr.data.survey.columns import (
    EXCLUDED,
    LEFT_OUT,
    NAMELESS,
    NOT_LISTED,
    Choice,
    Columns,
    encode,
    first_text,
    identify,
    letters,
    listing,
    refuse_repeats,
    require,
)
from raydr.data.survey.doubtful_words import of_words
from raydr.data.survey.layout import Layout
from raydr.data.survey.raw_cells import raw_layout
from raydr.data.survey.site_names import join_spellings
from raydr.data.survey.word_lists import counts_of_words, indicators_of, words_of
from raydr.data.survey.written_numbers import are_padded, mark_of, writing_of
from raydr.errors import DataError, did_you_mean
from raydr.memory import lacking_memory


def columns_of(loaded: Loaded, choice: Choice) -> Columns:
    """Pick the columns of a table, and release the table.

    Raises
    ------
    DataError
        If its columns cannot be used as ``choice`` asks.
    """
    unfold_lists(loaded, _whole(choice))
    name, default, nulls, table = loaded.name, loaded.default, loaded.nulls, loaded.let_go()
    available = list(table.column_names)
    refuse_repeats(
        available, where=name, remedy="give every column its own name (in a CSV file, in the header line)"
    )
    for knob, column in choice.named.items():
        require(column, available, knob=knob, where=name)
    features = choice.pick_features(name, available, default)
    layout, codebook = choice.layout, choice.codebook
    if codebook is not None:
        if layout is None:
            codebook.require_columns(available, name)
        codebook.require_roles(available, choice.named, choice.features)
    if layout is None and choice.cells:
        layout = raw_layout(features, codebook)
    if layout is None and choice.surveyed:
        if not table.num_rows:
            raise DataError(f"{name} has column names but no rows. A map needs at least 2 rows.")
        layout = agree(
            _surveys(loaded, table, features, choice),
            choice.categories,
            listed=choice.features,
            where=name,
            threshold=choice.threshold,
            codebook=codebook,
        )
    if layout is not None:
        features = list(layout.columns)
    if "" in features and choice.features is None:
        raise DataError(
            f"{name}: column {available.index('') + 1} has no name. If it is a row index (pandas writes one), "
            f"drop it (to_csv(index=False)), or name it and set data.id to that name. Otherwise, name it."
        )
    layout = layout or Layout(tuple(features))
    words = layout.words
    there = set(available)
    absent = [feature for feature in features if feature not in there]
    for feature in absent:
        table = table.append_column(feature, nothing(table.num_rows))
    numbers = [feature for feature in features if feature not in words and feature not in layout.codings]
    doubts = list(loaded.notices)
    for column, unit in layout.units.items():
        if column in there and column in numbers:
            table, doubt = with_numbers(loaded, table, column, unit)
            doubts += doubt
    _refuse_text(name, table, numbers, loaded.locate, nulls, surveyed=choice.surveyed)
    label, time, client, identity, marks = (
        None if column is None else (column, *cells_of(name, column, table[column]))
        for column in (choice.label, choice.time, choice.client, choice.id, choice.marks)
    )
    used, listed = {*features, *choice.named.values()}, set(default)
    strict = frozenset() if codebook is None or choice.alike is not None else frozenset(codebook.codings)
    tables = [table]
    del table
    if choice.alike is None and not choice.cells:
        doubts += of_words(words, strict)
        doubts += doubts_of_whole_numbers(tables[0], numbers) if choice.surveyed else []
        doubts += [
            f"{column!r}: {reason}, so it is left out. To map it, give it the kind number in a codebook: `raydr init"
            " --codebook FILE`."
            for column, reason in layout.left_out.items()
            if reason == WHY["compact date"]
        ]
        doubts += recognised(
            {column: coding for column, coding in layout.codings.items() if column not in strict}
        )
    matrix, strange, doubt = _matrix(loaded, tables, layout, strict)
    if choice.layout is None and not choice.cells:
        known = dict(words) | {
            column: coding.words for column, coding in layout.codings.items() if coding.kind == "list"
        }
        for column in strict & strange.keys() & known.keys():
            _refuse_misspelt(name, column, known[column], matrix[:, layout.places[column]], strange[column])
    return Columns(
        name=name,
        matrix=matrix,
        features=layout.features,
        label=None if label is None else encode(*label),
        time=None if time is None else encode(*time),
        client=None if client is None else encode(*client),
        identity=None if identity is None else identify(*identity),
        locate=loaded.locate,
        marks=None if marks is None else encode(*marks),
        unread={
            column or NAMELESS: EXCLUDED
            if column in choice.exclude
            else LEFT_OUT
            if codebook is not None and column in codebook.left_out
            else NOT_LISTED
            if column in listed
            else "an index that pandas stored"
            for column in available
            if column not in used
        }
        | dict(layout.left_out),
        words=words,
        strange=strange,
        units=layout.units,
        codings=layout.codings,
        doubts=(*doubts, *doubt),
        absent=tuple(absent),
        first=loaded.first,
        agreement=layout.agreement,
    )


def survey_of(loaded: Loaded, choice: Choice) -> Survey:
    """Return what the candidate feature columns of a table hold. Listed columns that it does not have are skipped."""
    unfold_lists(loaded, _whole(choice))
    candidates = _candidates(loaded.name, loaded.table, choice, loaded.default)
    if choice.cells or not choice.surveyed:  # then the rows do not decide which columns are mapped
        return Survey(dict.fromkeys(candidates, "number"))
    if choice.codebook is not None:
        choice.codebook.require_roles(loaded.table.column_names, choice.named, choice.features)
    (found,) = _surveys(loaded, loaded.table, candidates, choice)
    return found


def _whole(choice: Choice) -> set[str]:
    """Return the columns whose lists are not unfolded, because something else is known about them."""
    book = () if choice.codebook is None else choice.codebook.by_name
    return {*choice.named.values(), *choice.exclude, *book}


def _candidates(name: str, table: Any, choice: Choice, default: Sequence[str]) -> list[str]:
    refuse_repeats(table.column_names, where=name, remedy="give every column its own name")
    for knob, column in choice.named.items():
        require(column, table.column_names, knob=knob, where=name)
    if choice.features is None:
        return choice.pick_features(name, table.column_names, default)
    there = set(table.column_names)
    return [feature for feature in choice.features if feature in there]


def _surveys(loaded: Loaded, table: Any, features: Sequence[str], choice: Choice) -> list[Survey]:
    """Return what each site reports about its columns. Without a column of sites, the table is one site.

    Whether a column is text, numbers or dates follows from the whole table, because each column has one type. A site
    reports nothing about columns that the codebook knows, except that one is empty.
    """
    sites, threshold = _rows_of_sites(loaded.name, table, choice), choice.threshold
    known = {} if choice.codebook is None else choice.codebook.by_name
    kinds: list[dict[str, Kind]] = [{} for _ in sites]
    words: list[dict[str, tuple[str, ...]]] = [{} for _ in sites]
    units: list[dict[str, str]] = [{} for _ in sites]
    for feature in features:
        row = known.get(feature)
        unit: str | None = None
        texts: NDArray[np.str_] | None = None
        if row is not None and row.finds_words:
            cells, missing = texts_of(loaded.name, feature, table[feature], loaded.nulls)
            texts = np.where(missing | np.isin(cells, row.missing), "", cells)
            whole: Kind = "number"
        elif choice.categories == "error" or (row is not None and row.kind is not None):
            whole = "empty" if table[feature].null_count == table.num_rows else "number"
        else:
            whole, texts, unit = _kind(loaded, feature, table[feature])
        for place, rows in enumerate(sites):
            counts = Counter() if texts is None else Counter(texts[rows].tolist())
            del counts[""]
            if row is not None and row.kind == "list":
                counts = counts_of_words(counts, row.unit or "")
            elif whole in LISTS:
                counts = counts_of_words(counts, LISTS[whole])
            kind = kind_of_words(counts) if whole in WORDS else whole
            kind = kind_of_codes(counts) if whole == "code" else kind
            if unit is not None and counts:
                if unit and sum(counts.values()) < threshold.rows:  # few rows reveal no text of theirs
                    kind = "few"
                else:
                    units[place][feature] = unit
            elif unit is not None:
                kind = "empty"
            kinds[place][feature] = kind
            if common := common_words(
                counts, "text" if row is not None and row.finds_words else kind, threshold
            ):
                words[place][feature] = common
    return [Survey(*found) for found in zip(kinds, words, units, strict=True)]


def _rows_of_sites(name: str, table: Any, choice: Choice) -> list[Any]:
    """Return the rows of each site. Rows without a site belong to none."""
    if choice.client is None:
        return [slice(None)]
    owners = encode(choice.client, *cells_of(name, choice.client, table[choice.client]))
    owners = join_spellings(owners) if choice.join_spellings else owners
    return [np.flatnonzero(owners.codes == site) for site in range(len(owners.names))]


def _kind(loaded: Loaded, feature: str, stored: Any) -> tuple[Kind, NDArray[np.str_] | None, str | None]:
    """Return what a column holds.

    If it is text, return its cells too, empty where a value is missing. If its text spells numbers, return also
    their unit.
    """
    import pyarrow as pa

    kind = plain_type(stored.type)
    if stored.null_count == len(stored):
        return "empty", None, None
    if pa.types.is_time(kind):
        return "duration" if named_as_duration(feature) else "time", None, None
    if pa.types.is_temporal(kind):
        return "date", None, None
    if not is_number(kind):
        texts, missing = texts_of(loaded.name, feature, stored, loaded.nulls)
        known = np.where(missing, "", texts)
        counts = Counter(known.tolist())
        del counts[""]
        marks = sum(bool(mark_of(text)) for text in counts)  # few words can be classes, such as <18 and >65
        marked = 2 * marks < len(counts) and not are_few(counts)
        codes = are_padded(counts) and not named_as_time(feature)
        writing = None if codes else writing_of(counts, decimal=loaded.decimal, marked=marked)
        if writing is None:
            return _kind_of_texts(feature, counts), known, None
        values = np.array([writing.read(text) for text in counts])
        values = np.repeat(values, list(counts.values()))
        found = kind_of_numbers(feature, values[np.isfinite(values)])
        return found, known, None if found == "code" else writing.unit
    named = named_as_identity(feature) or named_as_numbering(feature) or named_as_categories(feature)
    if named or period_named(feature) is not None or can_be_dates(stored):
        values, missing = cells_of(loaded.name, feature, stored)
        found = kind_of_numbers(feature, values[~missing])
        if found == "code":
            texts, missing = texts_of(loaded.name, feature, stored, loaded.nulls)
            return found, np.where(missing, "", texts), None
        return found, None, None
    return "number", None, None


def _kind_of_texts(feature: str, counts: Mapping[str, int]) -> Kind:
    """Return what a column of text holds, by its name and the number of rows with each value."""
    kind = kind_of_texts(counts)
    if kind == "time" and named_as_duration(feature):
        return "duration"
    named = named_as_duration(feature) or named_as_categories(feature) or named_as_identity(feature)
    if kind == "hhmm" and (named or named_as_numbering(feature)):
        return kind_of_words(counts)
    if kind not in ("number", "mixture", "text") or len(counts) <= 2 or not named_as_identity(feature):
        return kind
    # A patient or a person can be a kind of one. An id is none.
    return "numbering" if kind != "text" or letters(feature).endswith(("id", "ids")) else kind


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
    textual = [feature for feature in features if not is_number(table[feature].type)]
    if not textual:
        return
    column = textual[0]
    cells = (cell.as_py() for cell in table[column])
    spelt = ((row, str(cell)) for row, cell in enumerate(cells) if cell is not None)
    offending = first_text((row, text) for row, text in spelt if text not in nulls)
    found = (
        f"holds {plain_type(table[column].type)} values"
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
    loaded: Loaded, tables: list[Any], layout: Layout, strict: Collection[str]
) -> tuple[NDArray[Any], dict[str, Sequence[str]], list[str]]:
    """Return the columns as one array, with NaN for empty cells, in float32 if that holds the numbers exactly.

    A column of words becomes one 0/1 column per word. The second value is the other words that such columns
    hold: they are errors in the columns ``strict``. The third value is sentences on doubts. The table in ``tables`` is
    released block by block while it is copied, so that memory never holds it twice.
    """
    import pyarrow as pa
    import pyarrow.compute as compute

    table, places, words = tables.pop(), layout.places, layout.words
    coded = [column for column in layout.columns if column in layout.codings and column not in words]
    numbers = [column for column in layout.columns if column not in words and column not in layout.codings]
    narrow = {pa.bool_(), pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.float16(), pa.float32()}
    kinds = {column: layout.codings[column].kind for column in coded}
    exact = numbers + [column for column in coded if kinds[column] == "number"]
    rounded = set(kinds.values()) - {"number", "ordinal"}
    single = not rounded and all(plain_type(table[each].type) in narrow for each in exact)
    dtype = np.float32 if single else np.float64
    width = len(layout.features)
    # Each block of the table is released after it is copied.
    lacking = lacking_memory(table.num_rows * width * np.dtype(dtype).itemsize - table.nbytes)
    if lacking is not None:
        raise DataError(
            f"{loaded.name} is a table of {table.num_rows} rows and {width} features. To hold it as numbers, {lacking}."
            " Use fewer rows or columns, or a machine with more memory."
        )
    matrix = np.empty((table.num_rows, width), dtype)
    strange: dict[str, Sequence[str]] = {}
    doubts: list[str] = []
    for column, each in words.items():
        texts, missing = texts_of(loaded.name, column, table[column], loaded.nulls)
        if column in layout.codings:
            missing |= np.isin(texts, layout.codings[column].missing)
        matrix[:, places[column]], others = indicators(texts, missing, each)
        if others:
            strange[column] = others
    for column in coded:
        values, others, doubt = _coded(
            loaded, column, table[column], layout.codings[column], column in strict
        )
        matrix[:, places[column]] = values
        doubts += doubt
        if others:
            strange[column] = others
    blocks, start = table.select(numbers).to_batches()[::-1] if numbers else [], 0
    del table
    while blocks:
        block = blocks.pop()
        part, start = slice(start, start + block.num_rows), start + block.num_rows
        for feature, stored in zip(numbers, block.columns, strict=True):
            if pa.types.is_dictionary(stored.type):
                stored = stored.dictionary_decode()
            # Unsafe only in rounding integers above 2**53, as every reader of numbers does.
            converted = compute.cast(stored, pa.from_numpy_dtype(dtype), safe=False)
            matrix[part, places[feature].start] = converted.to_numpy(zero_copy_only=False)
        del block, stored, converted
        pa.default_memory_pool().release_unused()
    return matrix, strange, doubts


def _refuse_misspelt(
    name: str, column: str, words: Sequence[str], found: FloatArray, others: Sequence[str]
) -> None:
    """Raise a DataError if no row has a word of the codebook, but rows have a similar one.

    ``found`` (rows, words) has a 1 where a row has a word. ``others`` are the other words of the column.
    """
    unused = [word for word, there in zip(words, (found == 1).any(axis=0), strict=True) if not there]
    odd = next((word for word in unused if did_you_mean(word, others)), None)
    if odd is not None:
        raise DataError(
            f"{name}: no row has {odd!r} in the column {column!r}, a word in data.codebook"
            f"{did_you_mean(odd, others)}. Correct or remove the word."
        )


def _coded(
    loaded: Loaded, column: str, stored: Any, coding: Coding, strict: bool
) -> tuple[Float64Array, tuple[str, ...], list[str]]:
    """Return a column's features (rows, features), its other words, and sentences on doubts.

    Raises
    ------
    DataError
        If a cell does not fit the coding. If not ``strict``, other words of an ordered column are missing values.
    """
    doubts: list[str] = []
    if coding.kind == "cell":
        return raw_cells_of(loaded, column, stored, coding), (), doubts
    if coding.as_text:
        texts, missing = texts_of(loaded.name, column, stored, loaded.nulls)
        missing |= np.isin(texts, coding.missing)
        different, inverse = np.unique(np.where(missing, "", texts), return_inverse=True)
        if coding.kind == "list":
            held = indicators_of(different.tolist(), coding.words, coding.unit)
            held[different == ""] = np.nan
            every = sorted(
                {word for text in different.tolist() for word in words_of(text, coding.unit)}
                - set(coding.words)
            )
            return held[inverse], tuple(every), doubts
        read = {text: coding.read(text, loaded.decimal) for text in different.tolist()}
        others = tuple(text for text, value in read.items() if text and value is None)
        if others and (strict or not coding.by_words):
            row = int(np.flatnonzero(texts == others[0])[0])
            raise DataError(
                f"{loaded.name}: the column {column!r} holds {others[0][:60]!r} on {loaded.locate(row)}, but it is read"
                f" as {coding}{did_you_mean(others[0], coding.words)}. Correct or empty that cell, or change the row of"
                " the column in data.codebook."
            )
        blank = (np.nan,) * (2 if coding.kind == "pair" else 1)
        values = np.array([blank if read[text] is None else read[text] for text in different.tolist()])[
            inverse
        ]
        return coding.features(values), others, doubts
    numbers, doubts = numbers_of(loaded, column, stored, coding)
    with np.errstate(invalid="ignore"):
        if coding.kind == "count" and (numbers < 0).any():
            row = int(np.flatnonzero(numbers < 0)[0])
            raise DataError(
                f"{loaded.name}: the column {column!r} is a count in data.codebook, but it is {numbers[row]:g} on"
                f" {loaded.locate(row)}. Correct or empty that cell, list the number in missing, or set kind to number."
            )
        low, high = (
            limit if limit is not None else outer
            for limit, outer in ((coding.low, -np.inf), (coding.high, np.inf))
        )
        if ((numbers < low) | (numbers > high)).any():
            doubts.append(
                f"{column!r}: some numbers are outside {low:g} to {high:g}, the limits in data.codebook. They are"
                " mapped as they are. Correct them, list a code for missing values in missing, or change the limits."
            )
    return coding.features(numbers), (), doubts
