"""The two extremes that P2 (5.1) compares FedNE with: each client alone, and all rows pooled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np

from raydr.arrays import Float32Array, FloatArray
from raydr.federation import (
    Client,
    DeterminedRecords,
    Federation,
    Granularity,
    Range,
    RecordContent,
    Rehearsal,
    Reply,
    Request,
    answers,
)
from raydr.federation.streams import client_stream
from raydr.methods.fedne.clients import LARGEST_LOSS
from raydr.methods.fedne.flops import training_operations
from raydr.methods.fedne.model import encoded, model_of, scaled, weights_of_prior
from raydr.methods.fedne.pooled import (
    PooledEncoder,
    SharedEncoder,
    epochs_on,
    rehearse_training,
    trained_at_server,
)
from raydr.methods.fedne.positions import Positions, architecture_of, positions_of
from raydr.methods.fedne.settings import PresetSettings
from raydr.methods.method import method
from raydr.methods.outcome import Outcome
from raydr.methods.references import compared_groups


class LocalNE(PresetSettings, PooledEncoder):
    """One encoder per client: no messages, and no common map (P2's LocalNE).

    Metrics of held-out rows are means over the maps of all clients, on each of which the client's encoder places them.
    """

    kind: Literal["local-ne"] = "local-ne"
    no_new_rows: ClassVar[str] = "each client draws its own map, with an encoder that never leaves the client"

    def rehearse(self, federation: Rehearsal) -> None:
        """Ask what :func:`serve_local` asks."""
        with federation.by_sample(), federation.stage("input scale"):
            scaled(federation, self)
        with federation.stage("rounds"):  # which a run adds to the stage before
            for round in federation.rounds(self.rounds):
                federation.mean(AloneRequest(self, round), weights="rows")
                federation.add_operations(
                    at_clients=training_operations(self, federation.sizes, federation.features)
                )
        with federation.stage("map"):
            federation.ask(AlonePositionRequest(self))
            federation.ask(OwnEncoderRequest(self, federation.features))

    def transform_alone(self, model: Mapping[str, FloatArray], rows: FloatArray) -> FloatArray:
        """Return positions (rows, 2) of rows (rows, features) by the encoder of one client."""
        return encoded(model, rows)


@dataclass(frozen=True)
class Loss(Reply, granularity=Granularity.AGGREGATE, what="the mean loss of a client's own training"):
    """``loss`` of one round."""

    loss: float

    @staticmethod
    def ranges(request: AloneRequest, rows: int) -> dict[str, Range]:
        """Return the range; clients clip the loss to it."""
        return {"loss": Range((), LARGEST_LOSS)}


@dataclass(frozen=True)
class AloneRequest(Request[Loss], what="notice that a round has begun"):
    """Request of each round; ``round`` counts from 1."""

    settings: LocalNE
    round: int


@answers(AloneRequest)
def train_alone(client: Client, request: AloneRequest) -> Loss:
    """Run the client part of LocalNE.

    A client that was restarted or missed rounds catches up with them.
    """
    return Loss(min(_until(client, request.settings, request.round)[1], LARGEST_LOSS))


@dataclass(frozen=True)
class AlonePositionRequest(Request[Positions], what="notice that the rounds are over"):
    """Request at the end of the run."""

    settings: LocalNE


@answers(AlonePositionRequest)
def post_own_positions(client: Client, request: AlonePositionRequest) -> Positions:
    """Return the positions of the client's rows by its own encoder."""
    settings = request.settings
    weights, _ = _until(client, settings, settings.rounds)
    hidden = settings.widths(client.rows.shape[1])
    return Positions(positions_of(client.rows, weights, hidden))


@dataclass(frozen=True)
class OwnEncoder(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="the encoder that a client trained on its own records",
    stays=True,
):
    """``weights`` (parameters,) float32, which each client keeps."""

    weights: Float32Array

    @staticmethod
    def ranges(request: OwnEncoderRequest, rows: int) -> dict[str, Range]:
        """Return the range: any number for each parameter."""
        layers = pairwise((request.features, *request.settings.widths(request.features), 2))
        return {"weights": Range((sum((before + 1) * after for before, after in layers),), dtype="float32")}


@dataclass(frozen=True)
class OwnEncoderRequest(Request[OwnEncoder], what="notice that the rounds are over"):
    """Request at the end of the run, for the evaluation."""

    settings: LocalNE
    features: int


@answers(OwnEncoderRequest)
def keep_encoder(client: Client, request: OwnEncoderRequest) -> OwnEncoder:
    """Return the client's own encoder, which stays there."""
    return OwnEncoder(_until(client, request.settings, request.settings.rounds)[0])


def _until(client: Client, settings: LocalNE, round: int) -> tuple[Float32Array, float]:
    """Return weights and loss after a round, continuing from the client's memory."""
    if "alone" not in client.memory:

        def random(round: int, purpose: str) -> np.random.Generator:
            return client_stream(client.seed, client.index, round, purpose)

        client.memory["alone"] = [0, None, epochs_on(client.rows, settings, random)]
    remembered = client.memory["alone"]
    while remembered[0] < round:
        remembered[:2] = remembered[0] + 1, next(remembered[2])
    done: tuple[Float32Array, float] = remembered[1]
    return done


@method(LocalNE, "local NE")
def serve_local(federation: Federation, settings: LocalNE) -> Outcome:
    """Run the server part of LocalNE, which only counts rounds; each client's rows have their own map."""
    from raydr.methods.fedne.encoder import Architecture

    with federation.stage("input scale"):
        scaling, *_ = scaled(federation, settings)
    for round in federation.rounds(settings.rounds):
        federation.report(objective=federation.mean(AloneRequest(settings, round), weights="rows").loss)
    with federation.stage("map"):
        replies = federation.ask(AlonePositionRequest(settings))
        kept = federation.ask(OwnEncoderRequest(settings, federation.features))
    architecture = Architecture(federation.features, settings.widths(federation.features))
    return Outcome(
        embedding=np.concatenate([reply.places for reply in replies]),
        geometry=None,
        own_models=tuple(model_of(architecture.layers(own.weights), scaling) for own in kept),
    )


class GlobalNE(PresetSettings, SharedEncoder):
    """One encoder for the pooled rows, which clients would have to hand over (P2's GlobalNE)."""

    kind: Literal["global-ne"] = "global-ne"

    @property
    def rounds_asked(self) -> int:
        """Return 0: clients hand over their rows once."""
        return 0

    def rehearse(self, federation: Rehearsal) -> None:
        """Ask what :func:`serve_global` asks."""
        with federation.by_sample(), federation.stage("input scale"):
            scaled(federation, self)
        with federation.stage("pooling"):
            federation.ask(RowsRequest(federation.features))
            rehearse_training(federation, self, federation.features)


@dataclass(frozen=True)
class Rows(
    Reply,
    granularity=Granularity.PER_RECORD,
    what="every record itself, which a real federation would not allow",
    tells=RecordContent.VALUES,
):
    """``rows`` (rows, features) float32."""

    rows: Float32Array

    @staticmethod
    def ranges(request: RowsRequest, rows: int) -> dict[str, Range]:
        """Return the range of all rows."""
        return {"rows": Range((rows, request.features), dtype="float32")}

    def fixed(self, request: RowsRequest) -> DeterminedRecords:
        """Return all records: nothing is hidden."""
        rows, features = self.rows.shape
        return DeterminedRecords(records=rows, exact=rows, dimensions=features, features=features, points=0)


@dataclass(frozen=True)
class RowsRequest(Request[Rows], what="a request for all records"):
    """Request for all rows, sent once."""

    features: int


@answers(RowsRequest)
def hand_over(client: Client, request: RowsRequest) -> Rows:
    """Run the client part of GlobalNE."""
    return Rows(np.asarray(client.rows, np.float32))


@method(GlobalNE, "global NE")
def serve_global(federation: Federation, settings: GlobalNE) -> Outcome:
    """Run the server part of GlobalNE, which trains on the rows of all clients."""
    with federation.stage("input scale"):
        scaling, *_ = scaled(federation, settings)
    with federation.stage("pooling"):
        rows = np.concatenate([reply.rows for reply in federation.ask(RowsRequest(federation.features))])
    hidden, prior = settings.widths(federation.features), federation.context.prior
    architecture = architecture_of(rows, hidden)
    first = None if prior is None else weights_of_prior(prior.model, architecture, wide=False)
    weights = trained_at_server(federation, rows, settings, first)
    with federation.stage("map"):
        places = positions_of(rows, weights, hidden)
    model = model_of(architecture.layers(weights), scaling)
    if not federation.context.blurred:
        with federation.stage("references for new rows"):
            model |= compared_groups(places, scaling.undone(rows), lambda means: means, np.zeros(len(rows)))
    return Outcome(embedding=places, geometry=None, model=model)
