"""PHATE by the ``phate`` package, computed from a neighbour graph."""

from __future__ import annotations

import math
import warnings
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from raydr.arrays import Float64Array, FloatArray
from raydr.embedding.embedder import GraphSettings, embedder, fitting, neighbors_for
from raydr.extras import require_packages
from raydr.geometry.neighbors import NeighborGraph
from raydr.geometry.points import Progress, unheard

_SILENT = -3
"""A level below all levels of phate's logger, which would otherwise write to standard output."""
_SMALLEST_AFFINITY = 1e-4
"""phate's own threshold: smaller affinities are not edges."""
_REACH = 10
"""Neighbours per unit of ``knn``. phate's kernel ends 1.06 bandwidths away (decay 40), where it is 1e-4,
however many rows lie within. Of 25,000 MNIST rows, 0.2% have more than 10 * 5 rows that near, and lose the
farthest ones."""
_SPECTRAL_COMPONENTS = 100
"""phate's default number of singular vectors for the clustering of landmarks."""


@embedder
class PHATE(GraphSettings):
    """PHATE as the phate package computes it; needs the extra raydr[phate].

    PHATE (Moon et al., Nature Biotechnology 2019) diffuses over the neighbour graph. It applies metric multidimensional
    scaling to distances between the log-probabilities. The defaults are the package's. The package is licensed under
    the GPL, version 2.

    Beyond ``landmarks`` rows, memory is landmarks^2 + rows * neighbours. On 5,000 rows of MNIST, smacof takes
    27 s and sgd 16 s, for a trustworthiness of 0.866 and 0.857.

    Examples
    --------
    >>> PHATE().neighbors_needed(10_000)
    50
    """

    package: ClassVar[str | None] = "phate"

    kind: Literal["phate"] = "phate"
    knn: int | None = Field(
        None,
        ge=1,
        description="rank of the neighbour that sets the kernel bandwidth; default: 5, or rows - 1",
    )
    decay: float = Field(40.0, gt=0, description="exponent of the kernel's tails")
    t: int | None = Field(None, ge=1, description="diffusion steps; default: the knee of the entropy")
    gamma: float = Field(1.0, ge=-1, le=1, description="potential: 1: log, 0: square root, -1: none")
    landmarks: int = Field(
        2000,
        ge=4,
        description="above this number of rows, PHATE lays out this many clusters instead of the rows",
    )
    solver: Literal["sgd", "smacof"] = Field(
        "sgd", description="solver of the multidimensional scaling; smacof is slower and more exact"
    )

    def effective_knn(self, rows: int) -> int:
        """Return the rank of the neighbour that sets the bandwidth for this many rows; see :func:`neighbors_for`."""
        return neighbors_for("PHATE", "knn", self.knn, rows, default=5, least_rows=4)

    def neighbors_needed(self, rows: int) -> int:
        """Return 10 * knn, or rows - 1 if that is less; see :meth:`raydr.embedding.Embedder.neighbors_needed`.

        Raises `ScenarioError` also if the ``phate`` package is not installed.
        """
        require_packages(self, "embedder")
        return min(_REACH * self.effective_knn(rows), rows - 1)

    def embed(
        self,
        graph: NeighborGraph,
        initialization: FloatArray,
        *,
        seed: int,
        threads: int = 1,
        progress: Progress = unheard,
    ) -> Float64Array:
        """Run ``phate.PHATE.fit_transform`` on the graph's affinities; see :meth:`raydr.embedding.Embedder.embed`.

        ``initialization`` only gives the number of dimensions, because PHATE starts from classical scaling.
        The seed draws phate's random projections, clusters and pairs. ``threads`` is not used, because
        k-means sums across its threads. ``progress`` is called at the start and at the end. Parts of the
        graph without edges between them are placed as far apart as the potential allows.
        """
        rows = graph.rows
        needed = self.neighbors_needed(rows)
        nearest = fitting(graph, initialization, needed)
        kernel = affinities(nearest, self.effective_knn(rows), self.decay)
        progress(0, 1)
        if not nearest.distances.any() and needed == rows - 1:
            # All rows are one point, which phate cannot lay out.
            layout = np.zeros(initialization.shape, dtype=np.float64)
        else:
            layout = self._laid_out(kernel, initialization.shape[1], seed)
        progress(1, 1)
        return layout

    def _laid_out(self, kernel: Any, components: int, seed: int) -> Float64Array:
        import phate
        from threadpoolctl import threadpool_limits

        rows = kernel.shape[0]
        # A phate seed has 32 bits, a raydr seed any number.
        random_state = int(np.random.SeedSequence(seed).generate_state(1)[0])
        with threadpool_limits(1), warnings.catch_warnings():
            # Warnings about disconnected parts and about few rows. Neither needs action.
            warnings.simplefilter("ignore", RuntimeWarning)
            layout = phate.PHATE(
                n_components=components,
                knn=min(self.effective_knn(rows), rows - 2),  # checked, but not used with affinities
                t="auto" if self.t is None else self.t,
                gamma=self.gamma,
                n_landmark=self.landmarks,
                n_svd=min(_SPECTRAL_COMPONENTS, rows - 1),
                knn_dist="precomputed_affinity",
                mds_solver=self.solver,
                n_jobs=1,
                random_state=random_state,
                verbose=_SILENT,
            ).fit_transform(kernel)
        return np.asarray(layout, dtype=np.float64)


def affinities(graph: NeighborGraph, knn: int, decay: float) -> Any:
    r"""Return PHATE's kernel :math:`\exp(-(d_{ij} / b_i)^{decay})`, b_i the distance to neighbour ``knn``.

    Values below 1e-4 are dropped; the kernel is the mean of itself and its transpose, with ones on the diagonal.

    Parameters
    ----------
    graph : NeighborGraph
        All its neighbours are used; at least ``knn``.
    knn, decay
        As in :class:`PHATE`.

    Returns
    -------
    scipy.sparse.csr_matrix of shape (rows, rows), float64
        Symmetric, values in (0, 1].
    """
    from scipy.sparse import csr_matrix, identity

    rows, k = graph.rows, graph.k
    distances = graph.distances.astype(np.float64)
    bandwidths = np.maximum(distances[:, knn - 1 : knn], np.finfo(np.float64).eps)
    # Beyond e^(1/decay) bandwidths every value is below the threshold. Clipping there avoids overflow of the
    # power.
    largest = (-math.log(_SMALLEST_AFFINITY / 2.0)) ** (1.0 / decay)
    values = np.exp(-(np.minimum(distances / bandwidths, largest) ** decay))
    values[values < _SMALLEST_AFFINITY] = 0.0
    kernel = csr_matrix((values.ravel(), graph.indices.ravel(), np.arange(rows + 1) * k), shape=(rows, rows))
    kernel.eliminate_zeros()
    kernel = kernel + identity(rows, format="csr")
    kernel = ((kernel + kernel.T) / 2.0).tocsr()
    kernel.sort_indices()
    return kernel
