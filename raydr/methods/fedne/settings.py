"""Settings of FedNE (P2) and of what it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from raydr.methods.landmarks.settings import LandmarkSettings
from raydr.methods.method import MethodSettings
from raydr.robust import Aggregation, Mean
from raydr.settings import require_in_order

_SCHEDULE = (
    "how the learning rate falls: by `decay` after 30% and again after 60% of the rounds (P2), or along"
    " a half cosine to 0"
)

SOFTENING = 1e-3
"""What is added to the squared distance under the repulsion's logarithm."""
FLOOR = 1e-5
"""Added to the root of Adam's second moment, where torch adds 1e-8.

No loss changes where the whole map moves, so there the gradient is rounding alone, about 1e-8, and with torch's floor
Adam would blow that up to full steps: the map would wander, and bits of the last place become the first.
"""
PUBLISHED: Mapping[str, Any] = MappingProxyType(
    {
        "hidden": (500, 200, 100),
        "neighbors": 7,
        "rounds": 500,
        "local_epochs": 1,
        "local_steps": None,
        "batch": 512,
        "negatives": 5,
        "negatives_from": "rows",
        "learning_rate": 1e-3,
        "schedule": "steps",
        "decay": 0.1,
        "standardise": False,
        "softening": 0.0,
        "adam_floor": 1e-8,
        "aggregation": Mean(),
        "server_optimizer": "fedavg",
        "server_learning_rate": 1.0,
        "local_neighbors": None,
        "control_variates": False,
        "surrogate": "mlp",
        "surrogate_from": 0.3,
        "surrogate_every": 1,
        "surrogate_points": "grid",
        "surrogates_left_out": 0.0,
        "grid_step": 0.3,
        "mixing": 0.2,
        "mixed": "rows",
        "start": "random",
        "prototypes": None,
    }
)
"""What P2 says of these keys, for MNIST; widths and rounds, which it does not say, are of its authors' code."""


class ContrastiveEncoder(MethodSettings):
    """What every method here has: an encoder and its training."""

    package: ClassVar[str | None] = "torch"

    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (128, 128, 128), description="widths of the encoder's hidden layers"
    )
    neighbors: int = Field(
        7, ge=1, description="k: neighbours that attract each row; fewer in smaller clients"
    )
    rounds: int = Field(60, ge=1, description="rounds")
    local_epochs: int = Field(1, ge=1, description="passes over a client's edges in a round")
    local_steps: int | None = Field(
        None, ge=1, description="batches of a client in a round, at most; default: all of its local epochs"
    )
    batch: int = Field(512, ge=2, description="edges of a batch")
    negatives: int = Field(5, ge=1, description="b: negatives of each edge, the weight of repulsion")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="of Adam in the first rounds")
    schedule: Literal["steps", "cosine"] = Field("steps", description=_SCHEDULE)
    decay: float = Field(0.1, gt=0, le=1, description="factor on the learning rate at each of the steps")
    negatives_from: Literal["batch", "rows"] = Field(
        "batch",
        description="what repels an edge's head: tails of other edges of the batch, or any other rows of the client,"
        " each alike (P2)",
    )
    standardise: bool = Field(
        True,
        description="whether rows are shifted to mean 0 and divided by one number, learnt by sums; false: as they are"
        " (P2), in single precision, which loses what is small beside a common offset",
    )
    softening: float = Field(
        SOFTENING,
        ge=0,
        lt=1,
        description="what is added to squared distances under the repulsion's logarithm; 0: nothing (P2)",
    )
    adam_floor: float = Field(
        FLOOR, gt=0, description="what is added to the root of Adam's second moment; 1e-8 is its authors'"
    )

    @property
    def own_neighbors(self) -> int:
        """How many of a client's own rows attract each of them."""
        return self.neighbors

    def trained_rows(self, rows: int) -> int:
        """How many rows a client that has so many trains on."""
        return rows

    def rate(self, round: int) -> float:
        """Learning rate in a round from 1 on."""
        from raydr.methods.fedne.optimizer import cosine_rate, stepped_rate

        if self.schedule == "cosine":
            return cosine_rate(round, self.rounds, self.learning_rate)
        return stepped_rate(round, self.rounds, self.learning_rate, self.decay)


