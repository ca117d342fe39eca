"""One of each thing that a package can add to raydr, in one file.

Federated principal components by power iteration: in each round clients multiply their second moments with two axes;
in the end each posts its records' coordinates along them. `test_extensions.py` runs it all through the command.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from raydr.arrays import Float64Array, FloatArray
from raydr.attacks import Estimate, NotApplicableError, Reconstruction, Side, View, attack
from raydr.data import Table
from raydr.embedding import embedder
from raydr.federation import Client, Federation, Granularity, Loop, Range, Reply, Request, answers
from raydr.federation.simulated import Adversary, adversary
from raydr.geometry.neighbors import NeighborGraph
from raydr.geometry.points import Progress
from raydr.journal import Journal
from raydr.methods import MethodSettings, Outcome, Pooled, method
from raydr.metrics import metric
from raydr.metrics.evidence import Examination
from raydr.partition import Dealing, Partition, partition
from raydr.privacy import Mechanism, Quantity, mechanism
from raydr.settings import Settings


class PowerPCA(MethodSettings):
    """Federated principal components by power iteration."""

    kind: Literal["power-pca"] = "power-pca"
    rounds: int = Field(30, ge=1, description="products with the second moments")
    noise_on: ClassVar[frozenset[str]] = frozenset({"coordinates"})
    some_noisy: ClassVar[bool] = True

    def central(
        self, model: Mapping[str, FloatArray], rows: FloatArray, seed: int, journal: Journal
    ) -> Pooled:
        """Coordinates of pooled rows on their principal axes about the origin."""
        axes = np.linalg.svd(rows.astype(np.float64), full_matrices=False)[2][:2]
        return Pooled(rows @ axes.T)

    def server_bytes(self, rows: int, features: int, clients: int) -> int:
        """A copy of all coordinates, in double precision, for `raydr plan`."""
        return 8 * rows * 2


@dataclass(frozen=True)
class Product(Reply, granularity=Granularity.AGGREGATE, what="a client's second moments times two axes"):
    """``product`` (features, 2) float64, a mean over the client's rows."""

    product: Float64Array

    @staticmethod
    def ranges(request: ProductRequest, rows: int) -> dict[str, Range]:
        """Rows are scaled to entries between 0 and 1, axes have length 1."""
        return {"product": Range(request.axes.shape, float(np.sqrt(len(request.axes))))}


@dataclass(frozen=True)
class ProductRequest(Request[Product], what="the present axes"):
    """``axes`` (features, 2) float64."""

    axes: Float64Array


@answers(ProductRequest)
def product(client: Client, request: ProductRequest) -> Product:
    """Client part of a round."""
    rows = client.rows.astype(np.float64)
    return Product(rows.T @ (rows @ request.axes) / len(rows))


@dataclass(frozen=True)
class Coordinates(Reply, granularity=Granularity.PER_RECORD, what="every record's coordinates on the axes"):
    """``places`` (rows, 2) float64."""

    places: Float64Array

    @staticmethod
    def ranges(request: CoordinatesRequest, rows: int) -> dict[str, Range]:
        """Two numbers for each row."""
        return {"places": Range((rows, 2))}

    def quantities(self, on: str, request: object) -> dict[str, Quantity]:
        """What a mechanism on coordinates may change."""
        return {"places": Quantity(self.places, 1.0)}

    def covered(self, values: Mapping[str, Float64Array], mechanism: Mechanism) -> Coordinates:
        """The same with what the mechanism made of the places."""
        return Coordinates(values["places"])


@dataclass(frozen=True)
class CoordinatesRequest(Request[Coordinates], what="the axes"):
    """``axes`` (features, 2) float64, and what the client's host is to do to the coordinates."""

    axes: Float64Array
    mechanism: Mechanism | None = None


@dataclass(frozen=True)
class CoordinatesRequests(Request[Coordinates], what="the axes"):
    """A request for each client."""

    own: tuple[CoordinatesRequest, ...]

    def addressed_to(self, client: int) -> CoordinatesRequest:  # type: ignore[override]
        """What one client is told."""
        return self.own[client]


@answers(CoordinatesRequest)
def coordinates(client: Client, request: CoordinatesRequest) -> Coordinates:
    """Client part of the end."""
    return Coordinates(client.rows.astype(np.float64) @ request.axes)


@dataclass(kw_only=True, frozen=True)
class State:
    """``axes`` (features, 2) float64: what one round passes to the next."""

    axes: Float64Array


