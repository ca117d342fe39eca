"""Local training (P2 (10)): Adam on batches of edges, for one client or for several as one computation.

Clients are the first axis of every tensor. One client is an axis of length 1, so single and stacked training
are the same code. In stacked training, a client without further batches stays still while others continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from raydr.arrays import Float32Array, Float64Array, FloatArray, Int64Array
from raydr.methods.fedne.edges import Schedule
from raydr.methods.fedne.encoder import Architecture, encode
from raydr.methods.fedne.loss import attraction, repulsion, squared_distance
from raydr.methods.fedne.settings import FLOOR, SOFTENING

FIRST_DECAY, SECOND_DECAY = 0.9, 0.999

Surrogate = Callable[[Tensor], Tensor]
"""Mean repulsion by unseen rows at positions (clients, points, 2), as (clients, points)."""


@dataclass(frozen=True)
class Objective:
    """Terms of the loss.

    Attributes
    ----------
    negatives : float
        Weight b of repulsion relative to attraction.
    own_share : (clients,) float32 or None
        Weight of the repulsion among a batch's own rows: 1 without a surrogate, |D_m| / |D| with surrogates of the
        other clients (10). None if a surrogate represents all clients, so that the batch's rows do not repel each
        other.
    surrogate : Surrogate or None
        Repulsion by unseen rows.
    proximity : float
        mu of FedProx: weight of half the squared distance from the weights received.
    softening : float
        Softening of the repulsion among own rows.
    weight_decay : float
        Weight of half the squared length of all weights.
    """

    negatives: float
    own_share: Float32Array | None
    surrogate: Surrogate | None = None
    proximity: float = 0.0
    softening: float = SOFTENING
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Trained:
    """Result of training.

    Attributes
    ----------
    weights : (clients, parameters) float32
        Final weights of each client.
    losses : (clients,) float64
        Mean loss over each client's batches, each at the weights of its step; 0 without batches.
    gradients : (clients, parameters) float32
        Mean gradient of the loss over the same batches; 0 without batches.
    """

    weights: Float32Array
    losses: Float64Array
    gradients: Float32Array


@dataclass(frozen=True)
class Local:
    """One client's part in training: rows (rows, features) float32, and the batches of their edges."""

    rows: FloatArray
    schedule: Schedule


def train(
    architecture: Architecture,
    weights: Float32Array,
    clients: Sequence[Local],
    objective: Objective,
    *,
    learning_rate: float,
    corrections: Float32Array | None = None,
    floor: float = FLOOR,
    device: str = "cpu",
) -> Trained:
    """Train each client's copy of the encoder.

    Parameters
    ----------
    architecture : Architecture
        The encoder.
    weights : (parameters,) or (clients, parameters) float32
        Initial weights, common or per client.
    clients : sequence of Local
        Clients to train, at least one. A client without batches keeps its weights.
    objective : Objective
        The loss.
    learning_rate : float
        Learning rate of Adam, whose moments start at zero.
    corrections : (clients, parameters) float32 or None
        Added to every gradient of each client before the step.
    floor : float
        Added to the root of Adam's second moment.
    device : str
        Torch device.
    """
    batches = Batches(clients, device)
    start = torch.from_numpy(np.array(weights, np.float32)).to(device).expand(len(clients), -1)
    flat = start.clone().requires_grad_()
    first, second = torch.zeros_like(flat), torch.zeros_like(flat)
    gradients = torch.zeros_like(flat)
    losses = torch.zeros(len(clients), dtype=torch.float64, device=device)
    added = None if corrections is None else torch.from_numpy(corrections).to(device)
    for step in range(batches.steps):
        loss = batch_loss(architecture, flat, batches, step, objective)
        if objective.proximity:
            loss = loss + 0.5 * objective.proximity * ((flat - start) ** 2).sum(dim=-1)
        if objective.weight_decay:
            loss = loss + 0.5 * objective.weight_decay * (flat**2).sum(dim=-1)
        (gradient,) = torch.autograd.grad(loss.sum(), flat)
        with torch.no_grad():
            moving = batches.moving[:, step]
            gradients += gradient * moving[:, None] if batches.uneven else gradient
            if added is not None:
                gradient += added
            first.lerp_(gradient, 1.0 - FIRST_DECAY)
            second.mul_(SECOND_DECAY).addcmul_(gradient, gradient, value=1.0 - SECOND_DECAY)
            root = (second / (1.0 - SECOND_DECAY ** (step + 1))).sqrt_().add_(floor)
            size = learning_rate / (1.0 - FIRST_DECAY ** (step + 1))
            flat.addcdiv_(first * moving[:, None] if batches.uneven else first, root, value=-size)
            losses += moving * loss.double()
    counts = np.array([max(1, client.schedule.steps) for client in clients], np.float32)
    means = (gradients.cpu().numpy() / counts[:, None]).astype(np.float32, copy=False)
    return Trained(flat.detach().cpu().numpy(), losses.cpu().numpy() / counts, means)


