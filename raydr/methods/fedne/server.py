"""FedNE (P2, figure 1), FedAvg+NE and FedProx+NE: one encoder for everybody, trained where the rows are.

1. The server starts the encoder: near the map of the first principal components, which it learns by sums, or at random;
   and trains it on prototypes, means of groups of records, where it is to have any.
2. In each round clients tell how their present part of the map repels points: as their share of a table that is summed,
   or as a small network each.
3. Each client trains the encoder on some batches of its own neighbour graph, and uploads the change.
4. The server averages the changes by rows (4).
5. In the end each client places its rows and posts their positions on the map.

Two things stand between that and the pooled rows' classes, and neither is the neighbours that clients cannot see: by
kNN accuracy an encoder trained on the union of the clients' graphs in one place is as good as on the graph of all rows.
Exact neighbours (NPA-10) are lost with them (docs/fedne.md).

*Repulsion.* The field stands where everybody was when the round began, and rows that all leave a crowd by an old table
overshoot. So a client takes what it told of its own rows out of the field, and these repel each other where they are
now, by their part of all: a batch of a client that holds one class is no sample of the map, and with more weight its
rows would drive each other apart. The others' field counts twice, since a pair repels at both ends (`clients`).

*Drift.* Each client's batches pull the encoder towards its own classes, and the mean of where clients end up is not
where their mean loss is least. Control variates (SCAFFOLD, Karimireddy et al. 2020) mend that: client i adds c - c_i to
every gradient, its mean gradient of the last round being c_i, and c the mean of all. The server sees c alone; c_i
travels sealed (`raydr.privacy.sealing`), since clients remember nothing between rounds. What both gain is in
docs/fedne.md.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import Float32Array, Float64Array, shaped
from raydr.errors import ScenarioError
from raydr.federation import Federation, Rehearsal, average
from raydr.methods.fedne.clients import Change, PrototypeRequest, Training, TrainRequest, kept_size
from raydr.methods.fedne.dp_costs import (
    by_record,
    density_noise,
    noise_on_updates,
    rehearse_scaled,
    releases,
    scaled_within_bounds,
    starts_at_axes,
    unpayable,
    weighting,
)
from raydr.methods.fedne.flops import mixing_operations, step_operations, training_operations
from raydr.methods.fedne.model import model_of, redraw, scaled, transform
from raydr.methods.fedne.optimizer import adam_step
from raydr.methods.fedne.pairs import DIRECTIONS, PairRequest
from raydr.methods.fedne.pooled import central
from raydr.methods.fedne.positions import PlaceAtHome, PositionRequest
from raydr.methods.fedne.settings import AveragedEncoder, ContrastiveEncoder, FedAvgNE, FedNE, FedProxNE
from raydr.methods.fedne.surrogates import REACHES, Density, DensityRequest, SurrogateRequest
from raydr.methods.method import method
from raydr.methods.outcome import Outcome
from raydr.methods.snapshots import keep, kept
from raydr.privacy.mechanism import Mechanism
from raydr.robust import Mean
from raydr.statistics.principal_axes import PrincipalAxes, principal_axes, rehearse_axes
from raydr.threads import one_blas_thread

if TYPE_CHECKING:
    from raydr.methods.fedne.field import Grid

State = dict[str, NDArray[Any]]

_MARGIN = 1.25
"""Of the grid around the map: rows may move so far, in a round of training and to the next, before they leave it."""
MOST_KEPT_BYTES = 2**30
"""Of all control variates, which requests and checkpoints hold: 4,000 clients of the default encoder on MNIST."""
_SIZINGS = 3
"""How often clients are asked for densities in a round, at most; once, unless the map has outgrown the grid."""


def rehearse(federation: Rehearsal, settings: AveragedEncoder) -> None:
    """Ask what :func:`serve` asks, of a map of the planned reach."""
    from raydr.methods.fedne.encoder import Architecture

    parameters = Architecture(federation.features, settings.hidden).parameters
    controls = no_control_variates(federation, settings, parameters)
    noise, reach, axes = noise_on_updates(federation), np.zeros(0), None
    with federation.stage("input scale"):
        if settings.bounds is None:
            with federation.by_sample():
                _, reach = scaled(federation, settings)
        else:
            rehearse_scaled(federation, settings)
            axes = planned_axes(federation, settings)
    with federation.stage("first encoder"):
        if axes is None and isinstance(settings, FedNE) and settings.start == "principal":
            rehearse_axes(federation, reach, first_axes(settings))
        if isinstance(settings, FedNE) and settings.prototypes is not None:
            federation.ask(PrototypeRequest(settings.prototypes, federation.features))
            federation.reckon(at_server=settings.warm_steps * step_operations(settings, federation.features))
    weights = shaped((parameters,), np.float32)
    state: State = {"weights": weights, **no_surrogates(), **controls}
    training = training_of(federation, settings)
    with federation.stage("rounds"):
        for round in federation.rounds(settings.rounds, state):
            if surrogates_due(settings, round) and isinstance(settings, FedNE):
                if settings.surrogate == "mlp":
                    renew_networks(federation, settings, state)
                else:
                    _rehearse_field(federation, settings, state)
            if noise is not None and by_record(noise):
                pairs = pair_request(federation, settings, state, noise, axes)
                average(federation, pairs, settings.aggregation, weights="rows")
                # Forward, and backward for both members of a pair.
                operations = (
                    10.0 * parameters * sum(federation.sizes[client] for client in federation.answered)
                )
            else:
                request = train_request(training, state, settings.rate(round), noise)
                average(federation, request, settings.aggregation, weights=weighting(noise))
                present = [federation.sizes[client] for client in federation.answered]
                trained = [settings.trained_rows(rows) for rows in present]
                operations = training_operations(settings, trained, federation.features)
                operations += mixing_operations(settings, present, federation.features)
            federation.reckon(at_clients=operations)
    with federation.stage("map"):
        places_of(federation, settings, weights)
        federation.reckon(at_clients=2.0 * federation.rows * parameters)


def planned_axes(federation: Rehearsal, settings: AveragedEncoder) -> PrincipalAxes | None:
    """As many axes as a run has at most; how many stand out of its noise, only the run finds out."""
    if not starts_at_axes(settings):
        return None
    count = min(first_axes(settings), federation.features)
    return PrincipalAxes(np.ones((federation.features, count)), np.ones(count))


def planned_reach(rows: int) -> float:
    """Reach of the grid, margin included, that a rehearsal reckons with: it grows with the map.

    *Measured*, root mean square over all rounds: 8.9 of 300 rows of digits and 15.0 of 1,797.

    >>> round(planned_reach(300), 1), round(planned_reach(1797), 1)
    (8.9, 15.2)
    """
    return 1.6 * math.pow(rows, 0.3)


def _rehearse_field(federation: Rehearsal, settings: FedNE, state: State) -> None:
    """Ask what :func:`renew_field` asks of a map of the planned reach."""
    from raydr.methods.fedne.field import Grid

    noise = density_noise(federation, settings)
    if noise_on_updates(federation) is not None:
        request = paid_density(federation, settings, state)
        average(federation, request, settings.aggregation, weights=weighting(noise))
        state["field"] = shaped((request.nodes, request.nodes), np.float32)
        return
    reach = planned_reach(federation.rows)
    federation.guess(
        f"its grid is as large as the map, which was taken to reach {reach:.0f} units",
        DensityRequest,
        Density,
        TrainRequest,
    )
    grid = Grid.covering(reach, settings.grid_step)
    request = DensityRequest(state["weights"], settings.hidden, grid.reach, grid.nodes, mechanism=noise)
    average(federation, request, settings.aggregation, weights="rows")
    state["field"] = shaped((grid.nodes, grid.nodes), np.float32)
    state["spoken"] = spoken(federation, settings)


def unkeyable(settings: AveragedEncoder) -> str | None:
    """Why rows may not be turned: bounds are of the features as they are."""
    if settings.bounds is None:
        return None
    return "method.bounds are of the features as they are, which the key hides: leave them out"


_HOOKS: dict[str, Any] = {
    "central": central,
    "transform": transform,
    "redraw": redraw,
    "objective": "The objective is the mean loss that clients meet while they train on their own records. Between"
    " rounds their encoders are averaged, and what else repels records is told anew, so no two rounds measure the same"
    " function: it may rise while the map gets better. How faithful the map is, the metrics say.",
    "noise_on": frozenset({"data", "update", "surrogate"}),
    "releases": releases,
    "unpayable": unpayable,
    "posts": lambda settings: "where every record lies on the map" if settings.publish == "server" else None,
    "rehearse": rehearse,
    "unkeyable": unkeyable,
}
"""Of all three methods, which differ in their settings alone."""


@method(FedProxNE, "FedProx-NE", **_HOOKS)
@method(FedAvgNE, "FedAvg-NE", **_HOOKS)
@method(FedNE, "FedNE", **_HOOKS)
def serve(federation: Federation, settings: AveragedEncoder) -> Outcome:
    """Server part of FedNE, FedAvg+NE and FedProx+NE."""
    from raydr.methods.fedne.encoder import Architecture
    from raydr.methods.fedne.optimizer import initial_memory, server_step

    architecture = Architecture(federation.features, settings.hidden)
    controls = no_control_variates(federation, settings, architecture.parameters)
    noise = noise_on_updates(federation)
    with federation.stage("input scale"):
        if settings.bounds is None:
            scaling, reach = scaled(federation, settings)
            axes = None
        else:
            within = scaled_within_bounds(federation, settings, first_axes(settings))
            scaling, axes, reach = within.scaling, within.axes, np.zeros(0)
    with federation.stage("first encoder"):
        weights = first_weights(federation, settings, reach, axes)
    state: State = {
        "weights": weights,
        "memory": initial_memory(len(weights)),
        **no_surrogates(),
        **controls,
    }
    keep(federation, state, "weights")
    training = training_of(federation, settings)
    with federation.stage("rounds"):
        for round in federation.rounds(settings.rounds, state):
            renew_surrogates(federation, settings, state, round)
            if noise is not None and by_record(noise):
                step_by_record(federation, settings, state, round, noise, axes)
                keep(federation, state, "weights")
                federation.report(objective=None)
                continue
            request = train_request(training, state, settings.rate(round), noise)
            answer = average(federation, request, settings.aggregation, weights=weighting(noise))
            state["weights"], state["memory"] = server_step(
                settings.server_optimizer,
                state["weights"],
                answer.weights.astype(np.float64),
                state["memory"],
                settings.server_learning_rate,
            )
            renew_control_variates(federation, state, answer)
            keep(federation, state, "weights")
            federation.report(objective=answer.loss if noise is None else None)
    with federation.stage("map"):
        places = places_of(federation, settings, state["weights"])
    return Outcome(
        places,
        None,
        model_of(architecture.layers(state["weights"]), scaling),
        snapshots={
            round: model_of(architecture.layers(weights), scaling) for round, weights in kept(state).items()
        },
        published=settings.publish == "server",
    )


def places_of(federation: Federation, settings: AveragedEncoder, weights: Float32Array) -> Float32Array:
    """Places (rows, 2) of all records on the map, which each client posts as they are, or keeps for the evaluation."""
    if settings.publish == "local":
        kept = federation.ask(PlaceAtHome(weights, settings.hidden))
        return np.concatenate([reply.places for reply in kept])
    posted = federation.ask(PositionRequest(weights, settings.hidden))
    return np.concatenate([reply.places for reply in posted])


def step_by_record(
    federation: Federation,
    settings: AveragedEncoder,
    state: State,
    round: int,
    noise: Mechanism,
    axes: PrincipalAxes | None,
) -> None:
    """Steps 3 and 4 under noise by record: clients tell gradients of pairs, and the server takes Adam's step."""
    request = pair_request(federation, settings, state, noise, axes)
    answer = average(federation, request, settings.aggregation, weights="rows")
    rate = settings.server_learning_rate * settings.rate(round)
    state["weights"], state["memory"] = adam_step(
        state["weights"], answer.gradient, state["memory"], round, rate
    )


