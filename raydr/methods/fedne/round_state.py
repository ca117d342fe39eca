"""State that the server of FedNE, FedAvg+NE and FedProx+NE passes from round to round."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from raydr.arrays import Float32Array, Float64Array, Int64Array, UInt8Array
from raydr.federation import Federation
from raydr.methods.fedne.clients import Change
from raydr.methods.fedne.optimizer import initial_memory


@dataclass(kw_only=True, frozen=True)
class ControlVariates:
    """Control variates between two rounds; without them, all arrays are empty.

    Attributes
    ----------
    control : (parameters,) float64
        The mean of all clients' control variates.
    kept : (clients, bytes) uint8
        Bytes that each client sealed for itself.
    kept_rounds : (clients,) int64
        The round in which it did.
    """

    control: Float64Array
    kept: UInt8Array
    kept_rounds: Int64Array

    @classmethod
    def none(cls) -> ControlVariates:
        """Return the state without control variates."""
        return cls(control=np.zeros(0), kept=np.zeros((0, 0), np.uint8), kept_rounds=np.zeros(0, np.int64))


@dataclass(kw_only=True, frozen=True)
class RoundState:
    """The server's state between two rounds; for ``control`` to ``kept_rounds`` see :class:`ControlVariates`.

    Attributes
    ----------
    weights : (parameters,) float32
        The encoder.
    memory : (2, parameters) float64
        State of the server's optimiser.
    field : (nodes, nodes) float32
        Repulsion of all rows on a grid; empty before the first.
    reach : float
        Half the width of the map, as clients last voted.
    grid : float
        Half the width of the field's grid.
    centre : (2,) float32
        Mean position of the rows in the field; 0 if it is unknown.
    spoken : (clients,) float32
        Share of the field of each client's rows; empty if it is unknown.
    field_weights : (parameters,) float32
        The encoder that the field was made with; empty without a field.
    field_round : int
        The round in which it was made; 0 without a field.
    surrogates : (clients, parameters of a surrogate) float32
        Each client's network; empty before the first.
    shares : (clients,) float32
        Share of all rows of each client with a network.
    """

    weights: Float32Array
    memory: Float64Array
    field: Float32Array
    reach: float
    grid: float
    centre: Float32Array
    spoken: Float32Array
    field_weights: Float32Array
    field_round: int
    surrogates: Float32Array
    shares: Float32Array
    control: Float64Array
    kept: UInt8Array
    kept_rounds: Int64Array

    @classmethod
    def first(cls, weights: Float32Array, controls: ControlVariates) -> RoundState:
        """Return the state before the first round, without surrogates."""
        return cls(
            weights=weights,
            memory=initial_memory(len(weights)),
            field=np.zeros((0, 0), np.float32),
            reach=1.0,
            grid=1.0,
            centre=np.zeros(2, np.float32),
            spoken=np.zeros(0, np.float32),
            field_weights=np.zeros(0, np.float32),
            field_round=0,
            surrogates=np.zeros((0, 0), np.float32),
            shares=np.zeros(0, np.float32),
            **vars(controls),
        )

    def with_controls(self, federation: Federation, answer: Change) -> RoundState:
        """Update the mean of all clients' last control variates, and store what each client sealed for itself."""
        if not self.control.size:
            return self
        answered = list(federation.answered)
        part = sum(federation.sizes[client] for client in answered) / federation.rows
        kept_rounds = self.kept_rounds.copy()
        kept_rounds[answered] = federation.round
        if len(answered) == federation.clients:
            kept = answer.kept
        else:
            # By far the largest array of the state: it is changed in place, unless a transcript still needs it.
            kept = self.kept.copy() if federation.recorded else self.kept
            kept[answered] = answer.kept
        return replace(self, control=self.control + part * answer.control, kept=kept, kept_rounds=kept_rounds)
