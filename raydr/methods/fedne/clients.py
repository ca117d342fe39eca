"""FedNE's messages and the client code behind them. Encoder weights travel as one flat vector."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from raydr.arrays import Float32Array, Float64Array, FloatArray, Int64Array, UInt8Array
from raydr.device import workplace
from raydr.errors import RunError
from raydr.federation import (
    Cells,
    Client,
    Granularity,
    Range,
    Reply,
    Request,
    answers,
    answers_jointly,
)
from raydr.methods.fedne.positions import architecture_of, positions_of
from raydr.methods.fedne.settings import FLOOR, SOFTENING
from raydr.privacy import Mechanism, Quantity
from raydr.privacy.sealing import Binding, seal, sealed_size, unseal
from raydr.statistics.scaling import Unshifted
from raydr.wire_types import travels

if TYPE_CHECKING:
    from raydr.methods.fedne.field import Grid
    from raydr.methods.fedne.training import Local, Objective

LARGEST_LOSS = 1e4
LARGEST_GRADIENT = 64.0
"""Entries of a mean gradient beyond it are clipped at the client; typical entries are about 1e-2."""
LONGEST_STEP = 7.3
"""Adam moves a parameter by at most this many learning rates in a step.

|m| / sqrt(v) is at most sqrt(sum a^2 / b), by Cauchy-Schwarz, for the weights a of the first moment and b of
the second: 7.27 with decays 0.9 and 0.999. Bias correction makes it less.
"""


@dataclass(frozen=True)
class Prototypes(
    Reply,
    granularity=Granularity.PER_CLIENT,
    what="means of groups of a client's records, each group with at least the given number of records",
):
    """``means`` (prototypes, features) float32; the number of prototypes follows from the number of rows."""

    means: Float32Array

    @staticmethod
    def ranges(request: PrototypeRequest, rows: int) -> dict[str, Range]:
        """Return the range: one mean per group."""
        from raydr.geometry.prototypes import prototype_count

        return {"means": Range((prototype_count(rows, request.least), request.features), dtype="float32")}

    def cells(self, request: PrototypeRequest, client: Client) -> tuple[Cells, ...]:
        """Return the least number of records in a group."""
        return (Cells(np.full(len(self.means), request.least)),)


@dataclass(frozen=True)
class PrototypeRequest(Request[Prototypes], what="the least number of records in a group"):
    """Request sent once, before the first round."""

    least: int
    features: int


@answers(PrototypeRequest)
def show_prototypes(client: Client, request: PrototypeRequest) -> Prototypes:
    """Run the client part of the warm start."""
    from raydr.geometry.prototypes import prototypes

    return Prototypes(prototypes(client.rows, request.least))


@dataclass(frozen=True)
class Change(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="the change of each encoder weight by a client's training, its mean loss, the change of its"
    " mean gradient since its last round, and that gradient, sealed for the client itself",
    covers=("weights",),
):
    """Result of local training at one client.

    Attributes
    ----------
    weights : (parameters,) float32; in a sum over clients and under noise float64
        Trained minus received weights; under noise clipped.
    loss : float
        Mean over the client's batches; 0 under noise, which does not cover it.
    control : (parameters,) float32; in a sum over clients float64
        Change of the client's control variate; empty without control variates. Exact below 1, because
        half-precision numbers are multiples of 2^-24.
    kept : (bytes,) uint8
        The client's control variate, sealed; empty without control variates.
    """

    weights: FloatArray
    loss: float
    control: FloatArray
    kept: UInt8Array

    @staticmethod
    def ranges(request: TrainRequest, rows: int) -> dict[str, Range]:
        """Return bounds that follow from the number of Adam steps."""
        largest = LONGEST_STEP * request.learning_rate * max(1, request.training.most_steps) + 1e-6
        size = kept_size(request.control.size) if request.control.size else 0
        dtype, bits = "float32", request.training.bits
        if request.mechanism is not None:
            dtype, largest = "float64", min(largest, request.clip)
        return {
            "weights": Range(request.weights.shape, largest, dtype, bits=bits),
            "loss": Range((), LARGEST_LOSS),
            # Rounding errors of control variates add up over rounds.
            "control": Range(request.control.shape, 2.0 * LARGEST_GRADIENT, "float32", bits=max(bits, 32)),
            "kept": Range((size,), 255.0, "uint8", sealed=True),
        }

    def quantities(self, on: str, request: TrainRequest) -> dict[str, Quantity]:
        """Return the change of the weights."""
        return {"weights": Quantity(self.weights.astype(np.float64))}


@travels
@dataclass(kw_only=True, frozen=True)
class Training:
    """Settings of local training that all rounds share.

    Attributes
    ----------
    hidden, neighbors, batch, local_epochs, negatives, mixing, proximity, mixed, negatives_from, softening,
    adam_floor
        As in the settings; ``mixing`` and ``proximity`` are 0 for none.
    most_steps : int
        Largest number of batches per client, which bounds the change of its weights.
    rows : int
        Rows of all clients.
    together : bool
        Whether the clients of one host train as one.
    left_out : float
        Share of the other clients' networks that each client leaves out.
    bits : {64, 16}
        Bits of a number in the sum of the changes.
    weight_decay : float
        Weight of half the squared length of an encoder's weights in a client's loss.
    """

    hidden: tuple[int, ...]
    neighbors: int
    batch: int
    local_epochs: int
    negatives: int
    mixing: float
    proximity: float
    most_steps: int
    rows: int
    together: bool
    left_out: float = 0.0
    mixed: Literal["edges", "rows"] = "edges"
    negatives_from: Literal["batch", "rows"] = "batch"
    softening: float = SOFTENING
    adam_floor: float = FLOOR
    bits: int = 64
    weight_decay: float = 0.0

    @property
    def device(self) -> str:
        """Return the device for large products of clients that train as one; single clients are too small."""
        return workplace().torch_device if self.together else "cpu"


@travels
@dataclass(frozen=True)
class FieldSource:
    """Encoder (parameters,) and round that a field was made with."""

    weights: FloatArray
    round: int


@dataclass(kw_only=True, frozen=True)
class TrainRequest(
    Request[Change], what="the current encoder and the summed repulsion or surrogates of the other clients"
):
    """One round of local training.

    Attributes
    ----------
    training : Training
        Settings that do not change between rounds.
    weights : (parameters,) float32 or float16
        The current encoder.
    learning_rate : float
        Learning rate of this round.
    field : (nodes, nodes) float32 or float16
        Mean repulsion by the rows of all clients at the nodes from -reach to reach; no nodes without a field.
    reach : float
        Half the width of the field.
    surrogates : (clients, parameters) float32
        Surrogate networks; none without networks.
    shares : (clients,) float32
        Share of all rows that each network represents.
    control : (parameters,) float32 or float16
        Mean of all clients' control variates; empty without control variates.
    kept : (clients, bytes) uint8
        The sealed control variate of every client; a message to one client holds its own alone.
    kept_rounds : (clients,) int64
        Round in which each client sealed it, 0 before its first; a message to one client holds its own alone.
    spoken : (clients,) float32
        Share of the field that comes from each client's rows, 0 for clients that did not answer; empty if
        unknown. A message to one client holds its own alone.
    source : FieldSource or None
        What the field was made with, by which a client finds its own part of the field; None if it was made in this
        round, or ``spoken`` is empty.
    mechanism : Mechanism or None
        Noise per client on the whole change.
    """

    training: Training
    weights: FloatArray
    learning_rate: float
    field: FloatArray
    reach: float
    surrogates: Float32Array
    shares: Float32Array
    control: FloatArray
    kept: UInt8Array
    kept_rounds: Int64Array
    spoken: Float32Array
    source: FieldSource | None = None
    mechanism: Mechanism | None = None
    deviation: float = math.nan

    @property
    def clip(self) -> float:
        """Clip norm of a client's whole change."""
        cut = self.mechanism.cut if self.mechanism is not None else None
        return math.inf if cut is None else cut

    def sensitivity(self, rows: int) -> float:
        """Return the sensitivity for any number of rows: the clip, for a client and for one record alike."""
        return self.clip * (1.0 + 1e-9)

    def addressed_to(self, client: int) -> TrainRequest:
        """Return the request with this client's sealed control variate and share of the field alone."""
        own = slice(client, client + 1)
        request = replace(self, spoken=self.spoken[own]) if self.spoken.size else self
        if not self.kept.size:
            return request
        return replace(request, kept=self.kept[own], kept_rounds=self.kept_rounds[own])

    @property
    def jointly(self) -> bool:
        """Return whether clients of one host train as one."""
        return self.training.together


