"""t-SNE, computed from a neighbour graph."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from raydr.arrays import Float64Array, FloatArray
from raydr.embedding.embedder import GraphSettings, embedder, fitting, perplexity_for
from raydr.embedding.initialization import tsne_start
from raydr.geometry.neighbors import NeighborGraph
from raydr.geometry.points import Progress, unheard
from raydr.threads import one_blas_thread

_SHARED_ROWS = 1_500
"""Number of rows from which threads share an iteration. With fewer rows an iteration takes less than 3 ms, and
threads that wait for each other on a busy machine cost more."""


@embedder
class TSNE(GraphSettings):
    """t-SNE with openTSNE's defaults.

    The default learning rate is that of Belkina et al. (2019). Attraction uses
    k = 3 * perplexity neighbours of each row. Repulsion is exact up to 4,000 rows and for maps of 3 dimensions, and
    computed by FFT interpolation otherwise. openTSNE approximates it by a Barnes-Hut tree below 10,000 rows.

    Examples
    --------
    >>> TSNE().neighbors_needed(10_000)
    90
    >>> TSNE().neighbors_needed(10)
    9
    """

    kind: Literal["tsne"] = "tsne"
    perplexity: float | None = Field(
        None, ge=1, description="perplexity; default: 30, or (rows - 1) / 3 if that is less"
    )
    early_exaggeration: float = Field(12.0, ge=1, description="factor on attraction in the early iterations")
    exaggeration: float = Field(1.0, ge=1, description="factor on attraction after the early iterations")
    learning_rate: float | None = Field(None, gt=0, description="learning rate; default: rows / exaggeration")
    early_iterations: int = Field(250, ge=0, description="iterations with early exaggeration")
    iterations: int = Field(500, ge=0, description="iterations after the early ones")

    def effective_perplexity(self, rows: int) -> float:
        """Return the perplexity for this many rows; see :func:`perplexity_for`."""
        return perplexity_for("t-SNE", self.perplexity, rows)

    def neighbors_needed(self, rows: int) -> int:
        """Return 3 * perplexity, as in openTSNE; see :meth:`raydr.embedding.Embedder.neighbors_needed`."""
        return int(3 * self.effective_perplexity(rows))

    def embed(
        self,
        graph: NeighborGraph,
        initialization: FloatArray,
        *,
        seed: int,
        threads: int = 1,
        progress: Progress = unheard,
    ) -> Float64Array:
        """Lay out the graph; see :meth:`raydr.embedding.Embedder.embed`.

        The seed draws only the jitter of the initial layout. Threads share the affinities, the attraction and
        the repulsion row by row. No parallel sum crosses rows, so the result does not depend on the number of
        threads. ``progress`` counts iterations.
        """
        from raydr.embedding.kernels.affinities import joint_affinities, local_order
        from raydr.embedding.kernels.descent import Phase, descend

        rows = graph.rows
        nearest = fitting(graph, initialization, self.neighbors_needed(rows))
        progress(0, self.early_iterations + self.iterations)
        workers = threads if rows >= _SHARED_ROWS else 1
        order = local_order(nearest)
        layout = tsne_start(initialization, seed)[order]
        phases = [
            Phase(iterations, exaggeration, self.learning_rate or rows / exaggeration)
            for iterations, exaggeration in (
                (self.early_iterations, self.early_exaggeration),
                (self.iterations, self.exaggeration),
            )
        ]
        with one_blas_thread():
            affinities = joint_affinities(nearest, self.effective_perplexity(rows), workers, order)
            descend(layout, affinities, phases, threads=workers, progress=progress)
        drawn = np.empty_like(layout)
        drawn[order] = layout
        return drawn
