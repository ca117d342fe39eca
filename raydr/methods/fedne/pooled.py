"""Training on rows in one place: one client's own, or all rows, which no federation would allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Self

import numpy as np

from raydr.arrays import Float32Array, Float64Array, FloatArray
from raydr.federation import Federation, Rehearsal
from raydr.federation.streams import server_stream
from raydr.geometry.points import variances
from raydr.journal import Journal
from raydr.methods.fedne.flops import training_operations
from raydr.methods.fedne.model import encoded, encoder_input, unscaled
from raydr.methods.fedne.positions import positions_of
from raydr.methods.fedne.settings import LATE_AT_SERVER, POOLED_ROUNDS, ContrastiveEncoder
from raydr.methods.novelty_by_axes import novelty_by_axes
from raydr.methods.outcome import Pooled
from raydr.methods.references import label_columns, novelty_by_rows
from raydr.statistics.scaling import Scaling, scale_rows

Randomness = Callable[[int, str], np.random.Generator]
"""Random numbers for a round and a purpose."""


def epochs_on(
    rows: FloatArray,
    settings: ContrastiveEncoder,
    random: Randomness,
    *,
    label: int = 0,
    first: Float32Array | None = None,
) -> Iterator[tuple[Float32Array, float]]:
    """Yield weights and mean loss after each round of training on these rows (rows, features) alone.

    The last ``label`` columns take part in the search for neighbours, and the encoder does not read them. Training
    starts from random weights, or from the weights ``first`` (parameters,) at the rates of the end of the schedule.
    """
    from raydr.methods.fedne.edges import local_neighbors, schedule
    from raydr.methods.fedne.encoder import Architecture, initial_weights, one_torch_thread
    from raydr.methods.fedne.training import Local, Objective, train

    nearest = local_neighbors(rows, settings.neighbors)
    rows = rows[:, : rows.shape[1] - label]
    architecture = Architecture(rows.shape[1], settings.widths(rows.shape[1]))
    objective = Objective(float(settings.negatives), np.ones(1, np.float32), softening=settings.softening)
    weights = initial_weights(architecture, random(0, "encoder")) if first is None else first
    for round in range(1, settings.rounds + 1):
        batches = schedule(
            nearest,
            batch=settings.batch,
            epochs=settings.local_epochs,
            negatives=settings.negatives,
            mixing=None,
            steps=settings.local_steps,
            from_rows=settings.negatives_from == "rows",
            random=random(round, "batches"),
        )
        with one_torch_thread():
            trained = train(
                architecture,
                weights,
                [Local(rows, batches)],
                objective,
                learning_rate=settings.rate(round, late=1 if first is None else LATE_AT_SERVER),
                floor=settings.adam_floor,
            )
        weights = trained.weights[0]
        yield weights, float(trained.losses[0])


def standard(rows: FloatArray, settings: ContrastiveEncoder) -> tuple[FloatArray, Scaling]:
    """Return rows (rows, features) float32, centred and divided by one number: mean variance 1 per feature.

    If the settings do not standardise, return the rows as they are.
    """
    if not settings.standardise:
        return rows, unscaled(rows.shape[1])
    mean = rows.mean(axis=0, dtype=np.float64)
    scale = float(np.sqrt(variances(rows).mean())) or 1.0
    scaling = Scaling(mean, np.full(rows.shape[1], 1.0 / scale))
    return scale_rows(rows, scaling, single=True), scaling


def trained_at_server(
    federation: Federation,
    rows: FloatArray,
    settings: ContrastiveEncoder,
    first: Float32Array | None = None,
) -> Float32Array:
    """Train an encoder at the server on its data of all rows, round by round; return its weights (parameters,).

    ``first`` as for :func:`epochs_on`.

    A resumed run trains again from the start, because the state is not worth megabytes of checkpoints.
    """
    weights, loss, done = np.zeros(0, np.float32), 0.0, 0
    training = epochs_on(
        rows, settings, lambda round, purpose: server_stream(federation.seed, round, purpose), first=first
    )
    for round in federation.rounds(settings.rounds):
        while done < round:
            weights, loss = next(training)
            done += 1
        federation.report(objective=loss)
    while done < settings.rounds:  # resumed after the last round
        weights, loss = next(training)
        done += 1
    return weights


def rehearse_training(federation: Rehearsal, settings: ContrastiveEncoder, features: int) -> None:
    """Count the operations of :func:`trained_at_server` for rows with this many features."""
    for _ in federation.rounds(settings.rounds):
        operations = training_operations(settings, [federation.rows], features)
        federation.add_operations(at_server=operations)


class PooledEncoder(ContrastiveEncoder):
    """Settings of a method whose pooled-data map comes from global NE, with its encoder, batches and learning rates."""

    def central(
        self, model: Mapping[str, FloatArray], rows: FloatArray, seed: int, journal: Journal
    ) -> Pooled:
        """Return the map (rows, 2) of pooled rows (rows, features)."""
        scaled, scaling = standard(rows, self)
        alone, weights, label = self._pooled(), np.zeros(0, np.float32), label_columns(model)
        with journal.stage("embedding"):
            journal.progress(0, alone.rounds)
            training = epochs_on(
                scaled, alone, lambda round, purpose: server_stream(seed, round, purpose), label=label
            )
            for done, (trained, _) in enumerate(training, 1):
                weights = trained
                journal.progress(done, alone.rounds)

        def place(table: FloatArray) -> FloatArray:
            features = table[:, : table.shape[1] - label]
            return positions_of(features, weights, self.widths(features.shape[1])).astype(np.float64)

        return Pooled(place(scaled), place=lambda new: place(scale_rows(new, scaling)))

    def central_operations(self, rows: int, features: int) -> float:
        """Return the operations of its training."""
        alone = self._pooled()
        return alone.rounds * training_operations(alone, [rows], features)

    def _pooled(self) -> Self:
        """Return settings with all edges of all rows once per round, for as many rounds, at most 60."""
        rounds = min(self.rounds, POOLED_ROUNDS)
        return self.model_copy(update={"rounds": rounds, "local_epochs": 1, "local_steps": None})


class SharedEncoder(PooledEncoder):
    """One encoder for all clients, which places new rows without a server."""

    def why_no_prior(self) -> None:
        """Return None: training can start from the encoder of an earlier run."""

    def transform(self, model: Mapping[str, FloatArray], rows: FloatArray) -> FloatArray:
        """Return positions (rows, 2) of new rows (rows, features), scaled as in the run, by the run's encoder."""
        return encoded(model, rows)

    def novelty(self, model: Mapping[str, FloatArray], rows: FloatArray) -> Float64Array | None:
        """Return p-values (rows,) in the space of the features, by what the server knows of the mapped rows there.

        Not on the map. The encoder was trained on the mapped rows, so new ones lie farther from them there: 0.10 of
        held-out digits, not 0.05, were farther from the nearest group than 0.95 of the mapped rows.
        """
        if "references" in model:
            return novelty_by_rows(model, rows)
        return novelty_by_axes(model, encoder_input(model, rows))