@method(PowerPCA, "Power PCA")
def serve(federation: Federation, settings: PowerPCA) -> Outcome:
    """Server part: orthogonal iteration."""
    start = federation.stream("axes").standard_normal((federation.features, 2))
    loop = Loop(State(axes=np.linalg.qr(start)[0]))
    for _ in federation.rounds(settings.rounds, loop):
        answer = federation.mean(ProductRequest(loop.state.axes), weights="rows")
        loop.state = State(axes=np.linalg.qr(answer.product)[0])
    mechanisms: tuple[Mechanism | None, ...] = (None,) * federation.clients
    coverage = federation.context.coverage
    if coverage is not None:
        mechanisms = coverage.of_each(federation.clients, federation.stream("who covers"))
    asked = tuple(CoordinatesRequest(loop.state.axes, mechanism) for mechanism in mechanisms)
    replies = federation.ask(CoordinatesRequests(asked))
    return Outcome(embedding=np.concatenate([reply.places for reply in replies]), geometry=None)


@mechanism
class Rounding(Mechanism):
    """Values rounded to multiples of a step."""

    on: Literal["coordinates", "distances"] = Field(description="what is rounded")
    step: float = Field(gt=0, description="distance between two values that can be told apart")
    kind: Literal["rounding"] = "rounding"

    @property
    def words(self) -> str:
        """For people."""
        return f"rounding of {self.on} to multiples of {self.step:g}"

    @property
    def deviation(self) -> float:
        """Of what is uniform between -step / 2 and step / 2."""
        return float(self.step / np.sqrt(12.0))

    def cover(self, quantity: Quantity, stream: np.random.Generator) -> Float64Array:
        """The nearest multiples."""
        return np.asarray(self.step * quantity.unit * np.rint(quantity.values / (self.step * quantity.unit)))


@adversary
class Silence(Adversary):
    """Nothing but zeros."""

    kind: Literal["silence"] = "silence"

    def lie(self, truth: Float64Array, declared: Range, agreed: np.random.Generator) -> Float64Array:
        """Zeros."""
        return np.zeros(declared.shape)


@attack("same-place", "says that a record is the public row nearest to it on the axes")
def same_place(view: View, side: Side) -> Iterator[Reconstruction]:
    """The axes are the server's own, so it can place rows of similar data on them too."""
    found = view.transcript.of(Coordinates)
    if not found:
        raise NotApplicableError("no client posted coordinates.")
    rows, estimates = [], []
    for seen, reply in found:
        axes = seen.request.axes  # type: ignore[attr-defined]
        apart = ((reply.places[:, None] - side.require_public(1) @ axes) ** 2).sum(axis=2)
        rows.append(view.rows_of(seen.client or 0))
        estimates.append(np.asarray(side.public[apart.argmin(axis=1)], np.float64))
    yield Reconstruction(
        uses=(Coordinates,),
        knows="rows of similar data",
        numbers={"public_rows": len(side.public)},
        estimate=Estimate.of(np.concatenate(rows), np.concatenate(estimates)),
        guess=np.asarray(side.public.mean(axis=0, dtype=np.float64)),
    )


@partition
class Blocks(Dealing):
    """Rows dealt in blocks, in their order."""

    kind: Literal["blocks"] = "blocks"
    needs_count: ClassVar[bool] = True

    def deal(self, table: Table, clients: int | None, seed: int) -> Partition:
        """As evenly as can be; nothing is drawn."""
        count = self.counted(clients)
        owners = np.arange(len(table.rows), dtype=np.int64) * count // len(table.rows)
        return Partition(owners, tuple(f"block-{index}" for index in range(count)))


@embedder
class Still(Settings):
    """The first layout, as it is but for its size."""

    kind: Literal["still"] = "still"
    factor: float = Field(1.0, gt=0, description="on every coordinate")

    def neighbors_needed(self, rows: int) -> int:
        """One, since there has to be a graph."""
        return 1

    def embed(
        self,
        graph: NeighborGraph,
        initialization: FloatArray,
        *,
        seed: int,
        threads: int = 1,
        progress: Progress | None = None,
    ) -> FloatArray:
        """The first layout times the factor."""
        return np.asarray(self.factor * initialization)


@metric("reach", "Reach", "the largest coordinate of the map", needs=set())
def reach(examination: Examination) -> float:
    """Largest absolute coordinate."""
    return float(np.abs(examination.embedding).max())