@answers(TrainRequest)
def train_locally(client: Client, request: TrainRequest) -> Change:
    """Run the client part of a round: P2 (10) from the weights received."""
    return train_together([client], [request])[0]


@answers_jointly(TrainRequest)
def train_together(clients: Sequence[Client], requests: Sequence[TrainRequest]) -> list[Change]:
    """Run the client part for several clients with stacked weights, in one product."""
    from raydr.methods.fedne.encoder import one_torch_thread

    # Conversions too: on busy cores, torch's threads wait for each other for milliseconds.
    with one_torch_thread():
        return _trained(clients, requests)


def _trained(clients: Sequence[Client], requests: Sequence[TrainRequest]) -> list[Change]:
    """Train clients as one; their requests differ only in what each client sealed alone."""
    import torch

    from raydr.methods.fedne.training import train

    request = requests[0]
    controls = _controls(clients, requests)
    trained = train(
        architecture_of(clients[0].rows, request.training.hidden),
        request.weights,
        [local_task(client, request) for client in clients],
        replace(objective_of(clients, requests), weight_decay=request.training.weight_decay),
        learning_rate=request.learning_rate,
        floor=request.training.adam_floor,
        corrections=None if controls is None else request.control - controls,
        device=request.training.device,
    )
    if not np.isfinite(trained.losses).all() or not np.isfinite(trained.weights).all():
        raise RunError(
            "Training diverged: the loss is not finite. Check the client's rows for values that are"
            " not finite or far out of scale, or lower method.learning_rate."
        )
    changes = trained.weights - request.weights
    if request.mechanism is not None:
        return [Change(cut(change, request.clip), 0.0, *_nothing_kept()) for change in changes]
    losses = np.minimum(trained.losses, LARGEST_LOSS)
    if controls is None:
        return [
            Change(change, float(loss), *_nothing_kept())
            for change, loss in zip(changes, losses, strict=True)
        ]
    renewed = np.clip(trained.gradients, -LARGEST_GRADIENT, LARGEST_GRADIENT)
    halves = torch.from_numpy(renewed).half()
    moved = halves.float().numpy()
    moved -= controls
    return [
        Change(change, float(loss), control, seal(half, _secret(client), _binding(client, client.round)))
        for client, change, loss, control, half in zip(
            clients, changes, losses, moved, halves.numpy().view(np.uint8), strict=True
        )
    ]


