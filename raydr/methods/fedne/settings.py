"""Settings of FedNE (P2) and its baselines."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from raydr.methods.method import MethodSettings
from raydr.methods.preset import Preset
from raydr.robust import Aggregation, Mean
from raydr.settings import require_in_order

LATE = 10
"""Runs that start from an earlier encoder use the last part of the schedule, one in this many rounds. On heart disease,
rows then move by 0.08 and 0.13 of the radius instead of 0.29 and 0.32, and neighbour preservation is as high. With the
last fifth they move by 0.13 and 0.16, with the whole schedule as without the encoder."""
LATE_AT_SERVER = 2
"""The same for an encoder that is trained at the server on all rows. On heart disease, with the last half rows move by
0.18 and 0.08 of the radius instead of 0.40 and 0.24, and NPA-10 is 0.004 higher and 0.012 lower. With the last tenth
they move by 0.10 and 0.07, and it is 0.038 and 0.027 lower."""
SCHEDULE = (
    "how the learning rate falls: by the factor `decay` after 30% and again after 60% of the rounds"
    " (P2), or along half a cosine to 0"
)

NARROW_COLUMNS = 16
NARROW, WIDE = (48, 48), (128, 128, 128)
"""Hidden layers of FedNE's encoder of at most this many columns, and of others. *Measured*: with the 13 columns of
heart disease the small encoder keeps more, and with the 20 of cell lines less (docs/background/fedne.md). Without
control variates it learns less in as many rounds: FedAvg+NE loses a third of NPA-10."""
POOLED_ROUNDS = 60
"""Largest number of rounds in which the pooled-data map is trained."""
SURROGATE_UNITS = 64
"""Hidden units of a surrogate network; P2 does not state them."""
SOFTENING = 1e-3
"""Number added to the squared distance under the logarithm of the repulsion."""
FLOOR = 1e-5
"""Number added to the root of Adam's second moment; torch adds 1e-8.

No loss changes if the whole map moves, so in that direction the gradient is rounding alone, about 1e-8. With
torch's value, Adam would amplify it to full steps: the map would wander, and the last bits would become the
first.
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
        "update_bits": 64,
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
"""P2's values of these keys for MNIST; widths and rounds are not in the paper and come from its authors' code."""


class ContrastiveEncoder(MethodSettings):
    """Settings of an encoder and its training, common to all methods of this folder."""

    package: ClassVar[str | None] = "torch"

    hidden: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(
        WIDE, description="widths of the encoder's hidden layers"
    )
    neighbors: int = Field(
        7, ge=1, description="k, the number of neighbours that attract each row; fewer in smaller clients"
    )
    rounds: int = Field(POOLED_ROUNDS, ge=1, description="rounds")
    local_epochs: int = Field(1, ge=1, description="passes over a client's edges per round")
    local_steps: int | None = Field(
        None,
        ge=1,
        description="largest number of batches per client and round; default: all of its local epochs",
    )
    batch: int = Field(512, ge=2, description="edges per batch")
    negatives: int = Field(
        5, ge=1, description="b, the number of negatives per edge and the weight of repulsion"
    )
    learning_rate: float = Field(1e-3, gt=0, le=1, description="Adam's learning rate in the first rounds")
    schedule: Literal["steps", "cosine"] = Field("steps", description=SCHEDULE)
    decay: float = Field(
        0.1, gt=0, le=1, description="factor on the learning rate at each step of the schedule"
    )
    negatives_from: Literal["batch", "rows"] = Field(
        "batch",
        description="what repels the head of an edge: tails of other edges of the batch, or any other"
        " rows of the client, drawn uniformly (P2)",
    )
    standardise: bool = Field(
        True,
        description="whether rows are shifted to mean 0 and divided by one number, both learnt by"
        " sums; false: rows are used as they are (P2), in single precision, which loses"
        " details that are small compared with a common offset",
    )
    softening: float = Field(
        SOFTENING,
        ge=0,
        lt=1,
        description="number added to squared distances under the logarithm of the repulsion; 0: none (P2)",
    )
    adam_floor: float = Field(
        FLOOR, gt=0, description="number added to the root of Adam's second moment; Adam's authors use 1e-8"
    )

    def why_no_label(self) -> str | None:
        """Return why a label cannot take part in distances: held-out digits had an accuracy of 0.10 (0.81 without)."""
        return (
            f"the encoder of method.kind {self.kind!r} would read the label alone and could not place rows without one:"
            " set method.kind to fed-umap, fed-tsne or fedne"
        )

    def widths(self, features: int) -> tuple[int, ...]:
        """Return the widths of the hidden layers of an encoder of this many features."""
        return WIDE if self.hidden is None else self.hidden

    @property
    def own_neighbors(self) -> int:
        """Number of a client's own rows that attract each of its rows."""
        return self.neighbors

    @property
    def mixes_heads(self) -> bool:
        """Whether the heads of edges are mixed rows, new in each batch."""
        return False

    def trained_rows(self, rows: int) -> int:
        """Return the number of training rows of a client with this many rows."""
        return rows

    def rate(self, round: int, *, late: int = 1) -> float:
        """Return the learning rate in a round, counted from 1, of the last one in ``late`` parts of the schedule."""
        from raydr.methods.fedne.optimizer import cosine_rate, stepped_rate

        round = self.rounds - (self.rounds - round) // late
        if self.schedule == "cosine":
            return cosine_rate(round, self.rounds, self.learning_rate)
        return stepped_rate(round, self.rounds, self.learning_rate, self.decay)


