"""FedNE (P2, figure 1), FedAvg+NE and FedProx+NE: one shared encoder, trained where the rows are.

1. The server starts the encoder: near the map of the first principal components, learnt by sums, or at
random. If prototypes (means of groups of records) are requested, it trains the encoder on them.
2. In each round clients send how their part of the current map repels points. It is their share of a summed
table, or a small network each.
3. Each client trains the encoder on some batches of its own neighbour graph, and uploads the change.
4. The server averages the changes by rows (4).
5. At the end each client places its rows and sends their positions on the map.

Two effects, repulsion and drift, separate this from pooled training; unseen neighbours are not one of them. Train one
encoder on the union of the clients' graphs in one place, and another on the graph of all rows. By kNN accuracy, the two
are equally good. Exact neighbours (NPA-10) are lost with the unseen ones (docs/fedne.md).

*Repulsion.* The field describes all rows when the round began, and rows that leave a crowd together by an old table
overshoot. So a client removes its own density from the field. Its rows repel each other where they are now, weighted by
their share of all rows. A larger weight would be wrong. A batch of a client with one class is not a sample of the map,
and its rows would drive each other apart. The others' field counts twice, because a pair repels at both ends
(`clients`).

*Drift.* Each client's batches pull the encoder towards its own classes, and the mean of the clients' results
does not minimise their mean loss. Control variates (SCAFFOLD, Karimireddy et al. 2020) correct this. Client i
adds c - c_i to every gradient: c_i is its mean gradient of the last round, and c the mean of all. The server
sees c alone; c_i travels sealed (`raydr.privacy.sealing`), because clients keep nothing between rounds.
docs/fedne.md has the gain of both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from raydr.arrays import Float32Array, FloatArray, shaped
from raydr.federation import Federation, Loop, Rehearsal, average
from raydr.journal import Journal
from raydr.methods.fedne.clients import FieldSource, Training, TrainRequest
from raydr.methods.fedne.dp_costs import (
    DENSITY_SHARE,
    by_record,
    moments_part,
    noise_on_updates,
    rehearse_scaled,
    scaled_within_bounds,
    weighting,
)
from raydr.methods.fedne.flops import felt_operations, mixing_operations, training_operations
from raydr.methods.fedne.model import encoding, model_of, scaled, weights_of_prior
from raydr.methods.fedne.optimizer import adam_step
from raydr.methods.fedne.pairs import DIRECTIONS, PairRequest
from raydr.methods.fedne.pooled import SharedEncoder
from raydr.methods.fedne.positions import PlaceAtHome, PositionRequest
from raydr.methods.fedne.projection import MOST_COLUMNS, input_width, projected, projects_at_random
from raydr.methods.fedne.round_state import ControlVariates, RoundState
from raydr.methods.fedne.settings import LATE, AveragedEncoder
from raydr.methods.method import OTHER_METHOD
from raydr.methods.novelty import MOMENTS
from raydr.methods.novelty_by_axes import novelty_model, rehearse_counts
from raydr.methods.outcome import Outcome
from raydr.privacy.mechanism import Mechanism
from raydr.robust import Mean
from raydr.sparse_rows import SparseRows
from raydr.statistics.principal_axes import PrincipalAxes, principal_axes, rehearse_axes
from raydr.threads import one_blas_thread

_MOST_ROUNDED = 2**13
"""Largest number of clients whose rounded summands cannot overflow 16 bits, with room to spare."""
_COMPARED_AXES, _ROWS_OF_AN_AXIS = 16, 50
"""Largest number of axes by which new rows are compared with the mapped ones, and rows for each: with more axes, more
false alarms. *Measured* on digits without nine: 0.21 of the nines are novel with 16 axes, 0.07 with two, as fed-pca has
them."""


class AveragedMap(AveragedEncoder, SharedEncoder):
    """Settings of methods that average encoders, with hooks for their differences; by default clients only train."""

    noise_on: ClassVar[frozenset[str]] = frozenset({"data", "update", "surrogate"})
    objective: ClassVar[str] = (
        "The objective is the mean loss of the clients while they train on their own records. Between"
        " rounds the encoders are averaged and the repulsion is updated, so no two rounds measure the"
        " same function: the objective may rise while the map gets better. Use the metrics to judge"
        " how faithful the map is."
    )

    # Where FedNE and FedProx-NE differ.

    @property
    def field_rounds(self) -> int:
        """Number of rounds in which surrogates are renewed."""
        return 0

    def uncovered(self, noise: Mechanism) -> str | None:
        """Return which of these settings noise on updates does not cover, as a clause; None if it covers all."""
        return None

    def training(self, federation: Federation) -> Training:
        """Return the settings of step 3, the same in all rounds."""
        from raydr.methods.fedne.edges import steps_of

        most = self.trained_rows(max(federation.sizes))
        steps = self.local_epochs * steps_of(most, self.own_neighbors, self.batch)
        return Training(
            hidden=self.widths(input_width(federation, self)),
            neighbors=self.own_neighbors,
            batch=self.batch,
            local_epochs=self.local_epochs,
            negatives=self.negatives,
            mixing=0.0,
            proximity=0.0,
            most_steps=min(steps, self.local_steps or steps),
            rows=federation.rows,
            together=federation.context.batch_clients,
            negatives_from=self.negatives_from,
            softening=self.softening,
            adam_floor=self.adam_floor,
            bits=self.sum_bits(federation),
        )

    def sum_bits(self, federation: Federation) -> int:
        """Return the bits of a number in the sums of changes and densities."""
        if self.update_bits is not None:
            return self.update_bits
        mean = noise_on_updates(federation) is None and isinstance(self.aggregation, Mean)
        return 16 if mean and self.standardise and federation.clients <= _MOST_ROUNDED else 64

    def first_weights(self, federation: Federation, axes: PrincipalAxes | None = None) -> Float32Array:
        """Run step 1: random weights (parameters,). ``axes`` are those of the rows, if ``starts_at_axes``."""
        from raydr.methods.fedne.encoder import Architecture, initial_weights

        width = input_width(federation, self)
        return initial_weights(Architecture(width, self.widths(width)), federation.stream("encoder"))

    def rehearse_first_weights(self, federation: Rehearsal) -> None:
        """Ask what :meth:`first_weights` asks."""

    def first_control_variates(self, federation: Federation, parameters: int) -> ControlVariates:
        """Return the state of control variates before the first round."""
        return ControlVariates.none()

    def surrogates_due(self, round: int) -> bool:
        """Return whether step 2 is due."""
        return False

    def renew_surrogates(self, federation: Federation, state: RoundState, round: int) -> RoundState:
        """Run step 2 if it is due."""
        return state

    def rehearse_surrogates(self, federation: Rehearsal, state: RoundState, round: int) -> RoundState:
        """Ask what :meth:`renew_surrogates` asks, for a map of the planned reach."""
        return state

    # What raydr asks of every method.

    def why_no_label(self) -> str | None:
        """Return why a label cannot take part in the search for neighbours."""
        if self.bounds is None:
            return None
        return "method.bounds limit the original features, to which the label's columns are added: leave them out"

    def releases(self, noise: Mechanism) -> float:
        """Return the cost of all releases in units of one update; 1 for noise on records, which is drawn once."""
        if noise.on == "data":
            return int(noise.for_good)
        if noise.on == "surrogate":
            return self.field_rounds
        spent = self.rounds + (DENSITY_SHARE * self.field_rounds if self.has_field else 0.0)
        return spent / (1.0 - moments_part(self))

    def why_no_budget(self, noise: Mechanism) -> str | None:
        """Return why a mechanism does not work with these settings; None if it does."""
        if noise.on != "update":
            return None
        if not self.standardise:
            return "noise on updates needs rows scaled to their bounds: leave method.standardise: false out"
        if self.bounds is None:
            return (
                "one record can move the rows' mean and scale without a bound: set method.bounds, the"
                " least and the largest value of any feature"
            )
        if self.update_bits == 16:
            return (
                "each client would round its update after its share of the noise, and the claim is for the sum of"
                " updates that are not rounded: leave method.update_bits out"
            )
        reason = self.uncovered(noise)
        if reason is None and noise.protects == "record" and self.server_optimizer != "fedavg":
            return (
                "with noise per record the server takes Adam's steps at method.learning_rate: leave"
                " method.server_optimizer out, or choose privacy.noise.unit: client"
            )
        return reason

    def posts(self) -> str | None:
        """Return what is sent without noise: positions, unless clients keep them."""
        return None if self.keeps_places else "the position of every record on the map"

    def why_no_key(self) -> str | None:
        """Return why rows may not be rotated: bounds limit the original features."""
        if self.bounds is None:
            return None
        return "method.bounds limit the original features, which the key rotates: leave them out"

    def why_dense(self, rows: int, features: int, *, pooled: bool) -> str | None:
        """Return why rows must be dense; None if clients project them at once."""
        if pooled:
            return f"the pooled-data map of method.kind {self.kind!r} takes dense rows: leave compare out"
        if rows and projects_at_random(self, rows, features):
            return None
        return (
            f"method.kind {self.kind!r} trains on dense rows, except on one table with more than {MOST_COLUMNS:,}"
            f" columns and more columns than rows: {OTHER_METHOD}"
        )

    def redraw(
        self, snapshot: Mapping[str, FloatArray], parts: Sequence[FloatArray], seed: int, journal: Journal
    ) -> Outcome:
        """Return the positions of each client's rows by an encoder of an earlier round, for the evaluation."""
        places = []
        for rows in parts:
            for block in rows.blocks() if isinstance(rows, SparseRows) else [rows]:
                if len(block):
                    encode, scaled = encoding(snapshot, block)
                    places.append(encode(scaled))
        return Outcome(embedding=np.concatenate(places), geometry=None)

    def rehearse(self, federation: Rehearsal) -> None:
        """Ask what :func:`serve` asks, for a map of the planned reach."""
        from raydr.methods.fedne.encoder import Architecture

        width = input_width(federation, self)
        hidden = self.widths(width)
        parameters = Architecture(width, hidden).parameters
        controls = self.first_control_variates(federation, parameters)
        noise, reach, axes, projection = noise_on_updates(federation), np.zeros(0), None, None
        with federation.stage("input scale"):
            if self.bounds is None:
                with federation.by_sample():
                    _, reach, _ = scaled(federation, self)
                    projection = projected(federation, self)
                    reach = reach if projection is None else projection.reach(reach)
            else:
                rehearse_scaled(federation, self)
                axes = planned_axes(federation, self)
        with federation.stage("first encoder"):
            if axes is None and self.starts_at_axes:
                rehearse_axes(federation, reach, first_axes(hidden))
            self.rehearse_first_weights(federation)
            if self.standardise and projection is None:
                few = compared_axes(
                    federation, width, min(first_axes(hidden), width) if self.starts_at_axes else 0
                )
                rehearse_counts(federation, np.zeros(width), shaped((width, few)))
        weights = shaped((parameters,), np.float32)
        state = RoundState.first(weights, controls)
        training = self.training(federation)
        with federation.stage("rounds"):
            for round in federation.rounds(self.rounds):
                state = self.rehearse_surrogates(federation, state, round)
                if noise is not None and by_record(noise):
                    pairs = pair_request(federation, self, state, noise, axes)
                    average(federation, pairs, self.aggregation, weights="rows")
                    # Forward, and backward for both members of a pair.
                    rows = sum(federation.sizes[client] for client in federation.answered)
                    operations = 10.0 * parameters * rows
                else:
                    request = train_request(training, state, round, self.rate(round), noise)
                    average(federation, request, self.aggregation, weights=weighting(noise))
                    present = [federation.sizes[client] for client in federation.answered]
                    trained = [self.trained_rows(rows) for rows in present]
                    operations = training_operations(self, trained, width)
                    operations += mixing_operations(self, present, width)
                    operations += felt_operations(self, trained, len(state.surrogates))
                federation.add_operations(at_clients=operations)
        with federation.stage("map"):
            places_of(federation, self, weights)
            federation.add_operations(at_clients=2.0 * federation.rows * parameters)