def cut(change: FloatArray, clip: float) -> Float64Array:
    """Clip a change (parameters,) to L2 norm ``clip``, in float64."""
    values = change.astype(np.float64)
    return np.asarray(values * (clip / max(float(np.linalg.norm(values)), clip)))


def _nothing_kept() -> tuple[Float32Array, UInt8Array]:
    """Return an empty control variate and an empty change of it."""
    return np.zeros(0, np.float32), np.zeros(0, np.uint8)


def _controls(clients: Sequence[Client], requests: Sequence[TrainRequest]) -> Float32Array | None:
    """Return each client's control variate (clients, parameters), or None without control variates.

    It is stored in half precision: it need not be exact, only equal at the client and in c. Torch converts it
    80 times as fast as numpy.

    Raises
    ------
    RunError
        If a client receives something other than what it sealed in that round, or something older than it
        received before.
    """
    import torch

    if not requests[0].control.size:
        return None
    controls = np.zeros((len(clients), requests[0].control.size), np.float32)
    for client, request, control in zip(clients, requests, controls, strict=True):
        sealed_in = int(request.kept_rounds[0])
        newest = client.memory.get("control variate of round", 0)
        if sealed_in < newest:
            raise RunError(
                f"client {client.index} received its control variate of round {sealed_in} after that of"
                f" round {newest}: the server's state is out of order. Resume from a checkpoint, or"
                " start the run again."
            )
        client.memory["control variate of round"] = sealed_in
        if sealed_in:
            own = unseal(request.kept[0], _secret(client), _binding(client, sealed_in))
            control[:] = torch.from_numpy(own.view(np.float16)).float().numpy()
    return controls


def kept_size(parameters: int) -> int:
    """Return the bytes of a client's sealed control variate."""
    return sealed_size(2 * parameters)


def _secret(client: Client) -> bytes:
    """Return the key under which a client seals, the same in all rounds."""
    return client.secret.key("sealing")


def _binding(client: Client, round: int) -> Binding:
    return Binding(client.run, client.index, round, "control variate")


