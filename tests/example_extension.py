"""One of each thing that a package can add to raydr, in one file.

Federated principal components by power iteration: in each round clients multiply their second moments with two axes;
in the end each posts its records' coordinates along them. `test_extensions.py` runs it all through the command.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field

from raydr.arrays import Float64Array, FloatArray
from raydr.federation import Client, Federation, Granularity, Range, Reply, Request, answers
from raydr.journal import Journal
from raydr.methods import Outcome, method
from raydr.settings import Settings


class FedPCA(Settings):
    """Federated principal components by power iteration."""

    kind: Literal["fed-pca"] = "fed-pca"
    rounds: int = Field(30, ge=1, description="products with the second moments")

    def check(self, rows: int, features: int) -> None:
        """Any table has two axes."""


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


@dataclass(frozen=True)
class CoordinatesRequest(Request[Coordinates], what="the axes"):
    """``axes`` (features, 2) float64, and what clients are to do to their coordinates."""

    axes: Float64Array


@answers(CoordinatesRequest)
def coordinates(client: Client, request: CoordinatesRequest) -> Coordinates:
    """Client part of the end."""
    return Coordinates(client.rows.astype(np.float64) @ request.axes)


def central(settings: FedPCA, rows: FloatArray, seed: int, journal: Journal) -> Float64Array:
    """Coordinates of pooled rows on their principal axes about the origin."""
    axes = np.linalg.svd(rows.astype(np.float64), full_matrices=False)[2][:2]
    return np.asarray(rows @ axes.T)


@method(FedPCA, "Fed-PCA", central=central, noise_on=frozenset({"coordinates"}))
def serve(federation: Federation, settings: FedPCA) -> Outcome:
    """Server part: orthogonal iteration."""
    start = federation.stream("axes").standard_normal((federation.features, 2))
    state: dict[str, Any] = {"axes": np.linalg.qr(start)[0]}
    for _ in federation.rounds(settings.rounds, state):
        answer = federation.mean(ProductRequest(state["axes"]), weights="rows")
        state["axes"] = np.linalg.qr(answer.product)[0]
    replies = federation.ask(CoordinatesRequest(state["axes"]))
    return Outcome(np.concatenate([reply.places for reply in replies]), None)