def batch_loss(
    architecture: Architecture, weights: Tensor, batches: Batches, step: int, objective: Objective
) -> Tensor:
    """Return the loss of one batch of each client, (clients,)."""
    live = batches.live[:, step]
    edges = live.sum(dim=1).clamp(min=1.0)
    encoded = encode(architecture, weights, batches.rows(step))
    at_head, at_tail = batches.ends(step, encoded)
    loss = (live * attraction(squared_distance(at_head, at_tail))).sum(dim=1) / edges
    if objective.own_share is not None:
        apart = squared_distance(at_head.unsqueeze(2), batches.repelling(step, encoded, at_tail))
        felt = repulsion(apart, objective.softening).mean(dim=2)
        near = (live * felt).sum(dim=1) / edges * batches.repelled[:, step]
        share = torch.from_numpy(objective.own_share).to(near.device)
        loss = loss + objective.negatives * share * near
    if objective.surrogate is not None:
        far = (live * objective.surrogate(at_head)).sum(dim=1) / edges
        loss = loss + objective.negatives * far
    return loss


class Batches:
    """All batches of all clients as tensors with the clients first; the rows of all clients form one table.

    Attributes
    ----------
    steps : int
        Steps of the client that has most.
    table : (all rows, features) float32
        The rows that batches are read from.
    weights : (clients, steps, entries) float32
        Shares of the rows that make up a head, if rows are mixed, and 1 for a tail.
    live : (clients, steps, edges) float32
        1 for an edge, 0 for the padding of a smaller client's batch.
    negatives : (clients, steps, edges, drawn) int64
        Places in the batch of the tails that repel an edge's head; or rows that repel it.
    repelled : (clients, steps)
        Factor of the repulsion among the client's own rows.
    uneven : bool
        Whether some clients have fewer steps than others.
    moving : (clients, steps) float32
        1 while a client still has steps to take.
    """

    def __init__(self, clients: Sequence[Local], device: str) -> None:
        self.steps = max(client.schedule.steps for client in clients)
        rows = [np.asarray(client.rows, np.float32) for client in clients]
        table = np.concatenate(rows) if len(rows) > 1 else np.ascontiguousarray(rows[0])
        first = np.cumsum([0, *(len(part) for part in rows)])[:-1]

        def stacked(name: str, first: Int64Array | None = None) -> Tensor:
            parts = [getattr(client.schedule, name) for client in clients]
            if first is not None:
                parts = [part + start for part, start in zip(parts, first, strict=True)]
            return torch.from_numpy(_padded(parts)).to(device)

        self.table = torch.from_numpy(table if table.flags.writeable else table.copy()).to(device)
        heads, tails, share = stacked("heads", first), stacked("tails", first), stacked("share")
        self.live, self.repelled = stacked("live"), stacked("repelled")
        self._from_rows = clients[0].schedule.from_rows
        self.negatives = stacked("negatives", first if self._from_rows else None)
        # After the heads: tails, and the rows that repel.
        others = torch.cat([tails, self.negatives.flatten(2)], dim=2) if self._from_rows else tails
        self._width = width = heads.shape[2]
        # Read from the schedules, not from their padding.
        self._mixed = any(bool((client.schedule.share != 1.0).any()) for client in clients)
        if self._mixed:
            self._shape = len(clients), width + others.shape[2], table.shape[1]
            # A head is a bag of two rows and a tail one of a single row: one pass reads and adds them.
            heads = torch.stack([heads, stacked("partners", first)], dim=3).flatten(2)
            mixed = torch.stack([share, 1.0 - share], dim=3).flatten(2)
            self.weights = torch.cat([mixed, torch.ones(others.shape, device=device)], dim=2)
            counts = torch.tensor([width, others.shape[2]], device=device)
            sizes = torch.tensor([2, 1], device=device).repeat_interleave(counts).repeat(len(clients))
            self._bags = sizes.cumsum(0) - sizes
            self._taken = torch.cat([heads, others], dim=2)
        else:
            # A row of several edges is encoded once.
            self._taken, self._entries = _each_once(torch.cat([heads, others], dim=2))
        moving = np.array([np.arange(self.steps) < client.schedule.steps for client in clients])
        self.uneven = not moving.all()
        self.moving = torch.from_numpy(moving.astype(np.float32)).to(device)

    def rows(self, step: int) -> Tensor:
        """Return the rows to encode for one batch of each client, (clients, rows, features), for :meth:`ends`."""
        taken = self._taken[:, step].reshape(-1)
        if not self._mixed:
            return self.table.index_select(0, taken).view(len(self._taken), -1, self.table.shape[1])
        weights = self.weights[:, step].reshape(-1)
        rows = embedding_bag(taken, self.table, self._bags, mode="sum", per_sample_weights=weights)
        return rows.view(self._shape)

    def ends(self, step: int, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Return heads and tails of one batch, each (clients, edges, ...), from its encoded :meth:`rows`."""
        both = self._entered(step, encoded, slice(0, 2 * self._width))
        heads, tails = torch.split(both, self._width, dim=1)
        return heads, tails

    def repelling(self, step: int, encoded: Tensor, tails: Tensor) -> Tensor:
        """Return the repelling tails or rows of each head of one batch, (clients, edges, drawn, ...)."""
        negatives = self.negatives[:, step]
        if self._from_rows:
            rows = self._entered(step, encoded, slice(2 * self._width, None))
            return rows.reshape(*negatives.shape, -1)
        places = negatives.flatten(1).unsqueeze(-1).expand(-1, -1, tails.shape[-1])
        return tails.gather(1, places).reshape(*negatives.shape, -1)

    def _entered(self, step: int, encoded: Tensor, part: slice) -> Tensor:
        """Return some entries of one batch, (clients, entries, ...), from its encoded rows."""
        if self._mixed:
            return encoded[:, part]
        entries = self._entries[:, step, part].unsqueeze(-1).expand(-1, -1, encoded.shape[-1])
        return encoded.gather(1, entries)


def _each_once(entries: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct values of each line of ``entries`` (clients, steps, entries), and the index of each entry."""
    if not entries.numel():
        return entries, entries
    flat = entries.flatten(0, 1).cpu().numpy()
    lines = [np.unique(line, return_inverse=True) for line in flat]
    held = torch.from_numpy(_padded([line[None] for line, _ in lines])).view(*entries.shape[:2], -1)
    places = torch.from_numpy(np.stack([place for _, place in lines])).view(entries.shape)
    return held.to(entries.device), places.to(entries.device)


def _padded(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Stack parts of differing sizes as one array (parts, ...), padded with zeros."""
    if len(parts) == 1:
        return parts[0][None]
    shape = tuple(max(sizes) for sizes in zip(*(part.shape for part in parts), strict=True))
    together = np.zeros((len(parts), *shape), parts[0].dtype)
    for index, part in enumerate(parts):
        together[index][tuple(map(slice, part.shape))] = part
    return together