def local_task(client: Client, request: TrainRequest) -> Local:
    """Return a client's rows and the batches of this round, with mixed rows made again in each round."""
    from raydr.methods.fedne.edges import local_neighbors, schedule, with_mixed
    from raydr.methods.fedne.training import Local

    training = request.training
    rows, nearest, mixing = client.rows, neighbors_of(client, training.neighbors), training.mixing or None
    if training.mixed == "rows" and mixing is not None:
        rows, mixing = with_mixed(rows, nearest, mixing, client.stream("mixed rows")), None
        nearest = local_neighbors(rows, training.neighbors)
    batches = schedule(
        nearest,
        batch=training.batch,
        epochs=training.local_epochs,
        negatives=0 if request.field.size and not request.spoken.size else training.negatives,
        mixing=mixing,
        steps=training.most_steps,
        from_rows=training.negatives_from == "rows",
        random=client.stream("batches"),
    )
    return Local(rows, batches)


def objective_of(clients: Sequence[Client], requests: Sequence[TrainRequest]) -> Objective:
    """Return the objective: repulsion by own rows, and by the field, by networks (10) or by nothing else.

    Own rows repel each other where they are now, weighted by their share of all rows. The field minus this share
    represents the other clients' rows, where they were when it was made. The field counts twice. Among pooled rows
    (P2 (1)) either row of a pair may be drawn as the other's negative, and each time both rows move. A field moves the
    head alone.
    """
    from raydr.methods.fedne.field import Grid, as_field, interpolated
    from raydr.methods.fedne.networks import together
    from raydr.methods.fedne.training import Objective

    request = requests[0]
    training, device = request.training, request.training.device
    negatives, proximity, softening = float(training.negatives), training.proximity, training.softening
    if request.field.size:
        grid = Grid(request.reach, len(request.field))
        asked, field, own = list(zip(clients, requests, strict=True)), request.field, None
        if request.spoken.size:
            field = np.stack([others_field(*each, grid) for each in asked])
            own = np.array([own_share(*each) for each in asked], np.float32)
        far = as_field(field).to(device)
        return Objective(negatives, own, lambda at: 2.0 * interpolated(grid, far, at), proximity, softening)
    alone = np.ones(len(clients), np.float32)
    if not request.surrogates.size:
        return Objective(negatives, alone, None, proximity, softening)
    others = np.tile(request.shares, (len(clients), 1))
    others[np.arange(len(clients)), [client.index for client in clients]] = 0.0
    if training.left_out:
        others = np.stack([_some(*each, training.left_out) for each in zip(clients, others, strict=True)])
    own = np.array([len(client.rows) / training.rows for client in clients], np.float32)
    return Objective(negatives, own, together(request.surrogates, others, device), proximity, softening)


def own_share(client: Client, request: TrainRequest) -> float:
    """Return the part of all repulsion that the client's own rows have: their share of the field, or of all rows."""
    return float(request.spoken[0]) or len(client.rows) / request.training.rows


def others_field(client: Client, request: TrainRequest, grid: Grid) -> FloatArray:
    """Return the field (nodes, nodes) without the client's own density, computed again as the client sent it.

    A density of the current encoder would leave the client's rows repelled by where they were themselves.
    """
    from raydr.methods.fedne.field import deposit, repulsion_field
    from raydr.methods.fedne.surrogates import density_rows

    share = float(request.spoken[0])
    if not share:
        return (request.field * (1.0 - own_share(client, request))).astype(np.float32)
    source = request.source or FieldSource(request.weights, client.round)
    rows = density_rows(replace(client, round=source.round))
    places = positions_of(rows, source.weights, request.training.hidden)
    own = repulsion_field(grid, deposit(grid, places) / max(1, len(places)), request.training.softening)
    return (request.field - share * own).astype(np.float32)


def _some(client: Client, shares: Float32Array, left_out: float) -> Float32Array:
    """Set a random part of the shares (networks,) to 0 and scale the rest, so that the total stays."""
    there = np.flatnonzero(shares)
    kept = max(1, round((1.0 - left_out) * len(there)))
    chosen = client.stream("surrogates kept").choice(there, min(kept, len(there)), replace=False)
    some = np.zeros_like(shares)
    some[chosen] = shares[chosen]
    return np.asarray(some * (shares.sum() / max(float(some.sum()), np.finfo(np.float32).tiny)), np.float32)


def neighbors_of(client: Client, k: int) -> Int64Array:
    """Return the neighbours (rows, at most k) among a client's own rows, searched once."""
    from raydr.methods.fedne.edges import local_neighbors

    kept: Int64Array | None = client.memory.get("neighbors")
    if kept is None:
        rows = client.rows.rows if isinstance(client.rows, Unshifted) else client.rows
        kept = client.memory["neighbors"] = local_neighbors(rows, k)
    return kept
