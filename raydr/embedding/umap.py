"""UMAP, computed from a neighbour graph."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from raydr.arrays import Float32Array, Float64Array, FloatArray
from raydr.embedding.embedder import GraphSettings, embedder, fitting, neighbors_for
from raydr.embedding.initialization import start_from, umap_start
from raydr.geometry.neighbors import NeighborGraph
from raydr.geometry.points import Progress, unheard

FEW_ROWS = 10_000
"""Largest number of rows that one thread lays out, in more epochs."""


@embedder
class UMAP(GraphSettings):
    """UMAP with umap-learn's fuzzy set, edges, slopes, rates and epochs.

    The defaults are umap-learn's, which counts the row itself among its neighbours.

    Examples
    --------
    >>> UMAP().neighbors_needed(10_000)
    14
    """

    kind: Literal["umap"] = "umap"
    neighbors: int | None = Field(
        None, ge=2, description="n_neighbors, counting the row itself; default: 15, or rows - 1"
    )
    min_dist: float = Field(
        0.1, ge=0, description="distance on the map below which neighbours are not pulled closer"
    )
    spread: float = Field(1.0, gt=0, description="scale of the map")
    epochs: int | None = Field(
        None, ge=1, description="passes over the edges; default: 500 up to 10,000 rows, else 200"
    )
    negative_samples: int = Field(5, ge=1, description="repulsive pairs per attractive pair")

    @model_validator(mode="after")
    def _no_farther_than_the_scale(self) -> UMAP:
        if self.min_dist > self.spread:
            raise ValueError(
                f"UMAP's min_dist is {self.min_dist!r}; it must be from 0 to spread, which is {self.spread:g}"
            )
        return self

    def effective_neighbors(self, rows: int) -> int:
        """Return the neighbourhood size for this many rows, counting the row itself; see :func:`neighbors_for`."""
        return neighbors_for("UMAP", "neighbors", self.neighbors, rows, default=15, least_rows=3)

    def neighbors_needed(self, rows: int) -> int:
        """Return the neighbourhood size without the row itself.

        See :meth:`raydr.embedding.Embedder.neighbors_needed`.
        """
        return self.effective_neighbors(rows) - 1

    def embed(
        self,
        graph: NeighborGraph,
        initialization: FloatArray,
        *,
        seed: int,
        threads: int = 1,
        progress: Progress = unheard,
    ) -> Float32Array:
        """Lay out the graph's fuzzy simplicial set; see :meth:`raydr.embedding.Embedder.embed`.

        ``progress`` counts epochs. See :mod:`raydr.embedding.kernels.fuzzy`; it uses ``threads`` for more than 10,000
        rows.
        """
        nearest = fitting(graph, initialization, self.neighbors_needed(graph.rows))
        return self._laid_out(nearest, umap_start(initialization, seed), None, seed, threads, progress)

    def embed_from(
        self,
        graph: NeighborGraph,
        places: Float64Array,
        *,
        seed: int,
        threads: int = 1,
        progress: Progress = unheard,
    ) -> Float32Array:
        """Redraw an earlier map; see :meth:`raydr.embedding.StartsFromPlaces.embed_from`.

        The layout starts in the units of the earlier map. Each epoch draws its rows back to their places, with the
        weight of AlignedUMAP. Without that, 500 epochs move them like a new map: on digits with 297 new rows of all
        classes, by 0.23 of the radius in the median, instead of 0.05.
        """
        nearest = fitting(graph, np.nan_to_num(places), self.neighbors_needed(graph.rows))
        start = start_from(places, nearest, seed).astype(np.float32)
        return self._laid_out(nearest, start, places.astype(np.float32), seed, threads, progress)

    def _laid_out(
        self,
        nearest: NeighborGraph,
        start: Float32Array,
        places: Float32Array | None,
        seed: int,
        threads: int,
        progress: Progress,
    ) -> Float32Array:
        """Return the layout after all epochs."""
        from raydr.embedding.kernels.fuzzy import BLOCKS, lay_out
        from raydr.embedding.kernels.fuzzy_set import fuzzy_set

        few = nearest.rows <= FEW_ROWS
        epochs = self.epochs if self.epochs is not None else (500 if few else 200)
        progress(0, epochs)
        a, b = similarity_curve(self.spread, self.min_dist)
        return lay_out(
            fuzzy_set(nearest),
            start,
            a=a,
            b=b,
            epochs=epochs,
            negative_samples=self.negative_samples,
            seed=seed,
            threads=threads,
            blocks=1 if few else BLOCKS,
            places=places,
            progress=progress,
        )


_USUAL = 1.0, 0.1
_USUAL_CURVE = 1.5769434602697652, 0.8950608778515733
"""The fit for the default distances, to the last bit."""


def similarity_curve(spread: float, min_dist: float) -> tuple[float, float]:
    r"""Return a and b for which :math:`1 / (1 + a d^{2b})` is closest to UMAP's similarity on the map.

    That similarity is 1 up to ``min_dist``, and :math:`\exp(-(d - min\_dist) / spread)` beyond. The fit is by least
    squares at 300 distances from 0 to 3 * ``spread``, as in umap-learn.

    >>> a, b = similarity_curve(1.0, 0.1)
    >>> round(a, 3), round(b, 3)
    (1.577, 0.895)
    """
    if (spread, min_dist) == _USUAL:
        return _USUAL_CURVE  # scipy.optimize takes 20 MB and 0.3 s in every process that draws a map
    from scipy.optimize import curve_fit

    distances = np.linspace(0, spread * 3, 300)
    similar = np.where(distances < min_dist, 1.0, np.exp(-(distances - min_dist) / spread))
    (a, b), _ = curve_fit(lambda d, a, b: 1.0 / (1.0 + a * d ** (2 * b)), distances, similar)
    return float(a), float(b)
