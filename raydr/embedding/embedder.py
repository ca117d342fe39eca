"""The embedder contract, its shared checks, and the registry of embedders."""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import numpy as np
from pydantic import Field

from raydr.arrays import Float64Array, FloatArray
from raydr.errors import DataError, ScenarioError
from raydr.geometry.cells import EXACT_ROWS
from raydr.geometry.neighbors import NeighborGraph
from raydr.geometry.points import Progress, unheard
from raydr.registry import Kinds
from raydr.settings import Settings

PAIRS_ROWS = 4_000
"""Up to this number of rows, t-SNE sums its repulsion over all pairs; for more it is interpolated on a grid."""

EMBEDDERS = Kinds("embedders", "raydr.embedding")
"""All embedders by ``kind``."""
embedder = EMBEDDERS
"""Register a class of frozen settings as an embedder; the class must implement :class:`Embedder`."""


class GraphSettings(Settings):
    """Settings of the neighbour search."""

    neighbor_recall: float = Field(
        0.98,
        gt=0,
        le=1,
        description=f"share of the true neighbours to find if there are more than {EXACT_ROWS:,} rows;"
        " 1: all, as with fewer rows",
    )


@runtime_checkable
class Embedder(Protocol):
    """An embedding algorithm with its settings.

    A :class:`GraphSettings` also sets the share of true neighbours to find if there are very many rows. Any
    other embedder gets all of them.
    """

    def neighbors_needed(self, rows: int) -> int:
        """Return the neighbours per row, without the row itself, that :meth:`embed` needs for this many rows.

        Parameters
        ----------
        rows : int
            Number of rows to embed.

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
        """Lay out the rows of the graph, starting from ``initialization``.

        Parameters
        ----------
        graph : NeighborGraph
            ``indices`` and ``distances`` of shape (rows, k), nearest first, without self, with k at least
            ``neighbors_needed(rows)``; further columns are not read.
        initialization : array of shape (rows, 2) or (rows, 3)
            Initial layout in any units, for instance ``principal_components(coordinates)``. The embedder
            scales it as its algorithm requires. Its width is the width of the map.
        seed : int
            Non-negative. Equal seeds give bit-identical results.
        threads : int
            Largest number of threads, 1 or more. The result does not depend on it.
        progress : callable, optional
            Called as ``progress(done, total)`` in iterations, first with 0 done, last with all. An exception
            that it raises ends the embedding and reaches the caller.

        Returns
        -------
        array of the shape of ``initialization``
            float64 (t-SNE) or float32 (UMAP), as the algorithm computes it.

        Raises
        ------
        DataError
            If the graph is too narrow, or the initial layout has another shape or values that are not finite.
        """


@runtime_checkable
class StartsFromPlaces(Protocol):
    """An embedder that can redraw an earlier map."""

    def embed_from(
        self,
        graph: NeighborGraph,
        places: Float64Array,
        *,
        seed: int,
        threads: int = 1,
        progress: Progress = unheard,
    ) -> FloatArray:
        """Lay out the rows of the graph, so that rows of an earlier map stay near their places.

        Parameters
        ----------
        graph, seed, threads, progress
            As for :meth:`Embedder.embed`.
        places : (rows, 2) or (rows, 3) float64
            Places on the earlier map, as its embedder left them; NaN for rows that it does not have.

        Returns
        -------
        array of the shape of ``places``
        """


def perplexity_for(embedder: str, wanted: float | None, rows: int) -> float:
    """Return the perplexity of an embedder for this many rows: ``wanted``, or min(30, (rows - 1) / 3).

    Raises
    ------
    ScenarioError
        If 3 * perplexity exceeds rows - 1.
    DataError
        If there are fewer than 4 rows: even perplexity 1 then has too few neighbours.
    """
    _check_rows(embedder, rows, 4)
    largest = (rows - 1) / 3
    if wanted is None:
        return min(30.0, largest)
    if wanted > largest:
        raise ScenarioError(
            f"{embedder}'s perplexity is {wanted:g}, which needs {int(3 * wanted)} neighbours of each"
            f" row, but each of {rows} rows has only {rows - 1} others. The largest perplexity for {rows} rows"
            f" is {math.floor(100 * largest) / 100:g}. Lower it, or leave it out."
        )
    return float(wanted)


def neighbors_for(
    embedder: str, knob: str, wanted: int | None, rows: int, *, default: int, least_rows: int
) -> int:
    """Return the neighbours of an embedder for this many rows: ``wanted``, or min(default, rows - 1).

    Raises
    ------
    ScenarioError
        If ``wanted`` is more than rows - 1.
    DataError
        If there are fewer than ``least_rows`` rows.
    """
    _check_rows(embedder, rows, least_rows)
    if wanted is not None and wanted > rows - 1:
        raise ScenarioError(
            f"{embedder}'s {knob} is {wanted}, but each of {rows} rows has only {rows - 1} others. The"
            f" largest {knob} for {rows} rows is {rows - 1}. Lower it, or leave it out."
        )
    return wanted or min(default, rows - 1)


def _check_rows(embedder: str, rows: int, least: int) -> None:
    if rows < least:
        raise DataError(f"{embedder} cannot embed {rows} rows. Give it at least {least} rows.")


def fitting(graph: NeighborGraph, initialization: FloatArray, needed: int) -> NeighborGraph:
    """Check that a graph and an initial layout fit together, and return the ``needed`` nearest neighbours.

    Parameters
    ----------
    graph : NeighborGraph
        ``indices``: (rows, k).
    initialization : array of shape (rows, 2) or (rows, 3)
        Initial layout.
    needed : int
        Neighbours per row that the embedder reads.

    Raises
    ------
    DataError
        If k < ``needed``, or the initial layout has another shape or values that are not finite.
    """
    rows, neighbors = graph.rows, graph.k
    if neighbors < needed:
        raise DataError(
            f"The neighbour graph holds {neighbors} neighbours of each row, but this embedder needs"
            f" {needed} for {rows} rows. Search for `neighbors_needed({rows})` neighbours, or lower the"
            " embedder's perplexity or neighbors."
        )
    if initialization.ndim != 2 or initialization.shape[0] != rows or initialization.shape[1] not in (2, 3):
        raise DataError(
            f"The initial layout has shape {initialization.shape}, but the neighbour graph has {rows}"
            f" rows. Give one position of 2 or 3 coordinates for each row: ({rows}, 2) or ({rows}, 3)."
        )
    if not np.isfinite(initialization).all():
        row = int(np.flatnonzero(~np.isfinite(initialization).all(axis=1))[0])
        raise DataError(
            f"Row {row} of the initial layout is {initialization[row].tolist()}, which is not finite."
            " Initial positions must be finite: check the coordinates that the layout was computed"
            " from."
        )
    return graph.nearest(needed)
