"""Contrastive neighbour embedding CNE(s): from t-SNE (s = 0) to UMAP (s = 1) by one normalisation constant."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from pydantic import Field

from raydr.arrays import Float64Array, FloatArray
from raydr.embedding.embedder import GraphSettings, embedder, fitting, neighbors_for
from raydr.embedding.initialization import random_of_descent, scaled_start
from raydr.geometry.neighbors import NeighborGraph
from raydr.geometry.points import Progress, unheard

_LARGEST_SLOPE = 4.0
"""Entries of a batch's gradient are clipped to this magnitude, as in the published method."""
_DRAWN_EDGES = 2**16
"""Edges per draw of negative samples, so that memory does not grow with the number of edges."""
_LARGEST_S = 10
"""For larger s the normalisation constant leaves the range of double precision on large data."""


@embedder
class CNE(GraphSettings):
    r"""Contrastive neighbour embedding (Neg-t-SNE), between t-SNE and UMAP.

    ``CNE(s)`` of SENSE (P3, A.2), from Damrich, Böhm, Hamprecht & Kobak, ICLR 2023. It works in mini-batches
    over the edges (i, j) of the symmetric neighbour graph, with ``negative_samples`` = m random other rows l
    per edge, and minimises

    .. math::

        \sum_{(i, j)} \Big[ -\log \frac{\phi_{ij}}{\phi_{ij} + \nu} - \sum_{l = 1}^{m} \log \frac{\nu}{\phi_{il} + \nu}
        \Big], \quad \phi_{ij} = \frac{1}{1 + |y_i - y_j|^2}, \quad \nu = \frac{m \bar Z}{n^2},

    At the minimum the similarities sum to :math:`\bar Z`. For t-SNE the sum is about 100 n, for UMAP n^2 / 5,
    and :math:`\log \bar Z` is linear in s between them. A larger :math:`\bar Z` means more attraction: denser
    clusters, clearer global structure. With fewer than 500 rows the two ends swap.
    :mod:`raydr.embedding.kernels.contrastive` has objective and gradient term by term.

    ``negative_samples`` does not move the map along the spectrum. Early exaggeration forms the global
    structure first.

    Examples
    --------
    >>> round(CNE(s=1.0).normalisation(10_000)) == 10_000**2 / 5
    True
    >>> CNE().neighbors_needed(10_000)
    15
    """

    kind: Literal["cne"] = "cne"
    s: float = Field(
        0.5,
        ge=-_LARGEST_S,
        le=_LARGEST_S,
        description="spectrum parameter: 0 is like t-SNE, 1 like UMAP; other values interpolate or"
        " extrapolate on a log scale",
    )
    neighbors: int | None = Field(
        None, ge=1, description="neighbours of each row, not counting the row; default: 15, or rows - 1"
    )
    negative_samples: int = Field(5, ge=1, description="repulsive pairs per attractive pair")
    epochs: int = Field(200, ge=1, description="passes over the edges of the neighbour graph")
    learning_rate: float = Field(1.0, gt=0, description="initial learning rate; falls linearly to 0")
    batch: int | None = Field(None, ge=1, description="edges per batch; default: 1024, or rows / 64")
    early_exaggeration: bool = Field(True, description="run the first third of the epochs at s = 1 or more")

    def neighbors_needed(self, rows: int) -> int:
        """Return ``neighbors``, or min(15, rows - 1) by default.

        See :meth:`raydr.embedding.Embedder.neighbors_needed`.
        """
        return neighbors_for("CNE", "neighbors", self.neighbors, rows, default=15, least_rows=3)

    def normalisation(self, rows: int, s: float | None = None) -> float:
        r"""Return the sum of similarities :math:`\bar Z = (100 n)^{1 - s} (n^2 / 5)^s` for n ``rows``.

        ``s`` defaults to ``self.s``.
        """
        s = self.s if s is None else s
        return math.exp((1.0 - s) * math.log(100 * rows) + s * math.log(rows**2 / 5))

    def embed(
        self,
        graph: NeighborGraph,
        initialization: FloatArray,
        *,
        seed: int,
        threads: int = 1,
        progress: Progress = unheard,
    ) -> Float64Array:
        """Minimise the loss by gradient descent over shuffled edges; see :meth:`raydr.embedding.Embedder.embed`.

        The start is ``initialization`` scaled to standard deviation 1 in its first column. The seed draws the
        jitter of the start, the order of the edges and the negative samples. ``threads`` is not used, because
        each batch depends on the one before. ``progress`` counts epochs.
        """
        from raydr.embedding.kernels.contrastive import descend, draw_negatives, symmetric_edges

        rows = graph.rows
        nearest = fitting(graph, initialization, self.neighbors_needed(rows))
        heads, tails = symmetric_edges(nearest.indices)
        layout = scaled_start(initialization, seed, 1.0)
        gradient = np.zeros_like(layout)
        batch = self.batch or max(1, min(1024, rows // 64))
        chunk = batch * max(1, _DRAWN_EDGES // batch)
        generator = random_of_descent(seed)
        for epoch in range(self.epochs):
            progress(epoch, self.epochs)
            early = self.early_exaggeration and epoch < self.epochs // 3
            nu = self._noise_level(rows, max(self.s, 1.0) if early else self.s)
            rate = self.learning_rate * (1.0 - epoch / self.epochs)
            order = generator.permutation(heads.size)
            for start in range(0, order.size, chunk):
                edges = order[start : start + chunk]
                head = heads[edges]
                negatives = draw_negatives(generator, head, rows, self.negative_samples)
                descend(layout, head, tails[edges], negatives, nu, rate, batch, _LARGEST_SLOPE, gradient)
        progress(self.epochs, self.epochs)
        return layout

    def _noise_level(self, rows: int, s: float) -> float:
        return self.negative_samples * self.normalisation(rows, s) / rows**2
