"""t-SNE, computed from a neighbour graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from raydr.arrays import Float64Array, FloatArray
from raydr.embedding.embedder import GraphSettings, embedder, fitting, perplexity_for
from raydr.embedding.initialization import start_from, tsne_start
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
        rows = graph.rows
        nearest = fitting(graph, initialization, self.neighbors_needed(rows))
        phases = [(self.early_iterations, self.early_exaggeration), (self.iterations, self.exaggeration)]
        return self._descended(nearest, tsne_start(initialization, seed), phases, threads, progress)

    def embed_from(
        self,
        graph: NeighborGraph,
        places: Float64Array,
        *,
        seed: int,
        threads: int = 1,
        progress: Progress = unheard,
    ) -> Float64Array:
        """Redraw an earlier map; see :meth:`raydr.embedding.StartsFromPlaces.embed_from`.

        The layout starts in the units of the earlier map and without the early iterations, which would draw it
        together to a point. On digits with 297 new rows of all classes, the other rows move by 0.03 of the radius in
        the median, and by 0.11 without their places.
        """
        nearest = fitting(graph, np.nan_to_num(places), self.neighbors_needed(graph.rows))
        start = start_from(places, nearest, seed)
        phases = [(self.iterations, self.exaggeration)]
        return self._descended(nearest, start, phases, threads, progress)

    def _descended(
        self,
        nearest: NeighborGraph,
        start: Float64Array,
        phases: Sequence[tuple[int, float]],
        threads: int,
        progress: Progress,
    ) -> Float64Array:
        """Return the layout after all phases of the descent, each some iterations with one exaggeration."""
        from raydr.embedding.kernels.affinities import joint_affinities, local_order
        from raydr.embedding.kernels.descent import Phase, descend

        rows = nearest.rows
        progress(0, sum(iterations for iterations, _ in phases))
        workers = threads if rows >= _SHARED_ROWS else 1
        order = local_order(nearest)
        layout = start[order]
        with one_blas_thread():
            affinities = joint_affinities(nearest, self.effective_perplexity(rows), workers, order)
            descent = [
                Phase(iterations, exaggeration, self.learning_rate or rows / exaggeration)
                for iterations, exaggeration in phases
            ]
            descend(layout, affinities, descent, threads=workers, progress=progress)
        drawn = np.empty_like(layout)
        drawn[order] = layout
        return drawn