def pair_request(
    federation: Federation,
    settings: AveragedEncoder,
    state: State,
    noise: Mechanism,
    axes: PrincipalAxes | None,
) -> PairRequest:
    """What clients are told; the curve runs through the first principal axes, turned anew, or random directions."""
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
        weights=state["weights"],
        hidden=settings.hidden,
        directions=directions,
        offsets=random.uniform(-0.3, 0.3, count),
        extent=extent,
        negatives=settings.negatives,
        field=state["field"],
        reach=float(state["grid"]),
        clip=noise.cut or math.inf,
        softening=settings.softening,
        mechanism=noise,
    )


def training_of(federation: Federation, settings: AveragedEncoder) -> Training:
    """Step 3 as the settings want it, in all rounds alike."""
    from raydr.methods.fedne.edges import steps_of

    most = settings.trained_rows(max(federation.sizes))
    steps = settings.local_epochs * steps_of(most, settings.own_neighbors, settings.batch)
    return Training(
        hidden=settings.hidden,
        neighbors=settings.own_neighbors,
        batch=settings.batch,
        local_epochs=settings.local_epochs,
        negatives=settings.negatives,
        mixing=(settings.mixing or 0.0) if isinstance(settings, FedNE) else 0.0,
        proximity=settings.proximity if isinstance(settings, FedProxNE) else 0.0,
        most_steps=min(steps, settings.local_steps or steps),
        rows=federation.rows,
        together=federation.context.batch_clients,
        left_out=settings.surrogates_left_out if isinstance(settings, FedNE) else 0.0,
        mixed=settings.mixed if isinstance(settings, FedNE) else "edges",
        negatives_from=settings.negatives_from,
        softening=settings.softening,
        adam_floor=settings.adam_floor,
    )


