"""Totals of clients' replies, from the partial sums of their hosts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import IntArray
from raydr.federation.failures import QuorumError
from raydr.federation.messages import Reply, declared_ranges
from raydr.federation.ring import decode, fraction_bits, in_ring
from raydr.federation.wire import PartialSum, SumCall
from raydr.privacy.mechanism import Mechanism


@dataclass(kw_only=True)
class Total:
    """Partial sums, added up as they arrive: only one of them needs memory in addition to the total.

    The first is kept in its own memory and never written to.

    Attributes
    ----------
    clients : set of int
        Clients whose summands are included.
    weight : int
        Total weight of the summands.
    totals : mapping of field name to array
        Sums in the ring, as integers of its bits.
    """

    clients: set[int] = field(default_factory=set)
    weight: int = 0
    totals: dict[str, IntArray] = field(default_factory=dict, repr=False)
    _sealed: dict[str, dict[int, NDArray[Any]]] = field(default_factory=dict, repr=False)
    _own: set[str] = field(default_factory=set, repr=False)
    _reply: type[Reply] | None = None
    _protections: set[Mechanism | None] = field(default_factory=set, repr=False)

    @property
    def protection(self) -> Mechanism | None:
        """The mechanism on every summand; None if one had none, or mechanisms differ."""
        return next(iter(self._protections)) if len(self._protections) == 1 else None

    def add(self, part: PartialSum) -> None:
        """Add the partial sum of other clients."""
        for name, summand in part.totals.items():
            before = self.totals.get(name)
            if before is None:
                self.totals[name] = summand  # kept in its own memory, never written to
            elif name in self._own:
                before += summand
            else:
                self.totals[name] = np.asarray(before + summand)  # numpy returns a scalar for 0-d arrays
                self._own.add(name)
        for name, sealed in part.sealed.items():
            self._sealed.setdefault(name, {}).update(sealed)
        self._reply = part.reply
        self._protections.update(sent.protection for sent in part.sent)
        self.clients.update(part.clients)
        self.weight += part.weight

    def decoded(self, call: SumCall, divisor: int = 1) -> Reply:
        """Return the sum divided by ``divisor`` as a reply, rounded to float64; sealed fields by client.

        Of a blinded sum, return 1 where it is not 0: its other values are random.

        Raises
        ------
        QuorumError
            If no client answered.
        """
        if self._reply is None:
            raise QuorumError("no client answered.")
        fields: dict[str, Any] = {}
        for name, declared in declared_ranges(self._reply, call.request, 0).items():
            if declared.sealed:
                fields[name] = np.stack([self._sealed[name][client] for client in sorted(self.clients)])
                continue
            bits = fraction_bits(declared.largest, call.total_weight, declared.bits)
            total = in_ring(self.totals[name], declared.bits)
            value = (total != 0).astype(np.float64) if call.is_blinded else decode(total, bits, divisor)
            fields[name] = value if value.ndim else float(value)
        return self._reply(**fields)
