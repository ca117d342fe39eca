"""Step 2 of SENSE: the requests to clients and their replies (P3 (8))."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from raydr.arrays import Float64Array
from raydr.errors import DataError
from raydr.federation import (
    Client,
    DeterminedRecords,
    Granularity,
    Range,
    RecordContent,
    Reply,
    Request,
    answers,
)
from raydr.geometry.points import squared_distances
from raydr.geometry.trilateration import EXACT_SHARE
from raydr.methods.sense.frames import AffineFrame, Frame, residual_factor, sparse_residual_factor
from raydr.methods.sense.spaces import EuclideanSpace, Space
from raydr.privacy.mechanism import Mechanism, Quantity
from raydr.sparse_rows import SparseRows


@dataclass(frozen=True)
class AnchorDistances(
    Reply,
    granularity=Granularity.PER_RECORD,
    what="the distance of every record to every anchor that its client sees, and the distances"
    " between the client's own records",
    tells=RecordContent.DISTANCES,
):
    """One client's part of the observed distances.

    Attributes
    ----------
    squared : (rows, anchors) float64
        Squared distances to the anchors, F of P3 (8).
    inside : (rows, width) float64
        A factor of the Gram matrix of what the anchors do not span. With ``squared`` it is equivalent to all distances
        between the client's rows, G of P3 (8). No columns in the pointwise regimes.
    noise : float
        Deviation of the noise in both, in units of a record's mean distance, as declared by the client; 0 for
        none.
    """

    squared: Float64Array
    inside: Float64Array
    noise: float = 0.0

    @staticmethod
    def ranges(request: AnchorRequest, rows: int) -> dict[str, Range]:
        """Return the range: one number for each row and anchor, and for each dimension that the anchors leave open."""
        width = min(rows, request.frame.codimension) if request.within else 0
        return {
            "squared": Range((rows, len(request.anchors))),
            "inside": Range((rows, width)),
            "noise": Range(()),
        }

    def fixed(self, request: AnchorRequest) -> DeterminedRecords | None:
        """Return the coordinates in the anchors' hull."""
        (rows, anchors), features = self.squared.shape, request.anchors.shape[1]
        try:
            coordinates, outside = request.frame.located(self.squared)
        except DataError:  # the server's own part reports it
            return None
        exact = int((outside**2 <= EXACT_SHARE**2 * ((coordinates**2).sum(axis=1) + outside**2)).sum())
        frame = request.frame
        return DeterminedRecords(
            records=rows,
            exact=exact if frame.codimension else rows,
            dimensions=frame.rank,
            features=features,
            points=anchors,
            among=self.inside.size > 0,
        )

    def quantities(self, on: str, request: object) -> dict[str, Quantity]:
        """Return distances in units of a record's mean distance, and ``inside`` in units of its root mean square."""
        if on != "distances":
            raise TypeError(f"distances to anchors hold no {on} for a mechanism to change")
        distances = np.sqrt(self.squared)
        found = {"distances": Quantity(distances, distances.mean(axis=1, keepdims=True))}
        if self.inside.size:
            found["inside"] = Quantity(self.inside, np.sqrt((self.inside**2).mean()))
        return found

    def covered(self, values: Mapping[str, Float64Array], mechanism: Mechanism) -> AnchorDistances:
        """Return the reply with changed distances, and their possible error."""
        return AnchorDistances(
            values["distances"] ** 2, values.get("inside", self.inside), mechanism.deviation
        )


@dataclass(frozen=True)
class AnchorRequest(Request[AnchorDistances], what="the anchors that a client sees"):
    """Request to one client for its observed distances.

    Attributes
    ----------
    anchors : (anchors, features) float64
        All anchors that this client sees.
    space : Space
        Space of the records.
    within : bool
        Whether to send the distances between the client's rows too.
    mechanism : Mechanism or None
        Mechanism that the client's host applies to its data or distances.
    deviation : float
        Root mean square deviation of the features, the unit of noise on data.
    """

    anchors: Float64Array
    space: Space
    within: bool
    mechanism: Mechanism | None = None
    deviation: float = 0.0

    @cached_property
    def points(self) -> Float64Array:
        """The anchors as points of the space."""
        return self.space.points(self.anchors)

    @cached_property
    def frame(self) -> Frame:
        """Frame of these anchors."""
        return self.space.frame(self.points)


@dataclass(frozen=True)
class AnchorRequests(Request[AnchorDistances], what="the anchors that each client sees"):
    """A request for each client."""

    own: tuple[AnchorRequest, ...]

    def addressed_to(self, client: int) -> AnchorRequest:  # type: ignore[override]
        """Return the request to one client."""
        return self.own[client]


@answers(AnchorRequest)
def distances_to_anchors(client: Client, request: AnchorRequest) -> AnchorDistances:
    """Run the client part of step 2."""
    rows = client.rows.astype(np.float64)
    if isinstance(rows, SparseRows):
        return _of_sparse(rows, request)
    points = request.space.points(rows)
    squared = np.zeros((0, len(request.points)))
    if len(rows):
        squared = request.space.squared_distances(points, request.points)
    inside = residual_factor(request.frame, points) if request.within else np.zeros((len(rows), 0))
    return AnchorDistances(squared, inside)


def _of_sparse(rows: SparseRows, request: AnchorRequest) -> AnchorDistances:
    """Return the same of sparse rows of Euclidean space, without a dense table."""
    frame = request.frame
    if not isinstance(frame, AffineFrame) or not isinstance(request.space, EuclideanSpace):
        raise TypeError("sparse rows are points of Euclidean space alone")
    squared, inside = np.zeros((0, len(request.anchors))), np.zeros((len(rows), 0))
    if len(rows):
        squared = np.asarray(squared_distances(rows, request.anchors), np.float64)
    if len(rows) and request.within:
        inside = sparse_residual_factor(frame, rows, request.space.origin)
    return AnchorDistances(squared, inside)
