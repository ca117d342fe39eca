"""The two ends between which FedNE stands (P2 5.1): each client by itself, and everybody's rows in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float32Array, Float64Array, FloatArray
from raydr.federation import Client, Federation, Granularity, Range, Reply, Request, answers
from raydr.federation.streams import client_stream, server_stream
from raydr.journal import Journal
from raydr.methods.fedne import model_of, standardised
from raydr.methods.fedne_clients import LARGEST_LOSS, Positions
from raydr.methods.fedne_settings import ContrastiveEncoder, GlobalNE, LocalNE
from raydr.methods.outcome import Outcome
from raydr.scaling import Scaling, scale_rows

Randomness = Callable[[int, str], np.random.Generator]
"""Random numbers for a round and a purpose."""


def epochs_on(
    rows: FloatArray, settings: ContrastiveEncoder, random: Randomness, *, threads: int = 1
) -> Iterator[tuple[Float32Array, float]]:
    """Weights and mean loss after each round of training on these rows (rows, features) alone."""
    from raydr.fedne.edges import local_neighbors, schedule
    from raydr.fedne.encoder import Architecture, initial_weights, one_torch_thread
    from raydr.fedne.training import Local, Objective, train

    architecture = Architecture(rows.shape[1], settings.hidden)
    nearest = local_neighbors(rows, settings.neighbors, threads=threads)
    objective = Objective(float(settings.negatives), np.ones(1, np.float32))
    weights = initial_weights(architecture, random(0, "encoder"))
    for round in range(1, settings.rounds + 1):
        batches = schedule(
            nearest,
            batch=settings.batch,
            epochs=settings.local_epochs,
            negatives=settings.negatives,
            mixing=None,
            steps=settings.local_steps,
            random=random(round, "batches"),
        )
        with one_torch_thread():
            trained = train(
                architecture, weights, [Local(rows, batches)], objective, learning_rate=settings.rate(round)
            )
        weights = trained.weights[0]
        yield weights, float(trained.losses[0])


@dataclass(frozen=True)
class Loss(Reply, granularity=Granularity.AGGREGATE, what="the mean loss of a client's own training"):
    """``loss`` of one round."""

    loss: float

    @staticmethod
    def ranges(request: AloneRequest, rows: int) -> dict[str, Range]:
        """Clipped at the client."""
        return {"loss": Range((), LARGEST_LOSS)}


@dataclass(frozen=True)
class AloneRequest(Request[Loss], what="word that a round has begun"):
    """Asked in each round; ``round`` counts from 1."""

    settings: LocalNE
    round: int


@answers(AloneRequest)
def train_alone(client: Client, request: AloneRequest) -> Loss:
    """Client part of LocalNE. A client that was restarted or left out rounds catches up with them."""
    return Loss(min(_until(client, request.settings, request.round)[1], LARGEST_LOSS))


@dataclass(frozen=True)
class AlonePositionRequest(Request[Positions], what="word that the rounds are over"):
    """Asked once, at the end."""

    settings: LocalNE


@answers(AlonePositionRequest)
def post_own_positions(client: Client, request: AlonePositionRequest) -> Positions:
    """Positions by the client's own encoder."""
    from raydr.fedne.encoder import Architecture, place

    settings = request.settings
    architecture = Architecture(client.rows.shape[1], settings.hidden)
    return Positions(place(architecture, _until(client, settings, settings.rounds)[0], client.rows))


def _until(client: Client, settings: LocalNE, round: int) -> tuple[Float32Array, float]:
    """Weights and loss after a round, going on from what the client remembers."""
    if "alone" not in client.memory:

        def random(round: int, purpose: str) -> np.random.Generator:
            return client_stream(client.seed, client.index, round, purpose)

        client.memory["alone"] = [0, None, epochs_on(client.rows, settings, random)]
    remembered = client.memory["alone"]
    while remembered[0] < round:
        remembered[:2] = remembered[0] + 1, next(remembered[2])
    done: tuple[Float32Array, float] = remembered[1]
    return done


def serve_local(federation: Federation, settings: LocalNE) -> Outcome:
    """Server part of LocalNE: it counts rounds. Each client's rows lie on a map of their own."""
    with federation.stage("input scale"):
        standardised(federation)
    for round in federation.rounds(settings.rounds, {}):
        federation.report(objective=federation.mean(AloneRequest(settings, round), weights="rows").loss)
    with federation.stage("map"):
        replies = federation.ask(AlonePositionRequest(settings))
    return Outcome(np.concatenate([reply.places for reply in replies]), None)


@dataclass(frozen=True)
class Rows(
    Reply, granularity=Granularity.PER_RECORD, what="every record itself, which no federation would allow"
):
    """``rows`` (rows, features) float32."""

    rows: Float32Array

    @staticmethod
    def ranges(request: RowsRequest, rows: int) -> dict[str, Range]:
        """All of them."""
        return {"rows": Range((rows, request.features), dtype="float32")}


@dataclass(frozen=True)
class RowsRequest(Request[Rows], what="a request for everything"):
    """Asked once."""

    features: int


@answers(RowsRequest)
def hand_over(client: Client, request: RowsRequest) -> Rows:
    """Client part of GlobalNE."""
    return Rows(np.asarray(client.rows, np.float32))


def serve_global(federation: Federation, settings: GlobalNE) -> Outcome:
    """Server part of GlobalNE: it trains on everybody's rows."""
    from raydr.fedne.encoder import Architecture, place

    with federation.stage("input scale"):
        scaling, _ = standardised(federation)
    with federation.stage("pooling"):
        rows = np.concatenate([reply.rows for reply in federation.ask(RowsRequest(federation.features))])

    architecture = Architecture(federation.features, settings.hidden)
    weights, loss = np.zeros(0, np.float32), 0.0
    training = epochs_on(
        rows, settings, lambda round, purpose: server_stream(federation.seed, round, purpose)
    )
    # A resumed run trains again from the start: nothing here is worth a checkpoint's megabytes.
    done = 0
    for round in federation.rounds(settings.rounds, {}):
        while done < round:
            weights, loss = next(training)
            done += 1
        federation.report(objective=loss)
    while done < settings.rounds:  # resumed after the last
        weights, loss = next(training)
        done += 1
    with federation.stage("map"):
        places = place(architecture, weights, rows)
    return Outcome(places, None, model_of(architecture.layers(weights), scaling))


def central(settings: ContrastiveEncoder, rows: FloatArray, seed: int, journal: Journal) -> Float64Array:
    """Map (rows, 2) of pooled rows (rows, features) by GlobalNE, with the same encoder, batches and learning rates.

    It sees all edges of all rows once in each of as many rounds, but no more than `GlobalNE` takes.
    """
    from raydr.fedne.encoder import Architecture, place

    mean = rows.mean(axis=0, dtype=np.float64)
    scale = float(np.sqrt(rows.var(axis=0, dtype=np.float64).mean())) or 1.0
    scaled = scale_rows(rows, Scaling(mean, np.full(rows.shape[1], 1.0 / scale), False))
    rounds = min(settings.rounds, GlobalNE().rounds)
    settings = settings.model_copy(update={"rounds": rounds, "local_epochs": 1, "local_steps": None})
    weights = np.zeros(0, np.float32)
    with journal.stage("embedding"):
        journal.progress(0, settings.rounds)
        training = epochs_on(scaled, settings, lambda round, purpose: server_stream(seed, round, purpose))
        for done, (trained, _) in enumerate(training, 1):
            weights = trained
            journal.progress(done, settings.rounds)
    return place(Architecture(rows.shape[1], settings.hidden), weights, scaled).astype(np.float64)
