"""Random projection of wide rows before an encoder: seconds and messages then no longer grow with the columns.

An encoder's first layer has a weight for each column. Training, Adam's moments, control variates and messages
all follow from it. Where columns exceed :data:`MOST_COLUMNS` and the rows of all clients, every client projects
its rows to :data:`WIDTH` numbers (Johnson & Lindenstrauss 1984). The projection z = P^T x is sparse: each column
goes to :data:`_PARTS` of the numbers, with random signs (Kane & Nelson 2014). It follows from a seed of the
server, so nothing leaves a client for it. Neighbours are still those of all columns.

If a label steers, its block of columns takes part in the search for neighbours, and then leaves the encoder's
input: P has zeros for it, and is otherwise the identity unless the rows are wide. New rows have no label.

The first layer W of the trained encoder becomes P W, which takes columns. Models, new rows and sites that join
need not know that rows were projected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from raydr.arrays import Float32Array, Float64Array, FloatArray
from raydr.federation import Client, Federation, Request, answers
from raydr.geometry.points import value_blocks
from raydr.methods.fedne.clients import neighbors_of
from raydr.methods.fedne.settings import AveragedEncoder
from raydr.statistics.scaling import Done, Unshifted
from raydr.wire_types import travels

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MOST_COLUMNS = 1000
WIDTH = 512
_PARTS = 8
_ROUNDING = 1.0 + 1e-5


@travels
@dataclass(frozen=True)
class Projection:
    """A projection of rows (rows, columns) to the input of an encoder, (rows, width).

    Attributes
    ----------
    columns : int
        Columns of the rows.
    seed : int or None
        Seed of a sparse random projection to :data:`WIDTH` numbers; None if features stay as they are.
    label : int
        Number of last columns that are a label's, and are left out.
    """

    columns: int
    seed: int | None
    label: int = 0

    @property
    def features(self) -> int:
        """Columns without those of a label."""
        return self.columns - self.label

    @property
    def width(self) -> int:
        """Width of the encoder's input."""
        return self.features if self.seed is None else WIDTH

    def matrix(self) -> csr_array:
        """Return P (columns, width) float64; a random one is scaled to keep the mean variance of a column."""
        from scipy.sparse import csr_array, eye_array

        if self.seed is None:
            return csr_array(eye_array(self.columns, self.features))
        random = np.random.default_rng(self.seed)
        shape, part = (self.features, _PARTS), WIDTH // _PARTS
        places = random.integers(part, size=shape) + part * np.arange(_PARTS)
        size = np.sqrt(WIDTH / (self.features * _PARTS))
        values = np.where(random.integers(2, size=shape), size, -size)
        starts = np.minimum(np.arange(self.columns + 1), self.features) * _PARTS
        return csr_array((values.ravel(), places.ravel(), starts), shape=(self.columns, WIDTH))

    def project(self, rows: FloatArray | Unshifted) -> Float32Array:
        """Return P^T x for rows (rows, columns), as (rows, width) float32."""
        if self.seed is None and not isinstance(rows, Unshifted):
            return np.ascontiguousarray(rows[:, : self.features], np.float32)
        if isinstance(rows, Unshifted):
            matrix, (near, mean) = self.matrix(), rows.rows.shifted()
            return np.asarray((near.csr @ matrix).toarray() - (rows.shift - mean) @ matrix, np.float32)
        turned = self.matrix().T
        found = np.empty((len(rows), WIDTH), np.float32)
        for start, stop in value_blocks(*rows.shape):
            found[start:stop] = (turned @ rows[start:stop].T.astype(np.float64)).T
        return found

    def lift(self, projected: Float64Array) -> Float64Array:
        """Return the shortest rows (rows, columns) with these projections (rows, width)."""
        matrix = self.matrix()
        gram = (matrix.T @ matrix).toarray()
        return np.asarray(matrix @ np.linalg.lstsq(gram, projected.T, rcond=None)[0]).T

    def reach(self, reach: Float64Array) -> Float64Array:
        """Bound the projected values (width,) of rows whose absolute values ``reach`` (columns,) bounds."""
        if self.seed is None:
            return reach[: self.features]
        return np.asarray(abs(self.matrix()).T @ reach) * _ROUNDING

    def of_columns(self, weights: Float32Array, hidden: tuple[int, ...]) -> Float32Array:
        """Convert an encoder's weights (parameters,) for projected rows into weights for all columns."""
        from raydr.methods.fedne.encoder import Architecture  # loads torch

        first, *others = Architecture(self.width, hidden).parts(weights)
        wide = (self.matrix() @ first.astype(np.float64)).astype(np.float32)
        return np.concatenate([wide.ravel(), *(part.ravel() for part in others)])


@dataclass(frozen=True)
class ProjectRows(
    Request[Done],
    what="the seed of a random projection of the rows, and how many columns of a label it leaves out",
    sets_state=True,
):
    """Sent to every client once; its rows are then projected. It first finds ``neighbors`` by all columns."""

    projection: Projection
    neighbors: int


@answers(ProjectRows)
def project_client(client: Client, request: ProjectRows) -> Done:
    """Client part: replace the partition with its projection."""
    neighbors_of(client, request.neighbors)
    client.rows = request.projection.project(client.rows)
    return Done()


def projects_at_random(settings: AveragedEncoder, rows: int, features: int) -> bool:
    """Return whether rows are wide enough for a random projection.

    Noise on updates needs the bounds of single columns, and unscaled rows stay as they are (P2).
    """
    return settings.standardise and settings.bounds is None and features > max(MOST_COLUMNS, rows)


def input_width(federation: Federation, settings: AveragedEncoder) -> int:
    """Return the width of the encoder's input."""
    features = federation.features - federation.label_columns
    return WIDTH if projects_at_random(settings, federation.rows, features) else features


def projected(federation: Federation, settings: AveragedEncoder) -> Projection | None:
    """Have clients project their scaled rows; None if they stay as they are."""
    label = federation.label_columns
    at_random = projects_at_random(settings, federation.rows, federation.features - label)
    if not label and not at_random:
        return None
    seed = int(federation.stream("projection").integers(2**62)) if at_random else None
    projection = Projection(federation.features, seed, label)
    federation.ask(ProjectRows(projection, settings.own_neighbors))
    return projection
