"""FedNE's surrogates: what clients tell of the repulsion that their rows exert, and what the server makes of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from raydr.arrays import Float32Array, Float64Array, FloatArray
from raydr.federation import Client, Granularity, Range, Reply, Request, answers
from raydr.methods.fedne.positions import positions_of
from raydr.methods.fedne.settings import SOFTENING
from raydr.privacy import Mechanism, Quantity
from raydr.privacy.mechanism import moved_mean

REACHES: Float64Array = 0.25 * np.exp2(np.arange(129) / 8)
"""Sizes of the map that clients vote on, from 0.25 to 16,384 in steps of 9%."""


SPEAKING_ROWS = 256
"""Rows that stand for a client in the field, at most, drawn anew in each round; 512 and 1,024 gain less than another
seed does (MNIST, 60,000 rows, 20 clients)."""


@dataclass(frozen=True)
class Density(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="the share of a client's rows in each cell of the map's grid, and the extent of its part of the map",
    covers=("share",),
):
    """What a client tells of its part of the map.

    Attributes
    ----------
    share : (nodes, nodes) float64
        Sums to 1: of its rows, or of `SPEAKING_ROWS` of them drawn for the round; without votes, of all.
    votes : (sizes,) float64
        For each of :data:`REACHES`, 0 or 1: whether all these rows lie within it; none where they are not asked for.
    """

    share: Float64Array
    votes: Float64Array

    @staticmethod
    def ranges(request: DensityRequest, rows: int) -> dict[str, Range]:
        """No more than all rows at one node, and one vote for each size."""
        return {
            "share": Range((request.nodes, request.nodes), 1.0 + 1e-9),
            "votes": Range(REACHES.shape if request.votes else (0,), 1.0, separate=True),
        }

    def quantities(self, on: str, request: object) -> dict[str, Quantity]:
        """The shares; a level is told in units of their root mean square."""
        return {"share": Quantity(self.share, unit=float(np.sqrt((self.share**2).mean())))}


@dataclass(kw_only=True, frozen=True)
class DensityRequest(Request[Density], what="the current encoder and a grid over the map"):
    """Asked for the field surrogate: the grid has ``nodes`` nodes from -reach to reach along both axes."""

    weights: Float32Array
    hidden: tuple[int, ...]
    reach: float
    nodes: int
    votes: bool = True
    mechanism: Mechanism | None = None
    deviation: float = math.nan

    def sensitivity(self, rows: int) -> float:
        """Shares of a row are four numbers that are not negative and sum to 1, and so are no longer than 1."""
        return moved_mean(self.mechanism, 1.0 + 1e-9, rows)

    def replace_sensitivity(self, rows: int) -> float:
        """Two such vectors are sqrt(2) apart at most, at nodes of their own."""
        return moved_mean(self.mechanism, math.sqrt(2.0) * (1.0 + 1e-9), rows)


@answers(DensityRequest)
def density(client: Client, request: DensityRequest) -> Density:
    """Client part of the field surrogate."""
    from raydr.methods.fedne.field import Grid, deposit

    if not request.votes:
        exact = positions_by_row(client.rows, request.weights, request.hidden)
        return Density(deposit(Grid(request.reach, request.nodes), exact) / max(1, len(exact)), np.zeros(0))
    positions = positions_of(speaking_rows(client), request.weights, request.hidden)
    share = deposit(Grid(request.reach, request.nodes), positions) / max(1, len(positions))
    farthest = np.abs(positions).max(initial=0.0)
    return Density(share, (farthest <= REACHES).astype(np.float64))


def speaking_rows(client: Client) -> FloatArray:
    """Rows (rows, features) that stand for a client in the field, the same throughout a round."""
    rows = client.rows
    if len(rows) <= SPEAKING_ROWS:
        return rows
    return rows[client.stream("density").choice(len(rows), SPEAKING_ROWS, replace=False)]


def positions_by_row(rows: FloatArray, weights: Float32Array, hidden: tuple[int, ...]) -> Float64Array:
    """Positions (rows, 2), each of which depends on its row alone, to the bit."""
    from raydr.methods.fedne.encoder import Architecture
    from raydr.methods.fedne.layers import activations_of, grid_layers

    return activations_of(rows, grid_layers(Architecture(rows.shape[1], hidden), weights))[-1]


@dataclass(frozen=True)
class Surrogate(
    Reply,
    granularity=Granularity.PER_CLIENT,
    what="a small network that gives the repulsion of a client's part of the map at any point",
):
    """``parameters`` of one client's surrogate network, float32."""

    parameters: Float32Array

    @staticmethod
    def ranges(request: SurrogateRequest, rows: int) -> dict[str, Range]:
        """Any finite numbers: nothing bounds what a network learns."""
        return {"parameters": Range(request.surrogates.shape[-1:], dtype="float32")}

    def quantities(self, on: str, request: object) -> dict[str, Quantity]:
        """All parameters; a level is told in units of their root mean square."""
        values = self.parameters.astype(np.float64)
        return {"parameters": Quantity(values, unit=float(np.sqrt((values**2).mean())))}

    def covered(self, values: Mapping[str, Float64Array], mechanism: Mechanism) -> Surrogate:
        """Same with noise, in single precision: a level claims nothing that rounding could break."""
        return Surrogate(values["parameters"].astype(np.float32))


@dataclass(kw_only=True, frozen=True)
class SurrogateRequest(
    Request[Surrogate], what="the current encoder, and the client's own surrogate of the round before"
):
    """Ask for the surrogate of P2 (8); ``surrogates`` (clients, parameters) float32, or a client's own alone."""

    weights: Float32Array
    hidden: tuple[int, ...]
    surrogates: Float32Array
    points: Literal["grid", "local"]
    step: float
    negatives: int
    softening: float = SOFTENING
    mechanism: Mechanism | None = None
    deviation: float = math.nan

    def addressed_to(self, client: int) -> SurrogateRequest:
        """Its own surrogate alone."""
        return replace(self, surrogates=self.surrogates[client])


@answers(SurrogateRequest)
def learn_surrogate(client: Client, request: SurrogateRequest) -> Surrogate:
    """Client part of the mlp surrogate: fine-tuned on the repulsion by the client's rows where they are now."""
    from raydr.methods.fedne.encoder import one_torch_thread
    from raydr.methods.fedne.networks import fit_surrogate, query_grid, targets

    positions, random = positions_of(client.rows, request.weights, request.hidden), client.stream("surrogate")
    queries = query_grid(positions, request.step, margin=3.0) if request.points == "grid" else positions
    with one_torch_thread():
        values = targets(queries, positions, request.negatives, random, request.softening)
        return Surrogate(
            fit_surrogate(request.surrogates, queries, values, epochs=10, learning_rate=1e-3, random=random)
        )
