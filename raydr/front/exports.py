"""Exports of a map: data frames, AnnData for single-cell tools, a picture for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from raydr.errors import DataError
from raydr.extras import imported
from raydr.runfolder.manifest import require_unchanged
from raydr.runfolder.records import AXES, LEDGER, METRICS, PRIVACY, SCENARIO

Library: TypeAlias = Literal["pandas", "polars", "pyarrow"]

_LIBRARIES = ("pandas", "polars", "pyarrow")
_INCHES, _MOST_ROWS = 3.6, 5_000
"""Width of a picture in a notebook in inches, and the maximum number of rows, drawn at random: about 100 kB."""


def frame(table: Any, library: Library | None = None) -> Any:
    """Return a map, an Arrow table, as a data frame: see :meth:`raydr.Result.to_frame`."""
    if library is None:
        library = cast(Library, next(name for name in _LIBRARIES if find_spec(name) is not None))
    match library:
        case "pandas":
            imported("pandas", "A data frame of pandas")
            return table.to_pandas()
        case "polars":
            return imported("polars", "A data frame of polars").from_arrow(table)
        case "pyarrow":
            return table
    raise DataError(
        f"Unknown data frame library {library!r}: choose {', '.join(_LIBRARIES)}, or leave library out."
    )


def anndata(folder: Path, table: Any, onto: Any = None) -> Any:
    """Return the map of a run, an Arrow table, as AnnData: see :meth:`raydr.Result.to_anndata`."""
    AnnData = imported("anndata", "AnnData").AnnData
    pandas = imported("pandas", "AnnData")
    from raydr.report.colouring import colouring

    # Some versions of anndata cannot write the text type of pandas 3.
    text = partial(pandas.Index, dtype=object)
    axes = [axis for axis in AXES if axis in table.column_names]
    places = np.column_stack([table[axis].to_numpy() for axis in axes])
    ids = table["row"].to_pylist()
    if onto is None:
        names = text([str(row) for row in ids])
        # Some tools refuse a table without columns, so the coordinates are its columns.
        adata = AnnData(
            X=places.astype(np.float32),
            obs=pandas.DataFrame(index=names),
            var=pandas.DataFrame(index=text(axes)),
        )
    else:
        adata = _of_these_rows(onto, ids).copy()
    adata.obsm["X_raydr"] = places
    for by in ("client", "cluster", "period", "label"):
        if by in table.column_names:
            way = colouring(by, [str(name) for name in table[by].to_pylist()])
            column = f"raydr_{by}" if onto is not None else by
            adata.obs[column] = pandas.Categorical.from_codes(way.codes, text(way.names))
            adata.uns[f"{column}_colors"] = list(way.colours)
    require_unchanged(folder, SCENARIO, LEDGER, PRIVACY, METRICS)
    adata.uns["raydr"] = {
        file.partition(".")[0]: (folder / file).read_text() for file in (SCENARIO, LEDGER, PRIVACY, METRICS)
    }
    return adata


def picture(folder: Path) -> str:
    """Return the map as HTML with an embedded picture, coloured by label, otherwise by cluster, period or client."""
    from raydr.report.colouring import colourings, drawing_order
    from raydr.report.picture import in_page
    from raydr.report.projections import in_plane
    from raydr.report.run.server_knowledge import knowledge
    from raydr.report.wording import method_name
    from raydr.runfolder import read_run

    run = read_run(folder)
    way, some = colourings(run)[0], drawing_order(len(run.clients))[:_MOST_ROWS]
    address = in_page(
        in_plane(run, run.federated)[some],
        [way.colours[code] for code in way.codes[some]],
        _INCHES,
        in_disk=run.in_disk,
    )
    of = f"{len(run.clients):,} rows of {run.client_count:,} client{'s' * (run.client_count > 1)}"
    words = escape(f"{method_name(run.scenario)}: {of}, coloured by {way.by}")
    known = escape(knowledge(run).text)
    return f'<figure><img src="{address}" alt="{words}"><figcaption>{words}<br>{known}</figcaption></figure>'


def _of_these_rows(adata: Any, ids: Sequence[int | str]) -> Any:
    """Return the AnnData after checking that its rows are those of the map, in order."""
    numbered = list(ids) == list(range(len(ids)))
    if adata.n_obs != len(ids) or not (numbered or list(adata.obs_names) == [str(row) for row in ids]):
        raise DataError(
            f"The rows of the AnnData ({adata.n_obs}) do not match those of the map ({len(ids)}) in number or names:"
            " give the mapped AnnData, with the same rows in the same order."
        )
    return adata
