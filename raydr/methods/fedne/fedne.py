"""FedNE, FedAvg+NE and FedProx+NE (P2): where each differs from averaged encoders."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from raydr.arrays import Float32Array, shaped
from raydr.errors import ScenarioError
from raydr.federation import Federation, Rehearsal, average
from raydr.methods.fedne.clients import PrototypeRequest, Training, TrainRequest, kept_size
from raydr.methods.fedne.dp_costs import density_noise, noise_on_updates, weighting
from raydr.methods.fedne.flops import fitted_operations, step_operations
from raydr.methods.fedne.projection import input_width
from raydr.methods.fedne.round_state import ControlVariates, RoundState
from raydr.methods.fedne.server import AveragedMap, sent, serve
from raydr.methods.fedne.settings import NARROW, NARROW_COLUMNS, SCHEDULE, WIDE
from raydr.methods.fedne.surrogates import EPOCHS, MARGIN, REACHES, Density, DensityRequest, SurrogateRequest
from raydr.methods.method import method
from raydr.privacy.mechanism import Mechanism
from raydr.robust import Mean
from raydr.statistics.principal_axes import PrincipalAxes

if TYPE_CHECKING:
    from raydr.methods.fedne.field import Grid

_MARGIN = 1.25
"""Width of the grid over that of the map, so that rows stay inside during a round of training and until the next."""
MOST_KEPT_BYTES = 2**30
"""Limit on the control variates of all clients, in requests and checkpoints: 4,000 clients with the default
encoder on MNIST."""
_SIZINGS = 3
"""Largest number of density requests per round; one, unless the map has outgrown the grid."""


class FedAvgNE(AveragedMap):
    """Averaged encoders of contrastive neighbour embedding (P2's FedAvg+NE)."""

    kind: Literal["fedavg-ne"] = "fedavg-ne"


class FedProxNE(AveragedMap):
    """Averaged encoders that stay close to each other in training (P2's FedProx+NE)."""

    kind: Literal["fedprox-ne"] = "fedprox-ne"
    proximity: float = Field(0.01, gt=0, description="mu of FedProx")

    def uncovered(self, noise: Mechanism) -> str | None:
        """Return why proximity does not work with noise per record, where clients take no step."""
        if noise.protects != "record":
            return None
        return (
            "with noise per record the server takes all steps, so no client training can be held back:"
            " choose fedavg-ne, or privacy.noise.unit: client"
        )

    def training(self, federation: Federation) -> Training:
        """Return the training settings, with a pull towards the encoder received."""
        return replace(super().training(federation), proximity=self.proximity)


class FedNE(AveragedMap):
    """Averaged encoders with surrogates for unseen rows, mixed rows (P2's FedNE), and control variates."""

    kind: Literal["fedne"] = "fedne"
    hidden: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(
        None,
        description="widths of the encoder's hidden layers; default: [48, 48] for at most 16 columns, else"
        " [128, 128, 128]",
    )
    local_neighbors: int | None = Field(
        None,
        ge=1,
        description="number of these neighbours that attract a row at its client, nearest first;"
        " default: all (P2)",
    )
    rounds: int = Field(200, ge=1, description="rounds")
    learning_rate: float = Field(3e-3, gt=0, le=1, description="Adam's learning rate in the first rounds")
    local_epochs: int = Field(
        4,
        ge=1,
        description="largest number of passes over a client's edges in a round; small clients take"
        " several to fill their batches",
    )
    local_steps: int | None = Field(
        10, ge=1, description="largest number of batches per client and round; null: all of its local epochs"
    )
    schedule: Literal["steps", "cosine"] = Field("cosine", description=SCHEDULE)
    control_variates: bool | None = Field(
        None,
        description="whether clients correct their steps by the mean gradient of all clients"
        " (SCAFFOLD); default: true, but false with a robust `aggregation`, which does"
        " not allow it",
    )
    surrogate: Literal["field", "mlp", "none"] = Field(
        "field",
        description="repulsion by other clients: summed density tables, one network per client (P2), or none",
    )
    surrogate_from: float | None = Field(
        None,
        ge=0,
        le=1,
        description="share of the rounds that run without surrogates; default: 0 for the field, 0.3"
        " for mlp (P2)",
    )
    surrogate_every: int = Field(
        1,
        ge=1,
        description="rounds between updates of the surrogates",
    )
    surrogate_points: Literal["grid", "local"] = Field(
        "grid",
        description="where mlp surrogates are trained: on a grid, or at the client's own points, which cost accuracy"
        " (docs/papers.md, p2-table-6)",
    )
    surrogates_left_out: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the other clients' mlp surrogates that each client leaves out, drawn"
        " again in each round (P2 6)",
    )
    grid_step: float | None = Field(
        None,
        gt=0,
        description="distance between the nodes of the grid, in map units; default: 0.3, or more if the"
        " map needs more than 128 nodes along an axis",
    )
    weight_decay: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="lambda of weight decay: each client adds half of it, times the squared length of the weights, to"
        " its loss; 0.01 keeps more neighbours of clients with few, similar rows, and 0.001 places new rows of small"
        " tables better (docs/fedne.md); 0: none (P2)",
    )
    mixing: float | None = Field(
        0.2, gt=0, description="alpha of Beta(alpha, alpha) for data mixing; null: no mixing"
    )
    mixed: Literal["edges", "rows"] = Field(
        "edges",
        description="use of mixed rows: as heads of edges, in each batch; or as a second row for each"
        " row, made again in each round, with clients training on the neighbour graph of"
        " both (P2)",
    )
    start: Literal["principal", "random"] = Field(
        "principal",
        description="first encoder: close to the map of the first principal components, learnt by"
        " sums, or random (P2)",
    )
    prototypes: int | None = Field(
        None,
        ge=2,
        description="least number of rows per prototype. Clients send prototypes (means of groups of"
        " rows), and the server first trains the encoder on them; default: clients send"
        " none",
    )
    warm_steps: int = Field(4000, ge=1, description="batches of the server's training on prototypes")

    def widths(self, features: int) -> tuple[int, ...]:
        """Return the widths of the hidden layers of an encoder of this many features."""
        if self.hidden is not None:
            return self.hidden
        return NARROW if features <= NARROW_COLUMNS else WIDE

    @property
    def first_surrogate_round(self) -> int:
        """First round with surrogates."""
        part = self.surrogate_from
        if part is None:
            part = 0.3 if self.surrogate == "mlp" else 0.0
        return 1 + int(part * self.rounds)

    @property
    def own_neighbors(self) -> int:
        """Number of nearest own neighbours that attract a row."""
        return min(self.neighbors, self.local_neighbors or self.neighbors)

    @property
    def mixes_heads(self) -> bool:
        """Whether the heads of edges are mixed rows, new in each batch."""
        return self.mixed == "edges" and self.mixing is not None

    def trained_rows(self, rows: int) -> int:
        """Return the number of training rows: twice ``rows`` if mixed rows are made, which needs a neighbour."""
        return 2 * rows if self.mixed == "rows" and self.mixing is not None and rows > 1 else rows

    @property
    def has_control_variates(self) -> bool:
        """Whether clients use control variates."""
        if self.control_variates is None:
            return isinstance(self.aggregation, Mean)
        return self.control_variates

    @model_validator(mode="after")
    def _rows_about_their_mean(self) -> Self:
        if self.start == "principal" and not self.standardise:
            raise ValueError(
                "start: principal needs rows centred on their mean, but standardise is false: choose"
                " start: random"
            )
        return self

    @model_validator(mode="after")
    def _surrogates_to_leave_out(self) -> Self:
        if self.surrogates_left_out and self.surrogate != "mlp":
            raise ValueError(
                f"surrogates_left_out applies to surrogate: mlp, but surrogate is {self.surrogate!r}:"
                " leave it out, or choose surrogate: mlp"
            )
        return self

    @model_validator(mode="after")
    def _mean_with_control_variates(self) -> Self:
        if self.control_variates and not isinstance(self.aggregation, Mean):
            raise ValueError(
                "control_variates need the exact mean of the clients' uploads, which a robust"
                " aggregation does not give. Leave control_variates out, or choose aggregation: mean."
            )
        return self

    @property
    def starts_at_axes(self) -> bool:
        """Whether the first encoder is made of principal axes."""
        return self.start == "principal"

    @property
    def has_field(self) -> bool:
        """Whether a field repels rows."""
        return self.surrogate == "field"

    @property
    def field_rounds(self) -> int:
        """Number of rounds in which surrogates are renewed."""
        if self.surrogate == "none":
            return 0
        left = self.rounds + 1 - self.first_surrogate_round
        return -(-left // self.surrogate_every)

    def surrogates_due(self, round: int) -> bool:
        """Return whether step 2 is due."""
        passed = round - self.first_surrogate_round
        return self.surrogate != "none" and passed >= 0 and passed % self.surrogate_every == 0

    def why_no_label(self) -> str | None:
        """Return why a label cannot take part in the search for neighbours."""
        if self.mixed == "rows" and self.mixing is not None:
            return (
                "method.mixed: rows searches the neighbours of mixed rows, which have no label: choose edges"
            )
        return super().why_no_label()

    def uncovered(self, noise: Mechanism) -> str | None:
        """Return which further uploads the noise does not cover."""
        if self.control_variates:
            return "the noise does not cover control variates, one more upload: leave control_variates out"
        if self.surrogate == "mlp":
            return "what a surrogate network learns has no bound: choose method.surrogate: field or none"
        if self.prototypes is not None:
            return "prototypes are means of records, sent without noise: leave method.prototypes out"
        if self.weight_decay and noise.protects == "record":
            return (
                "with noise per record the server takes all steps, so no client's weights decay: leave"
                " method.weight_decay out, or choose privacy.noise.unit: client"
            )
        return None

    def training(self, federation: Federation) -> Training:
        """Return the training settings, with mixed rows and without some of the other clients' networks."""
        return replace(
            super().training(federation),
            mixing=self.mixing or 0.0,
            left_out=self.surrogates_left_out,
            mixed=self.mixed,
            weight_decay=self.weight_decay,
        )

    def first_weights(self, federation: Federation, axes: PrincipalAxes | None = None) -> Float32Array:
        """Run step 1: a random or principal start, trained on prototypes if there are any."""
        from raydr.methods.fedne.encoder import Architecture, principal_weights
        from raydr.methods.fedne.warm_start import warm_start

        width = input_width(federation, self)
        architecture = Architecture(width, self.widths(width))
        if axes is not None:
            random = federation.stream("encoder")
            weights = principal_weights(architecture, axes.directions, axes.deviations, random)
        else:
            weights = super().first_weights(federation)
        if self.prototypes is None:
            return weights
        replies = federation.ask(PrototypeRequest(self.prototypes, width))
        means = np.concatenate([reply.means for reply in replies])
        random = federation.stream("warm start")
        return warm_start(
            architecture, weights, means, self, random, steps=self.warm_steps, mixing=self.mixing
        )

    def rehearse_first_weights(self, federation: Rehearsal) -> None:
        """Ask what :meth:`first_weights` asks."""
        if self.prototypes is not None:
            width = input_width(federation, self)
            federation.ask(PrototypeRequest(self.prototypes, width))
            federation.add_operations(at_server=self.warm_steps * step_operations(self, width))

    def first_control_variates(self, federation: Federation, parameters: int) -> ControlVariates:
        """Return zeros, or nothing without control variates.

        Raises
        ------
        ScenarioError
            If they would exceed the server's memory limit for them.
        """
        if noise_on_updates(federation) is not None or not self.has_control_variates:
            return ControlVariates.none()
        shape = federation.clients, kept_size(parameters)
        if shape[0] * shape[1] > MOST_KEPT_BYTES:
            raise ScenarioError(
                f"The control variates of {shape[0]:,} clients, with {parameters:,} parameters each,"
                f" need {shape[0] * shape[1] / 2**30:.1f} GiB of server memory; the limit is"
                f" {MOST_KEPT_BYTES / 2**30:g} GiB. Set method.control_variates to false, or give"
                " method.hidden fewer units."
            )
        return ControlVariates(
            control=np.zeros(parameters),
            kept=np.zeros(shape, np.uint8),
            kept_rounds=np.zeros(shape[0], np.int64),
        )

    def renew_surrogates(self, federation: Federation, state: RoundState, round: int) -> RoundState:
        """Run step 2 if it is due."""
        if not self.surrogates_due(round):
            return state
        if self.surrogate == "mlp":
            return self.renew_networks(federation, state)
        return self.renew_field(federation, state)

    def rehearse_surrogates(self, federation: Rehearsal, state: RoundState, round: int) -> RoundState:
        """Ask what :meth:`renew_surrogates` asks, for a map of the planned reach."""
        if not self.surrogates_due(round):
            return state
        if self.surrogate == "mlp":
            points = [self.fitted_points(rows) for rows in federation.sizes]
            federation.add_operations(at_clients=fitted_operations(points, EPOCHS))
            return self.renew_networks(federation, state)
        return self._rehearse_field(federation, state)

    def renew_field(self, federation: Federation, state: RoundState) -> RoundState:
        """Sum the clients' densities on a grid that holds them all, and convolve it with the repulsion of a point."""
        from raydr.methods.fedne.field import Grid, repulsion_field

        if noise_on_updates(federation) is not None:
            noise = density_noise(federation, self)
            answer = average(
                federation,
                self.paid_density(federation, state),
                self.aggregation,
                weights=weighting(noise),
            )
            grid = self.paid_grid(federation)
            field = repulsion_field(grid, answer.share, self.softening).astype(np.float32)
            return replace(state, grid=grid.reach, field=field)
        reach = state.reach
        for _ in range(_SIZINGS):
            grid = Grid.covering(_MARGIN * reach, self.grid_step)
            request = self.density_request(federation, state, grid)
            answer = average(federation, request, self.aggregation, weights="rows")
            unanimous = np.flatnonzero(answer.votes >= 1.0)
            reach = float(REACHES[unanimous[0] if len(unanimous) else -1])
            if reach <= grid.reach:
                break
        field = repulsion_field(grid, answer.share, self.softening).astype(np.float32)
        return replace(
            state,
            reach=reach,
            grid=grid.reach,
            centre=grid.centre(answer.share),
            field=field,
            spoken=self.spoken(federation),
            field_weights=state.weights,
            field_round=federation.round,
        )

    def fitted_points(self, rows: int) -> float:
        """Return the number of points that a client's surrogate learns from: its grid covers a map of its rows."""
        from raydr.methods.fedne.field import GRID_STEP

        if self.surrogate_points == "local":
            return rows
        nodes = 2.0 * (planned_reach(rows) + MARGIN) / (self.grid_step or GRID_STEP)
        return nodes**2

    def _rehearse_field(self, federation: Rehearsal, state: RoundState) -> RoundState:
        """Ask what :func:`renew_field` asks, for a map of the planned reach."""
        from raydr.methods.fedne.field import Grid

        if noise_on_updates(federation) is not None:
            noise = density_noise(federation, self)
            request = self.paid_density(federation, state)
            average(federation, request, self.aggregation, weights=weighting(noise))
            return replace(state, field=shaped((request.nodes, request.nodes), np.float32))
        reach = planned_reach(federation.rows)
        federation.guess(
            f"its grid is as large as the map, which was assumed to reach {reach:.0f} units",
            DensityRequest,
            Density,
            TrainRequest,
        )
        grid = Grid.covering(reach, self.grid_step)
        average(federation, self.density_request(federation, state, grid), self.aggregation, weights="rows")
        field = shaped((grid.nodes, grid.nodes), np.float32)
        return replace(
            state,
            field=field,
            spoken=self.spoken(federation),
            field_weights=state.weights,
            field_round=federation.round,
        )

    def density_request(self, federation: Federation, state: RoundState, grid: Grid) -> DensityRequest:
        """Return the density request of step 2 on a grid."""
        noise, bits = density_noise(federation, self), self.sum_bits(federation)
        return DensityRequest(
            weights=sent(state.weights, bits),
            hidden=self.widths(input_width(federation, self)),
            reach=grid.reach,
            nodes=grid.nodes,
            bits=64 if noise is not None else bits,
            mechanism=noise,
        )

    def spoken(self, federation: Federation) -> Float32Array:
        """Return the share (clients,) of the field of each client's rows; empty if the field is no mean."""
        if not isinstance(self.aggregation, Mean):
            return np.zeros(0, np.float32)
        answered = list(federation.answered)
        rows = np.zeros(federation.clients)
        rows[answered] = np.asarray(federation.sizes)[answered]
        return np.asarray(rows / rows.sum(), np.float32)

    def paid_grid(self, federation: Federation) -> Grid:
        """Return a grid that needs no votes: its size is that of past maps of this many rows."""
        from raydr.methods.fedne.field import GRID_STEP, Grid

        return Grid.covering(planned_reach(federation.rows), self.grid_step or GRID_STEP)

    def paid_density(self, federation: Federation, state: RoundState) -> DensityRequest:
        """Return the density request of step 2 under noise."""
        grid = self.paid_grid(federation)
        noise = density_noise(federation, self)
        return DensityRequest(
            weights=state.weights,
            hidden=self.widths(input_width(federation, self)),
            reach=grid.reach,
            nodes=grid.nodes,
            votes=False,
            mechanism=noise,
        )

    def renew_networks(self, federation: Federation, state: RoundState) -> RoundState:
        """Have each client fine-tune its network; the last network of an absent client stays in use."""
        from raydr.methods.fedne.field import GRID_STEP
        from raydr.methods.fedne.networks import initial_surrogate

        if state.surrogates.size:
            networks, shares = state.surrogates.copy(), state.shares.copy()
        else:
            random = federation.stream("surrogates")
            networks = np.stack([initial_surrogate(random) for _ in range(federation.clients)])
            shares = np.zeros(federation.clients, np.float32)
        replies = federation.gather(
            SurrogateRequest(
                weights=state.weights,
                hidden=self.widths(input_width(federation, self)),
                surrogates=networks,
                points=self.surrogate_points,
                step=self.grid_step or GRID_STEP,
                negatives=self.negatives,
                softening=self.softening,
                mechanism=federation.context.mechanism("surrogate"),
            )
        )
        for client, reply in replies.items():
            networks[client] = reply.parameters
            shares[client] = federation.sizes[client] / federation.rows
        return replace(state, surrogates=networks, shares=shares)


def planned_reach(rows: int) -> float:
    """Return the reach of the grid, with margin, that a rehearsal assumes: it grows with the map.

    *Measured*, root mean square over all rounds: 8.9 with 300 rows of digits and 15.0 with 1,797.

    >>> round(planned_reach(300), 1), round(planned_reach(1797), 1)
    (8.9, 15.2)
    """
    return 1.6 * math.pow(rows, 0.3)


method(FedNE, "FedNE")(serve)
method(FedAvgNE, "FedAvg-NE")(serve)
method(FedProxNE, "FedProx-NE")(serve)
