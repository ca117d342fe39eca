"""Federated principal components by power iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from raydr.arrays import Float64Array
from raydr.federation import Client, Federation, Granularity, Loop, Range, Reply, Request, answers
from raydr.methods import MethodSettings, Outcome, method


class PowerPCA(MethodSettings):
    """Federated principal components by power iteration."""

    kind: Literal["power-pca"] = "power-pca"
    rounds: int = Field(30, ge=1, description="products with the second moments")


@dataclass(frozen=True)
class Product(Reply, granularity=Granularity.AGGREGATE, what="a client's second moments times two axes"):
    product: Float64Array  # (features, 2)

    @staticmethod
    def ranges(request: ProductRequest, rows: int) -> dict[str, Range]:
        return {"product": Range(request.axes.shape, len(request.axes) ** 0.5)}  # rows lie between 0 and 1


@dataclass(frozen=True)
class ProductRequest(Request[Product], what="the present axes"):
    axes: Float64Array  # (features, 2)


@answers(ProductRequest)
def product(client: Client, request: ProductRequest) -> Product:
    return Product(client.rows.T @ (client.rows @ request.axes) / len(client.rows))


@dataclass(frozen=True)
class Places(Reply, granularity=Granularity.PER_RECORD, what="every record's coordinates on the axes"):
    places: Float64Array  # (rows, 2)

    @staticmethod
    def ranges(request: PlacesRequest, rows: int) -> dict[str, Range]:
        return {"places": Range((rows, 2))}


@dataclass(frozen=True)
class PlacesRequest(Request[Places], what="the axes"):
    axes: Float64Array  # (features, 2)


@answers(PlacesRequest)
def places(client: Client, request: PlacesRequest) -> Places:
    return Places(client.rows @ request.axes)


@dataclass(kw_only=True, frozen=True)
class State:
    axes: Float64Array  # (features, 2)


@method(PowerPCA, "Power PCA")
def serve(federation: Federation, settings: PowerPCA) -> Outcome:
    start = federation.stream("axes").standard_normal((federation.features, 2))
    loop = Loop(State(axes=np.linalg.qr(start)[0]))
    for _ in federation.rounds(settings.rounds, loop):
        answer = federation.mean(ProductRequest(loop.state.axes), weights="rows")
        loop.state = State(axes=np.linalg.qr(answer.product)[0])
    replies = federation.ask(PlacesRequest(loop.state.axes))
    return Outcome(embedding=np.concatenate([reply.places for reply in replies]), geometry=None)
