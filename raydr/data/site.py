"""A client's own file: what to read, said where it is not, and read where it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import fingerprint
from raydr.data.loading import load
from raydr.data.provenance import Source
from raydr.data.table import Table


@dataclass(frozen=True)
class SiteFile:
    """Instructions for reading one client's rows; see :func:`raydr.data.load` for the fields."""

    path: str
    label: str | None = None
    features: tuple[str, ...] | None = None
    id_column: str | None = None
    missing: Literal["error", "drop"] = "error"

    def read(self) -> Table:
        """Read the file, on the machine that has it."""
        return load(
            path=self.path,
            label=self.label,
            features=self.features,
            id_column=self.id_column,
            missing=self.missing,
            for_map=False,  # a site may hold one row
        )


@dataclass(frozen=True)
class Census:
    """What the driver of a simulation knows of a client's file: everything but the rows.

    Attributes
    ----------
    ids : (rows,)
        Identities of the rows.
    labels : (rows,) str or None
        Class names, for colouring the map and for judging it.
    features : tuple of str
        Names of the features.
    fingerprint : str
        Of the rows, by which a restarted client is known to hold the same.
    source : Source
        What was read, and what of it is not among the rows.
    """

    ids: NDArray[Any]
    labels: NDArray[Any] | None
    features: tuple[str, ...]
    fingerprint: str
    source: Source


def census(file: SiteFile) -> Census:
    """Read a file here and say everything of it but the rows."""
    table = file.read()
    labels = None if table.labels is None else np.asarray(table.label_names, np.str_)[table.labels]
    return Census(table.ids, labels, table.features, fingerprint(table.rows), table.read_from)


@dataclass(frozen=True)
class Site:
    """A client whose rows are read from its own file, and the node that has it (None: any)."""

    file: SiteFile
    node: str | None
    fingerprint: str
