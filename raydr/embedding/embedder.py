"""What every embedder offers, what every embedder refuses, and the registry of all of them."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from raydr.arrays import FloatArray
from raydr.errors import DataError
from raydr.geometry.neighbors import NeighborGraph
from raydr.geometry.points import Progress
from raydr.registry import Kinds

EMBEDDERS = Kinds("embedders", "raydr.embedding")
"""Every embedder by its ``kind``."""
embedder = EMBEDDERS
"""Register frozen settings as an embedder: the decorator of a class that keeps the promises of :class:`Embedder`."""


class Embedder(Protocol):
    """An embedding algorithm with its settings: the two questions a method asks of it."""

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
        ...

    def embed(
        self,
        graph: NeighborGraph,
        initialization: FloatArray,
        *,
        seed: int,
        threads: int = 1,
        progress: Progress | None = None,
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
        ...


def check_inputs(graph: NeighborGraph, initialization: FloatArray, needed: int) -> None:
    """Refuse a graph and an initialisation that do not fit together.

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
