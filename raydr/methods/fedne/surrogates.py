"""FedNE's surrogates: the repulsion by a client's rows, as clients send it and as the server uses it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from raydr.arrays import Float32Array, Float64Array, FloatArray
from raydr.federation import Cells, Client, Granularity, Range, Reply, Request, answers
from raydr.methods.fedne.positions import positions_of
from raydr.methods.fedne.settings import SOFTENING
from raydr.privacy import Mechanism, Quantity
from raydr.privacy.mechanism import moved_mean

REACHES: Float64Array = 0.25 * np.exp2(np.arange(129) / 8)
"""Sizes of the map that clients vote on, from 0.25 to 16,384 in steps of 9%."""


EPOCHS, MARGIN = 10, 3.0
"""Epochs in which a network learns its client's repulsion, and by how much its grid exceeds the client's map."""

DENSITY_ROWS = 256
"""Largest number of rows that represent a client in the field, drawn in each round. The gain of 512 and 1,024
is smaller than the effect of another seed (MNIST, 60,000 rows, 20 clients)."""


@dataclass(frozen=True)
class Density(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="the share of a client's rows in each cell of the map's grid, and the extent of its part of the map",
    covers=("share",),
    extreme=True,
    splits=True,
):
    """Density of a client's part of the map.

    Attributes
    ----------
    share : (nodes, nodes) float64
        Sums to 1: of the client's rows, or of `DENSITY_ROWS` of them drawn for the round; without votes, of all.
    votes : (sizes,) float64
        For each of :data:`REACHES`, 0 or 1: whether all these rows lie within it; empty if not requested.
    """

    share: Float64Array
    votes: Float64Array

    @staticmethod
    def ranges(request: DensityRequest, rows: int) -> dict[str, Range]:
        """Return the range: at most all rows at one node, and one vote for each size."""
        return {
            "share": Range((request.nodes, request.nodes), 1.0 + 1e-9, bits=request.bits),
            "votes": Range(REACHES.shape if request.votes else (0,), 1.0, separate=True),
        }

    def cells(self, request: DensityRequest, client: Client) -> tuple[Cells, ...]:
        """Return the number of records in each cell of the grid, as the shares state it."""
        return (Cells(self.share * len(client.rows)),)

    def quantities(self, on: str, request: object) -> dict[str, Quantity]:
        """Return the shares; a level is in units of their root mean square."""
        return {"share": Quantity(self.share, unit=float(np.sqrt((self.share**2).mean())))}


@dataclass(kw_only=True, frozen=True)
class DensityRequest(Request[Density], what="the current encoder and a grid over the map"):
    """Request for the field surrogate: the grid has ``nodes`` nodes from -reach to reach along both axes.

    ``bits`` are those of a share in the sum.
    """

    weights: FloatArray
    hidden: tuple[int, ...]
    reach: float
    nodes: int
    votes: bool = True
    bits: int = 64
    mechanism: Mechanism | None = None
    deviation: float = math.nan

    def sensitivity(self, rows: int) -> float:
        """Return the sensitivity: the shares of a row are four numbers of norm at most 1, as they sum to 1."""
        return moved_mean(self.mechanism, 1.0 + 1e-9, rows)

    def replace_sensitivity(self, rows: int) -> float:
        """Return the sensitivity under replacement: two such vectors are at most sqrt(2) apart."""
        return moved_mean(self.mechanism, math.sqrt(2.0) * (1.0 + 1e-9), rows)


@answers(DensityRequest)
def density(client: Client, request: DensityRequest) -> Density:
    """Run the client part of the field surrogate."""
    from raydr.methods.fedne.field import Grid, deposit

    if not request.votes:
        exact = positions_by_row(client.rows, request.weights, request.hidden)
        return Density(deposit(Grid(request.reach, request.nodes), exact) / max(1, len(exact)), np.zeros(0))
    positions = positions_of(density_rows(client), request.weights, request.hidden)
    share = deposit(Grid(request.reach, request.nodes), positions) / max(1, len(positions))
    farthest = np.abs(positions).max(initial=0.0)
    return Density(share, (farthest <= REACHES).astype(np.float64))


def density_rows(client: Client) -> FloatArray:
    """Return the rows (rows, features) that represent a client in the field, the same throughout a round."""
    rows = client.rows
    if len(rows) <= DENSITY_ROWS:
        return rows
    return rows[client.stream("density").choice(len(rows), DENSITY_ROWS, replace=False)]


def positions_by_row(rows: FloatArray, weights: Float32Array, hidden: tuple[int, ...]) -> Float64Array:
    """Return positions (rows, 2), each of which depends on its row alone, bit for bit."""
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
        """Return the range: any finite numbers, because the parameters of a network have no bound."""
        return {"parameters": Range(request.surrogates.shape[-1:], dtype="float32")}

    def quantities(self, on: str, request: object) -> dict[str, Quantity]:
        """Return all parameters; a level is in units of their root mean square."""
        values = self.parameters.astype(np.float64)
        return {"parameters": Quantity(values, unit=float(np.sqrt((values**2).mean())))}

    def covered(self, values: Mapping[str, Float64Array], mechanism: Mechanism) -> Surrogate:
        """Return the same with noise, in single precision: a level has no privacy claim that rounding could break."""
        return Surrogate(values["parameters"].astype(np.float32))


@dataclass(kw_only=True, frozen=True)
class SurrogateRequest(
    Request[Surrogate], what="the current encoder, and the client's own surrogate of the round before"
):
    """Request for the surrogate of P2 (8).

    ``surrogates`` (clients, parameters) float32; a message to one client holds its own alone.
    """

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
        """Return the request with this client's surrogate alone."""
        return replace(self, surrogates=self.surrogates[client])


@answers(SurrogateRequest)
def learn_surrogate(client: Client, request: SurrogateRequest) -> Surrogate:
    """Run the client part of the mlp surrogate: fine-tune it on the current repulsion by the client's rows."""
    from raydr.methods.fedne.encoder import one_torch_thread
    from raydr.methods.fedne.networks import fit_surrogate, query_grid, targets

    positions, random = positions_of(client.rows, request.weights, request.hidden), client.stream("surrogate")
    queries = query_grid(positions, request.step, margin=MARGIN) if request.points == "grid" else positions
    with one_torch_thread():
        values = targets(queries, positions, request.negatives, random, request.softening)
        return Surrogate(
            fit_surrogate(
                request.surrogates, queries, values, epochs=EPOCHS, learning_rate=1e-3, random=random
            )
        )