class PresetSettings(Preset, ContrastiveEncoder):
    """Settings with a preset of P2's values."""

    published: ClassVar[Mapping[str, Any]] = PUBLISHED

    preset: Literal["published"] | None = Field(
        None,
        description="published: all keys that are not given take P2's values (docs/fedne.md)",
    )


class AveragedEncoder(PresetSettings):
    """Settings of methods that average encoders."""

    no_novelty: ClassVar[str] = (
        "new rows are compared by mean and scale of all rows, which takes method.standardise: true, no noise and no"
        " projection of wide rows"
    )

    aggregation: Aggregation = Field(
        Mean(), description="how the server combines the clients' uploads; robust rules see each upload"
    )
    server_optimizer: Literal["fedavg", "fedavgm", "fedadam", "nesterov"] = Field(
        "fedavg",
        description="how the server uses the clients' mean change: adds it (P2), or keeps a momentum",
    )
    server_learning_rate: float = Field(1.0, gt=0, description="factor on the server's step")
    publish: Literal["server", "local"] = Field(
        "server",
        description="who receives the positions of records. server: the server, which then has the whole map;"
        " local: no one; each client keeps its own, and only the simulation's evaluation sees all",
    )
    bounds: tuple[float, float] | None = Field(
        None,
        description="least and largest value of any feature, after scaling. One sum that noise can"
        " cover then gives the mean, the scale and the principal axes of the rows, and"
        " clients do not vote on ranges",
    )

    update_bits: Literal[16, 64] | None = Field(
        None,
        description="bits of a number in the clients' sums of updates and densities. 16: rounded at random, without"
        " bias (control variates: 32), and clients receive half precision; 64: exact sums of single precision (P2);"
        " default: 16, but 64 with noise on updates or a robust `aggregation`, which do not allow 16, and for rows that"
        " are not standardised",
    )

    @property
    def starts_at_axes(self) -> bool:
        """Whether the first encoder is made of principal axes."""
        return False

    @property
    def has_field(self) -> bool:
        """Whether a field repels rows."""
        return False

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        require_in_order(self.bounds)
        if self.bounds is not None and not self.standardise:
            raise ValueError("bounds scale the rows, but standardise is false: leave one of them out")
        return self

    @model_validator(mode="after")
    def _sums_to_round(self) -> Self:
        if self.update_bits == 16 and not isinstance(self.aggregation, Mean):
            raise ValueError(
                "update_bits: 16 rounds summands of the exact mean, and a robust aggregation reads each update:"
                " leave update_bits out, or choose aggregation: mean"
            )
        return self