def compared_axes(federation: Federation, width: int, most: int) -> int:
    """Return the number of axes, of ``most``, by which new rows are compared with the mapped ones."""
    return min(most, max(1, min(_COMPARED_AXES, width // 2, federation.rows // _ROWS_OF_AN_AXIS)))


def planned_axes(federation: Rehearsal, settings: AveragedEncoder) -> PrincipalAxes | None:
    """Return as many axes as a run has at most; only the run finds out how many exceed its noise."""
    if not settings.starts_at_axes:
        return None
    count = min(first_axes(settings.widths(federation.features)), federation.features)
    return PrincipalAxes(np.ones((federation.features, count)), np.ones(count))


def serve(federation: Federation, settings: AveragedMap) -> Outcome:
    """Run the server part of FedNE, FedAvg+NE and FedProx+NE."""
    from raydr.methods.fedne.encoder import Architecture
    from raydr.methods.fedne.optimizer import server_step

    width = input_width(federation, settings)
    hidden = settings.widths(width)
    architecture = Architecture(width, hidden)
    controls = settings.first_control_variates(federation, architecture.parameters)
    noise = noise_on_updates(federation)
    with federation.stage("input scale"):
        if settings.bounds is None:
            scaling, reach, deviation = scaled(federation, settings)
            projection, axes = projected(federation, settings), None
            reach = reach if projection is None else projection.reach(reach)
        else:
            within = scaled_within_bounds(federation, settings, first_axes(hidden))
            scaling, axes, projection = within.scaling, within.axes, None
            reach = deviation = np.zeros(0)
    with federation.stage("first encoder"):
        if axes is None and settings.starts_at_axes:
            axes = principal_axes(federation, reach, first_axes(hidden))
        prior = federation.context.prior
        if prior is None:
            weights = settings.first_weights(federation, axes)
        else:
            weights = weights_of_prior(prior.model, architecture, wide=projection is not None)
        compared: dict[str, FloatArray] = {}
        if settings.standardise and projection is None:
            known = axes or PrincipalAxes(np.zeros((width, 0)), np.zeros(0))
            few = compared_axes(federation, width, known.deviations.size)
            first = PrincipalAxes(known.directions[:, :few], known.deviations[:few])
            compared = novelty_model(federation, np.zeros(width), first, float(width))
        if compared and deviation.size:
            compared[MOMENTS] = np.stack([scaling.shift, deviation])
    loop = Loop(RoundState.first(weights, controls))
    federation.keep(loop, weights)
    training = settings.training(federation)
    with federation.stage("rounds"):
        for round in federation.rounds(settings.rounds, loop):
            state = settings.renew_surrogates(federation, loop.state, round)
            if noise is not None and by_record(noise):
                loop.state = step_by_record(federation, settings, state, round, noise, axes)
                federation.keep(loop, loop.state.weights)
                federation.report(objective=None)
                continue
            late = 1 if federation.context.prior is None else LATE
            request = train_request(training, state, round, settings.rate(round, late=late), noise)
            answer = average(federation, request, settings.aggregation, weights=weighting(noise))
            weights, memory = server_step(
                settings.server_optimizer,
                state.weights,
                answer.weights.astype(np.float64),
                state.memory,
                settings.server_learning_rate,
            )
            # A field stays where it was made, and rows of an earlier map stay where they are.
            if prior is None and settings.surrogates_due(round + 1):
                weights = recentred(weights, state.centre)
            loop.state = replace(state, weights=weights, memory=memory).with_controls(federation, answer)
            federation.keep(loop, weights)
            federation.report(objective=answer.loss if noise is None else None)
    weights = loop.state.weights
    with federation.stage("map"):
        places = places_of(federation, settings, weights)

    def model(flat: Float32Array) -> dict[str, FloatArray]:
        wide = flat if projection is None else projection.of_columns(flat, hidden)
        return model_of(Architecture(federation.features, hidden).layers(wide), scaling)

    return Outcome(
        embedding=places,
        geometry=None,
        model=model(weights) | compared,
        snapshots={round: model(earlier) for round, earlier in loop.snapshots.items()},
        published=not settings.keeps_places,
    )


def recentred(weights: Float32Array, centre: Float32Array) -> Float32Array:
    """Return weights (parameters,) of an encoder whose map is moved by ``-centre`` (2,): no loss changes.

    No gradient holds a map in its place, so it wanders, and the grid around the origin would grow with its way.
    *Measured* on heart disease: a map 18 units wide was 102 units away after 200 rounds, on a grid of 356 x 356 nodes.
    """
    moved = weights.copy()
    moved[-centre.size :] -= centre
    return moved


def places_of(federation: Federation, settings: AveragedMap, weights: Float32Array) -> Float32Array:
    """Return positions (rows, 2) of all records, which each client sends, or keeps for the evaluation."""
    hidden = settings.widths(input_width(federation, settings))
    if settings.keeps_places:
        kept = federation.ask(PlaceAtHome(weights, hidden))
        return np.concatenate([reply.places for reply in kept])
    posted = federation.ask(PositionRequest(weights, hidden))
    return np.concatenate([reply.places for reply in posted])


def step_by_record(
    federation: Federation,
    settings: AveragedMap,
    state: RoundState,
    round: int,
    noise: Mechanism,
    axes: PrincipalAxes | None,
) -> RoundState:
    """Run steps 3 and 4 under noise per record: clients send gradients of pairs, and the server takes Adam's step."""
    request = pair_request(federation, settings, state, noise, axes)
    answer = average(federation, request, settings.aggregation, weights="rows")
    late = 1 if federation.context.prior is None else LATE
    rate = settings.server_learning_rate * settings.rate(round, late=late)
    weights, memory = adam_step(state.weights, answer.gradient, state.memory, round, rate)
    return replace(state, weights=weights, memory=memory)


def pair_request(
    federation: Federation,
    settings: AveragedMap,
    state: RoundState,
    noise: Mechanism,
    axes: PrincipalAxes | None,
) -> PairRequest:
    """Return the pair request.

    The curve runs through the first principal axes, rotated each round, or random directions.
    """
    random = federation.stream("curve")
    count = min(DIRECTIONS, federation.features)
    if axes is not None:
        count = min(count, axes.directions.shape[1])
        with one_blas_thread():
            directions = axes.directions[:, :count] @ np.linalg.qr(random.standard_normal((count, count)))[0]
        extent = float(np.sqrt((axes.deviations[:count] ** 2).mean()))
    else:
        directions = random.standard_normal((federation.features, count)) / math.sqrt(federation.features)
        extent = 1.0
    return PairRequest(
        weights=state.weights,
        hidden=settings.widths(federation.features),
        directions=directions,
        offsets=random.uniform(-0.3, 0.3, count),
        extent=extent,
        negatives=settings.negatives,
        field=state.field,
        reach=state.grid,
        clip=noise.cut or math.inf,
        softening=settings.softening,
        mechanism=noise,
    )


def train_request(
    training: Training,
    state: RoundState,
    round: int,
    learning_rate: float,
    noise: Mechanism | None = None,
) -> TrainRequest:
    """Return the request of step 3 in a round."""
    source = None
    if state.spoken.size and state.field_round < round:
        source = FieldSource(sent(state.field_weights, training.bits), state.field_round)
    return TrainRequest(
        training=training,
        weights=sent(state.weights, training.bits),
        learning_rate=learning_rate,
        field=sent(state.field, training.bits),
        reach=state.grid,
        surrogates=state.surrogates,
        shares=state.shares,
        control=sent(state.control.astype(np.float32), training.bits),
        kept=state.kept,
        kept_rounds=state.kept_rounds,
        spoken=state.spoken,
        source=source,
        mechanism=noise,
    )


def sent(values: Float32Array, bits: int) -> FloatArray:
    """Return values as the server sends them: in half precision if clients' sums have fewer than 64 bits."""
    return values if bits == 64 else values.astype(np.float16)


def first_axes(hidden: tuple[int, ...]) -> int:
    """Return the number of principal axes of the first encoder with these hidden widths."""
    return max(2, min(hidden, default=2) // 2)
