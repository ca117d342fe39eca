"""Tables of rows in memory, checked as if they came from a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.data.catalogue import IN_MEMORY
from raydr.data.files.arrow_cells import Loaded
from raydr.data.files.arrow_columns import columns_of
from raydr.data.files.numpy_files import from_arrays
from raydr.data.loading import checked, complete_rows, with_a_class_for_none, with_names_for_none
from raydr.data.survey.codebook import Codebook
from raydr.data.survey.columns import Alike, Choice, Columns
from raydr.data.survey.layout import Layout
from raydr.data.survey.site_names import with_joined_sites
from raydr.data.table import Table
from raydr.errors import DataError
from raydr.sparse_rows import SparseRows

TIME = "data.time"
"""Name of the array with the time of each row. It is no name that a feature has."""


def in_memory(
    arrays: Mapping[str, NDArray[Any]],
    *,
    join_spellings: bool = False,
    cells: bool = False,
    fills: bool = True,
    for_map: bool = True,
) -> Table:
    """Check arrays in memory as if they came from an .npz file. They cannot be read again later.

    Parameters
    ----------
    arrays : mapping
        ``X`` (rows, features), and optionally ``feature_names``, ``y`` for labels, ``client`` for the owners
        and ``id`` for the identities of rows, and :data:`TIME`: see :func:`raydr.data.files.numpy_files.from_arrays`.
    join_spellings : bool
        Whether spellings of a site's name are one site.
    cells : bool
        Whether a survey finds what the columns hold: see :func:`raydr.data.load`.
    fills : bool
        Whether features can have gaps, which are filled in later.
    for_map : bool
        Whether these rows will be mapped, which takes two rows that differ.

    Returns
    -------
    Table
        The table. It can share memory with ``X``.

    Raises
    ------
    DataError
        As in :func:`raydr.data.load`.

    Examples
    --------
    >>> in_memory({"X": np.eye(3), "client": np.array(["north", "east", "east"])}).client_names
    ('east', 'north')
    """
    owner, identity, time = (name if name in arrays else None for name in ("client", "id", TIME))
    columns = from_arrays(IN_MEMORY, arrays, Choice(client=owner, id=identity, time=time))
    columns = with_names_for_none(columns)
    columns = with_joined_sites(columns) if join_spellings else columns
    return _checked(columns, cells=cells, fills=fills, for_map=for_map)


def in_frame(
    frame: Any,
    arrays: Mapping[str, NDArray[Any]],
    *,
    layout: Layout | None = None,
    codebook: Codebook | None = None,
    join_spellings: bool = False,
    cells: bool = False,
    fills: bool = True,
    for_map: bool = True,
) -> Table:
    """Check an Arrow table in memory as ``raydr map`` checks a file.

    Columns of words become zeros and ones, and numbers may be missing.

    Parameters
    ----------
    frame : pyarrow.Table of (rows, columns)
        The features, as a user has them: numbers, words, dates, with gaps.
    arrays : mapping
        ``y``, ``client``, ``id`` and :data:`TIME` as in :func:`in_memory`.
    layout : Layout, optional
        The layout of rows that are mapped already. Columns that it does not have are ignored.
    codebook : Codebook, optional
        How columns are read.
    join_spellings : bool
        Whether spellings of a site's name are one site.
    cells : bool
        Whether each cell is read by itself: see :func:`raydr.data.load`.
    fills : bool
        Whether features can have gaps, which are filled in later.
    for_map : bool
        Whether these rows will be mapped, which takes two rows that differ.

    Raises
    ------
    DataError
        As in :func:`raydr.data.load`.
    """
    owner, identity, time = (name if name in arrays else None for name in ("client", "id", TIME))
    sites = owner if layout is None else None
    if sites is not None:  # a name that no column has
        while sites in frame.column_names:
            sites += "_"
        frame = frame.append_column(sites, [np.asarray(arrays["client"])])
    alike = None if layout is None else Alike("the data that were mapped", layout.columns, True, layout)
    choice = Choice(
        client=sites,
        categories="error" if layout or cells else "one-hot",
        cells=cells,
        layout=layout,
        alike=alike,
        codebook=None if codebook is None else codebook.of_features(frame.column_names),
        join_spellings=join_spellings,
    )
    found = columns_of(
        Loaded(name=IN_MEMORY, table=frame, default=frame.column_names, locate=_locate), choice
    )
    content = {"X": found.matrix, "feature_names": np.array(found.features), **arrays}
    keyed = from_arrays(IN_MEMORY, content, Choice(client=owner, id=identity, time=time))
    left_out = {name: why for name, why in found.unread.items() if name != sites}
    columns = replace(
        found,
        label=with_a_class_for_none(keyed.label),
        time=with_a_class_for_none(keyed.time),
        client=keyed.client,
        identity=keyed.identity,
        unread=left_out,
    )
    if columns.client is not None and (unowned := columns.client.codes < 0).any():
        raise DataError(
            f"X has {unowned.sum()} rows without a site; the first is {_locate(int(np.flatnonzero(unowned)[0]))}. Each"
            " row needs a place on the map: give these rows a site, or drop them."
        )
    columns = with_joined_sites(columns) if join_spellings else columns
    return _checked(columns, cells=cells, fills=fills, for_map=for_map)


def _checked(columns: Columns, *, cells: bool = False, fills: bool, for_map: bool) -> Table:
    """Return the table of rows; with ``fills``, features can have gaps, and always if ``cells`` are read one by one."""
    matrix = columns.matrix
    if cells:
        return checked(columns, complete_rows(columns, "median"), gaps=True, for_map=False)
    gaps = fills and bool(np.isnan(matrix.data if isinstance(matrix, SparseRows) else matrix).any())
    kept = complete_rows(columns, "median" if gaps else "error", remedy="Fill them in, or drop those rows.")
    return checked(columns, kept, gaps=gaps, for_map=for_map)


def _locate(row: int) -> str:
    return f"row {row} (the first is row 0)"
