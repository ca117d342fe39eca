"""Positions of rows on the map of an encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from raydr.arrays import Float32Array, FloatArray
from raydr.federation import Client, Granularity, Range, RecordContent, Reply, Request, answers

if TYPE_CHECKING:
    from raydr.methods.fedne.encoder import Architecture


def architecture_of(rows: FloatArray, hidden: tuple[int, ...]) -> Architecture:
    """Return the encoder's architecture from rows (rows, features) to the plane."""
    from raydr.methods.fedne.encoder import Architecture

    return Architecture(rows.shape[1], hidden)


def positions_of(rows: FloatArray, weights: Float32Array, hidden: tuple[int, ...]) -> Float32Array:
    """Return the positions (rows, 2) float32 of rows (rows, features) by an encoder's ``weights`` (parameters,)."""
    from raydr.methods.fedne.encoder import place

    return place(architecture_of(rows, hidden), weights, rows)


@dataclass(frozen=True)
class Positions(
    Reply,
    granularity=Granularity.PER_RECORD,
    what="the position of every record on the map",
    tells=RecordContent.PLACES,
):
    """``places`` (rows, 2) float32."""

    places: Float32Array

    @staticmethod
    def ranges(request: PositionRequest, rows: int) -> dict[str, Range]:
        """Return the range: two coordinates per row."""
        return {"places": Range((rows, 2), dtype="float32")}


@dataclass(frozen=True)
class PositionRequest(Request[Positions], what="the final encoder"):
    """Request at the end of the run, for the map."""

    weights: Float32Array
    hidden: tuple[int, ...]


@answers(PositionRequest)
def post_positions(client: Client, request: PositionRequest) -> Positions:
    """Run the client part of the map."""
    return Positions(positions_of(client.rows, request.weights, request.hidden))


@dataclass(frozen=True)
class PositionsAtHome(
    Positions, granularity=Granularity.PER_RECORD, what="the position of every record on the map", stays=True
):
    """Positions that each client keeps."""


@dataclass(frozen=True)
class PlaceAtHome(Request[PositionsAtHome], what="the final encoder"):
    """Request at the end of the run: each client places its own rows, and keeps the result."""

    weights: Float32Array
    hidden: tuple[int, ...]


@answers(PlaceAtHome)
def keep_positions(client: Client, request: PlaceAtHome) -> PositionsAtHome:
    """Run the client part of a map that stays at the clients."""
    return PositionsAtHome(positions_of(client.rows, request.weights, request.hidden))