def train_request(
    training: Training, state: State, learning_rate: float, noise: Mechanism | None = None
) -> TrainRequest:
    """Step 3 as clients are told it in a round."""
    return TrainRequest(
        training=training,
        weights=state["weights"],
        learning_rate=learning_rate,
        field=state["field"],
        reach=float(state["grid"]),
        surrogates=state["surrogates"],
        shares=state["shares"],
        control=state["control"].astype(np.float32),
        kept=state["kept"],
        kept_rounds=state["kept_rounds"],
        spoken=state["spoken"],
        mechanism=noise,
    )


def first_weights(
    federation: Federation,
    settings: ContrastiveEncoder,
    reach: Float64Array,
    axes: PrincipalAxes | None = None,
) -> Float32Array:
    """Weights (parameters,) at random, or near principal components, or trained on prototypes, as the settings say.

    Unless ``axes`` are known, they are asked for; ``reach`` then bounds each feature.
    """
    from raydr.methods.fedne.encoder import Architecture, initial_weights, principal_weights
    from raydr.methods.fedne.warm_start import warm_start

    architecture = Architecture(federation.features, settings.hidden)
    random = federation.stream("encoder")
    if isinstance(settings, FedNE) and settings.start == "principal":
        axes = axes or principal_axes(federation, reach, first_axes(settings))
        weights = principal_weights(architecture, axes.directions, axes.deviations, random)
    else:
        weights = initial_weights(architecture, random)
    if not isinstance(settings, FedNE) or settings.prototypes is None:
        return weights
    replies = federation.ask(PrototypeRequest(settings.prototypes, federation.features))
    means = np.concatenate([reply.means for reply in replies])
    return warm_start(architecture, weights, means, settings, federation.stream("warm start"))