class Published(ContrastiveEncoder):
    """What P2 has: its settings can be had by one word."""

    preset: Literal["published"] | None = Field(
        None,
        description="published: the defaults of all other keys are P2's (docs/fedne.md), and keys that are given stand",
    )

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_preset(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or given.get("preset") != "published":
            return given
        return {name: value for name, value in PUBLISHED.items() if name in cls.model_fields} | dict(given)


class LocalNE(Published):
    """An encoder for each client alone: no messages, and no common map (P2's LocalNE)."""

    kind: Literal["local-ne"] = "local-ne"


class GlobalNE(Published):
    """One encoder on everybody's pooled rows, which clients would have to hand over (P2's GlobalNE)."""

    kind: Literal["global-ne"] = "global-ne"


class LandmarkNE(ContrastiveEncoder):
    """One encoder on rows' coordinates among landmarks, which the server tells from distances as Fed-tSNE's does."""

    kind: Literal["landmark-ne"] = "landmark-ne"
    learning_rate: float = Field(3e-3, gt=0, le=1, description="of Adam in the first rounds")
    schedule: Literal["steps", "cosine"] = Field("cosine", description=_SCHEDULE)
    landmarks: int | None = Field(
        None,
        ge=2,
        description="number of landmarks, one more than the directions that they span, of which features + 1 are all;"
        " default: at most 500",
    )
    landmarks_from: Literal["principal", "random"] = Field(
        "principal",
        description="where they stand: along the principal axes of all rows, or along random directions",
    )

    @property
    def frame(self) -> LandmarkSettings:
        """The landmarks, as what makes them is told of them."""
        return LandmarkSettings(landmarks=self.landmarks, landmarks_from=self.landmarks_from)


class AveragedEncoder(Published):
    """What methods share that average encoders."""

    aggregation: Aggregation = Field(
        Mean(), description="how the server combines what clients upload; robust rules see each upload"
    )
    server_optimizer: Literal["fedavg", "fedavgm", "fedadam", "nesterov"] = Field(
        "fedavg",
        description="what the server makes of the clients' mean change: it adds it (P2), or has momentum",
    )
    server_learning_rate: float = Field(1.0, gt=0, description="factor on the server's step")
    publish: Literal["server", "local"] = Field(
        "server",
        description="where records' places go: to the server, which has the whole map; or nowhere: each client keeps"
        " its own, and only the simulation's evaluation sees all",
    )
    bounds: tuple[float, float] | None = Field(
        None,
        description="least and largest value of any feature, as scaled: rows' mean and scale, and principal axes, then"
        " come by one sum that noise can cover, and nothing is voted on",
    )

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        require_in_order(self.bounds)
        if self.bounds is not None and not self.standardise:
            raise ValueError(
                "bounds are what rows are scaled by, and standardise is false: leave one of them out"
            )
        return self


class FedAvgNE(AveragedEncoder):
    """Averaged encoders of contrastive neighbour embedding (P2's FedAvg+NE)."""

    kind: Literal["fedavg-ne"] = "fedavg-ne"


class FedProxNE(AveragedEncoder):
    """Averaged encoders, held near each other while they train (P2's FedProx+NE)."""

    kind: Literal["fedprox-ne"] = "fedprox-ne"
    proximity: float = Field(0.01, gt=0, description="mu of FedProx")


class FedNE(AveragedEncoder):
    """Averaged encoders: surrogates for rows out of sight, mixed rows (P2's FedNE), and control variates."""

    kind: Literal["fedne"] = "fedne"
    local_neighbors: int | None = Field(
        None,
        ge=1,
        description="how many of these neighbours attract a row at its client, the nearest; default: all (P2)",
    )
    rounds: int = Field(200, ge=1, description="rounds")
    learning_rate: float = Field(3e-3, gt=0, le=1, description="of Adam in the first rounds")
    local_epochs: int = Field(
        4,
        ge=1,
        description="passes over a client's edges in a round, at most: small clients take several for their batches",
    )
    local_steps: int | None = Field(
        10, ge=1, description="batches of a client in a round, at most; null: all of its local epochs"
    )
    schedule: Literal["steps", "cosine"] = Field("cosine", description=_SCHEDULE)
    control_variates: bool | None = Field(
        None,
        description="whether clients correct their course by the mean gradient of all (SCAFFOLD); default: true, but"
        " false under a robust `aggregation`, which cannot do with them",
    )
    surrogate: Literal["field", "mlp", "none"] = Field(
        "field",
        description="repulsion by other clients: summed tables, one network for each client (P2), or none",
    )
    surrogate_from: float | None = Field(
        None,
        ge=0,
        le=1,
        description="part of the rounds that go by without surrogates; default: 0 for the field, 0.3 for mlp (P2)",
    )
    surrogate_every: int = Field(1, ge=1, description="rounds between updates of the surrogates")
    surrogate_points: Literal["grid", "local"] = Field(
        "grid", description="where mlp surrogates are trained: on a grid, or at the client's own points"
    )
    surrogates_left_out: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="part of the others' mlp surrogates that each client leaves out of a round, drawn anew (P2 6)",
    )
    grid_step: float = Field(0.3, gt=0, description="distance of the grid's nodes, in units of the map")
    mixing: float | None = Field(0.2, gt=0, description="alpha of Beta(alpha, alpha), or null for no mixing")
    mixed: Literal["edges", "rows"] = Field(
        "edges",
        description="what mixing makes: heads of edges, in each batch; or a second row for each, anew in each round,"
        " and clients train on the neighbour graph of both (P2)",
    )
    start: Literal["principal", "random"] = Field(
        "principal",
        description="first encoder: near the map of the first principal components, learnt by sums, or random (P2)",
    )
    prototypes: int | None = Field(
        None,
        ge=2,
        description="rows of which each prototype is the mean, at least: the server first trains the encoder on the"
        " prototypes that clients show it; default: clients show none",
    )
    warm_steps: int = Field(4000, ge=1, description="batches that the server trains on prototypes")

    @property
    def first_surrogate_round(self) -> int:
        """From which round on surrogates are there."""
        part = self.surrogate_from
        if part is None:
            part = 0.3 if self.surrogate == "mlp" else 0.0
        return 1 + int(part * self.rounds)

    @property
    def own_neighbors(self) -> int:
        """The nearest of them."""
        return min(self.neighbors, self.local_neighbors or self.neighbors)

    def trained_rows(self, rows: int) -> int:
        """As many again where mixed rows are made, which takes a neighbour."""
        return 2 * rows if self.mixed == "rows" and self.mixing is not None and rows > 1 else rows

    @property
    def has_control_variates(self) -> bool:
        """Whether clients correct their course."""
        if self.control_variates is None:
            return isinstance(self.aggregation, Mean)
        return self.control_variates

    @model_validator(mode="after")
    def _rows_about_their_mean(self) -> Self:
        if self.start == "principal" and not self.standardise:
            raise ValueError(
                "start: principal is of rows about their mean, and standardise is false: choose start: random"
            )
        return self

    @model_validator(mode="after")
    def _surrogates_to_leave_out(self) -> Self:
        if self.surrogates_left_out and self.surrogate != "mlp":
            raise ValueError(
                f"surrogates_left_out is of the others' networks, and surrogate is {self.surrogate!r}: leave it out, or"
                " choose surrogate: mlp"
            )
        return self

    @model_validator(mode="after")
    def _mean_with_control_variates(self) -> Self:
        if self.control_variates and not isinstance(self.aggregation, Mean):
            raise ValueError(
                "control_variates need the exact mean of what clients send; a robust aggregation has none. Leave"
                " control_variates out, or take aggregation: mean."
            )
        return self
