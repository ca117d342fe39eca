"""What every embedder offers, what every embedder refuses, and the registry of all of them."""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import numpy as np
from pydantic import Field

from raydr.arrays import FloatArray
from raydr.errors import DataError, ScenarioError
from raydr.geometry.cells import EXACT_ROWS
from raydr.geometry.neighbors import NeighborGraph
from raydr.geometry.points import Progress, unheard
from raydr.registry import Kinds
from raydr.settings import Settings

EMBEDDERS = Kinds("embedders", "raydr.embedding")
"""Every embedder by its ``kind``."""
embedder = EMBEDDERS
"""Register frozen settings as an embedder: the decorator of a class that keeps the promises of :class:`Embedder`."""


class GraphSettings(Settings):
    """How the graph is searched that an embedder draws."""

    neighbor_recall: float = Field(
        0.98,
        gt=0,
        le=1,
        description=f"part of the true neighbours that is found of more than {EXACT_ROWS:,} rows; 1: all, as of fewer",
    )


@runtime_checkable
class Embedder(Protocol):
    """An embedding algorithm with its settings: the two questions a method asks of it.

    One that is a :class:`GraphSettings` also says which part of the true neighbours will do where there are very many
    rows; any other is given all of them.
    """

    def neighbors_needed(self, rows: int) -> int:
        """Neighbours per row, without the row itself, that :meth:`embed` wants for this many rows.

        Parameters
        ----------
        rows : int
            Number of rows that will be embedded.

        Returns
        -------
        int
            Between 1 and ``rows - 1``.

        Raises
        ------
        ScenarioError
            If the settings ask for more neighbours than there are other rows.
        DataError
            If no setting of this embedder could work with so few rows.
        """

    def embed(
        self,
        graph: NeighborGraph,
        initialization: FloatArray,
        *,
        seed: int,
        threads: int = 1,
        progress: Progress = unheard,
    ) -> FloatArray:
        """Lay the rows of the graph out, starting from ``initialization``.

        Parameters
        ----------
        graph : NeighborGraph
            ``indices`` and ``distances`` of shape (rows, k), nearest first, without self, with k at least
            ``neighbors_needed(rows)``; further columns are not read.
        initialization : array of shape (rows, 2) or (rows, 3)
            First layout in any units, for instance ``principal_components(coordinates)``; the embedder
            scales it as its algorithm wants. Its width is the width of the map.
        seed : int
            Non-negative. Equal seeds give equal bits.
        threads : int
            Threads to use at most, 1 or more; never changes a bit of the result.
        progress : callable, optional
            Called as ``progress(done, total)`` in iterations, first with 0 done, last with all. What it
            raises ends the embedding and reaches the caller.

        Returns
        -------
        array of the shape of ``initialization``
            float64 (t-SNE) or float32 (UMAP), as the algorithm computes it.

        Raises
        ------
        DataError
            If the graph is too narrow, or the initialisation has another shape or values that are not finite.
        """


def perplexity_for(embedder: str, wanted: float | None, rows: int) -> float:
    """Perplexity that an embedder uses for so many rows: the one that is wanted, or min(30, (rows - 1) / 3).

    Raises
    ------
    ScenarioError
        If 3 * perplexity exceeds rows - 1.
    DataError
        If there are fewer than 4 rows, where even perplexity 1 has too few neighbours.
    """
    _check_rows(embedder, rows, 4)
    largest = (rows - 1) / 3
    if wanted is None:
        return min(30.0, largest)
    if wanted > largest:
        raise ScenarioError(
            f"{embedder}'s perplexity is {wanted:g}, which asks for {int(3 * wanted)} neighbours of each row, but"
            f" {rows} rows have {rows - 1} others; the largest perplexity that works for {rows} rows is"
            f" {math.floor(100 * largest) / 100:g}. Lower it, or leave it out."
        )
    return float(wanted)


def neighbors_for(
    embedder: str, knob: str, wanted: int | None, rows: int, *, default: int, least_rows: int
) -> int:
    """Neighbours that an embedder uses for so many rows: as many as are wanted, or min(default, rows - 1).

    Raises
    ------
    ScenarioError
        If more than rows - 1 are wanted.
    DataError
        If there are fewer than ``least_rows`` rows.
    """
    _check_rows(embedder, rows, least_rows)
    if wanted is not None and wanted > rows - 1:
        raise ScenarioError(
            f"{embedder}'s {knob} is {wanted}, but {rows} rows have {rows - 1} others; the largest {knob} that works"
            f" for {rows} rows is {rows - 1}. Lower it, or leave it out."
        )
    return wanted or min(default, rows - 1)


def _check_rows(embedder: str, rows: int, least: int) -> None:
    if rows < least:
        raise DataError(
            f"{embedder} was asked to embed {rows} rows; it needs at least {least}, so give it more rows."
        )


def fitting(graph: NeighborGraph, initialization: FloatArray, needed: int) -> NeighborGraph:
    """Return the nearest neighbours that an embedder reads, of a graph and an initialisation that fit together.

    Parameters
    ----------
    graph : NeighborGraph
        ``indices``: (rows, k).
    initialization : array of shape (rows, 2) or (rows, 3)
        First layout.
    needed : int
        Neighbours per row that the embedder will read.

    Raises
    ------
    DataError
        If k < ``needed``, or the initialisation has another shape or values that are not finite.
    """
    rows, neighbors = graph.rows, graph.k
    if neighbors < needed:
        raise DataError(
            f"The neighbour graph holds {neighbors} neighbours of each row, but this embedder reads {needed} "
            f"for {rows} rows; search for `neighbors_needed({rows})` neighbours, or lower its perplexity or neighbors."
        )
    if initialization.ndim != 2 or initialization.shape[0] != rows or initialization.shape[1] not in (2, 3):
        raise DataError(
            f"The initialisation has shape {initialization.shape}, but the neighbour graph has {rows} rows; "
            f"give one position of 2 or 3 coordinates for each row: ({rows}, 2) or ({rows}, 3)."
        )
    if not np.isfinite(initialization).all():
        row = int(np.flatnonzero(~np.isfinite(initialization).all(axis=1))[0])
        raise DataError(
            f"Row {row} of the initialisation is {initialization[row].tolist()}, which is not finite; "
            "a layout starts from finite positions, so check the coordinates that it was computed from."
        )
    return graph.nearest(needed)