def first_axes(settings: ContrastiveEncoder) -> int:
    """How many principal axes the first encoder is made of."""
    return max(2, min(settings.hidden, default=2) // 2)


def no_surrogates() -> State:
    """What is known of surrogates before there are any."""
    return {
        "field": np.zeros((0, 0), np.float32),
        "reach": np.array(1.0),
        "grid": np.array(1.0),
        "spoken": np.zeros(0, np.float32),
        "surrogates": np.zeros((0, 0), np.float32),
        "shares": np.zeros(0, np.float32),
    }


def no_control_variates(federation: Federation, settings: AveragedEncoder, parameters: int) -> State:
    """What is known of control variates before there are any: zeros, or nothing where there are to be none.

    Raises
    ------
    ScenarioError
        If they would take more memory than the server has for them.
    """
    without = noise_on_updates(federation) is not None
    if without or not isinstance(settings, FedNE) or not settings.has_control_variates:
        return {
            "control": np.zeros(0),
            "kept": np.zeros((0, 0), np.uint8),
            "kept_rounds": np.zeros(0, np.int64),
        }
    shape = federation.clients, kept_size(parameters)
    if shape[0] * shape[1] > MOST_KEPT_BYTES:
        raise ScenarioError(
            f"the control variates of {shape[0]:,} clients, for {parameters:,} parameters each, would take"
            f" {shape[0] * shape[1] / 2**30:.1f} GiB of the server's memory, of which they may have"
            f" {MOST_KEPT_BYTES / 2**30:g}: set method.control_variates to false, or method.hidden to fewer units."
        )
    return {
        "control": np.zeros(parameters),
        "kept": np.zeros(shape, np.uint8),
        "kept_rounds": np.zeros(shape[0], np.int64),
    }


def renew_control_variates(federation: Federation, state: State, answer: Change) -> None:
    """Keep the control variates' mean that of all clients' last ones, and what each sealed for itself."""
    if not state["control"].size:
        return
    answered = list(federation.answered)
    part = sum(federation.sizes[client] for client in answered) / federation.rows
    state["control"] = state["control"] + part * answer.control
    state["kept_rounds"] = state["kept_rounds"].copy()
    state["kept_rounds"][answered] = federation.round
    if len(answered) == federation.clients:
        state["kept"] = answer.kept
    else:
        if federation.recorded:
            state["kept"] = state["kept"].copy()
        state["kept"][answered] = answer.kept


def surrogates_due(settings: AveragedEncoder, round: int) -> bool:
    """Whether it is time for step 2."""
    if not isinstance(settings, FedNE) or settings.surrogate == "none":
        return False
    passed = round - settings.first_surrogate_round
    return passed >= 0 and passed % settings.surrogate_every == 0


def renew_surrogates(federation: Federation, settings: AveragedEncoder, state: State, round: int) -> None:
    """Step 2, where it is time for it."""
    if not isinstance(settings, FedNE) or not surrogates_due(settings, round):
        return
    if settings.surrogate == "mlp":
        renew_networks(federation, settings, state)
    else:
        renew_field(federation, settings, state)


def renew_field(federation: Federation, settings: FedNE, state: State) -> None:
    """Sum the clients' densities on a grid that holds them all, convolve the sum with the repulsion of one point."""
    from raydr.methods.fedne.field import Grid, repulsion_field

    noise = density_noise(federation, settings)
    if noise_on_updates(federation) is not None:
        answer = average(
            federation,
            paid_density(federation, settings, state),
            settings.aggregation,
            weights=weighting(noise),
        )
        grid = paid_grid(federation, settings)
        state["grid"] = np.array(grid.reach)
        state["field"] = repulsion_field(grid, answer.share, settings.softening).astype(np.float32)
        return
    for _ in range(_SIZINGS):
        grid = Grid.covering(_MARGIN * float(state["reach"]), settings.grid_step)
        request = DensityRequest(state["weights"], settings.hidden, grid.reach, grid.nodes, mechanism=noise)
        answer = average(federation, request, settings.aggregation, weights="rows")
        unanimous = np.flatnonzero(answer.votes >= 1.0)
        reach = float(REACHES[unanimous[0] if len(unanimous) else -1])
        fits = reach <= grid.reach
        state["reach"] = np.array(reach)
        if fits:
            break
    state["grid"] = np.array(grid.reach)
    state["field"] = repulsion_field(grid, answer.share, settings.softening).astype(np.float32)
    state["spoken"] = spoken(federation, settings)


def spoken(federation: Federation, settings: FedNE) -> Float32Array:
    """Part (clients,) of the field that is of each client's rows; empty where it is no mean, or older than a round."""
    if not isinstance(settings.aggregation, Mean) or settings.surrogate_every > 1:
        return np.zeros(0, np.float32)
    answered = list(federation.answered)
    rows = np.zeros(federation.clients)
    rows[answered] = np.asarray(federation.sizes)[answered]
    return np.asarray(rows / rows.sum(), np.float32)


def paid_grid(federation: Federation, settings: FedNE) -> Grid:
    """The grid where nobody may vote on its size: as large as the map of so many rows has turned out to be."""
    from raydr.methods.fedne.field import Grid

    return Grid.covering(planned_reach(federation.rows), settings.grid_step)


def paid_density(federation: Federation, settings: FedNE, state: State) -> DensityRequest:
    """Step 2 where noise covers it."""
    grid = paid_grid(federation, settings)
    noise = density_noise(federation, settings)
    return DensityRequest(
        state["weights"], settings.hidden, grid.reach, grid.nodes, votes=False, mechanism=noise
    )


def renew_networks(federation: Federation, settings: FedNE, state: State) -> None:
    """Have each client fine-tune its network; of clients that do not take part, the last one counts on."""
    from raydr.methods.fedne.networks import initial_surrogate

    if not state["surrogates"].size:
        random = federation.stream("surrogates")
        state["surrogates"] = np.stack([initial_surrogate(random) for _ in range(federation.clients)])
        state["shares"] = np.zeros(federation.clients, np.float32)
    networks, shares = state["surrogates"].copy(), state["shares"].copy()
    replies = federation.gather(
        SurrogateRequest(
            state["weights"],
            settings.hidden,
            networks,
            settings.surrogate_points,
            settings.grid_step,
            settings.negatives,
            settings.softening,
            federation.context.mechanism("surrogate"),
        )
    )
    for client, reply in replies.items():
        networks[client] = reply.parameters
        shares[client] = federation.sizes[client] / federation.rows
    state["surrogates"], state["shares"] = networks, shares
