"""Privacy mechanisms: what a client's host does to data or replies before they cross the boundary.

A mechanism is one frozen value in every place. It is a section of the scenario, the server's request to a client, what
the client's host applies, and the protection in the ledger. To add one, write a file with settings that
:func:`mechanism` registers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

import numpy as np
from pydantic import AfterValidator, Field

from raydr.arrays import Float64Array, FloatArray
from raydr.errors import ScenarioError
from raydr.registry import Kinds
from raydr.settings import MessageSettings

Unit: TypeAlias = Literal["record", "client"]
"""The unit of a claim: one record, or a client with all of its records."""

Relation: TypeAlias = Literal["zero-out", "replace-one"]
"""The relation of neighbouring data. "zero-out": one record (or client) is removed and adds zero to every sum, as in
dp-accounting's REPLACE_SPECIAL. "replace-one": any other takes its place. Both treat the row count of each client as
public.
"""

MOST_DELTA = 0.1
"""Upper limit of delta. At 0.1, a mechanism may publish one record in ten unchanged, at any epsilon."""


def _small(delta: float) -> float:
    if delta >= MOST_DELTA:
        raise ValueError(
            f"expected less than {MOST_DELTA:g}, got {delta:g}: delta is the probability that the claim fails."
            " Choose a value below 1 / rows, such as 1e-5"
        )
    return delta


Delta: TypeAlias = Annotated[float, Field(gt=0), AfterValidator(_small)]
"""Delta at which an epsilon is stated, in a scenario."""

Bound: TypeAlias = "float | FloatArray"
"""Largest absolute value that one client may send in a field: one number, or one for each entry."""


@dataclass(frozen=True)
class Quantity:
    """Values that a mechanism may change.

    Attributes
    ----------
    values : float64 array
        The values without noise.
    unit : float or array that broadcasts with ``values``
        Unit of the level of a mechanism that is set by a level.
    sensitivity : float
        L2 distance by which one record can move all values that leave together; infinite without a bound.
    share : float
        Deviation of this client's noise as a fraction of the whole: 1 if each client's reply is covered by itself,
        less if only a sum is.
    resolution : float
        Resolution of the ring in which the values are summed, 0 for no ring: finer digits are lost.
    """

    values: Float64Array
    unit: float | Float64Array = 1.0
    sensitivity: float = math.inf
    share: float = 1.0
    resolution: float = 0.0


@dataclass(frozen=True)
class Claim:
    """The claim of a mechanism for one reply: the two numbers of the Gaussian mechanism.

    Attributes
    ----------
    deviation : float
        Standard deviation of the noise.
    sensitivity : float
        L2 distance by which one record can move what is covered, under the mechanism's relation.
    """

    deviation: float
    sensitivity: float

    @property
    def multiplier(self) -> float:
        """Deviation divided by sensitivity: all that an accountant needs."""
        return self.deviation / self.sensitivity if self.sensitivity else math.inf


class Mechanism(MessageSettings, ABC):
    """A change that a client's host makes to the client part's rows or to its replies.

    Attributes
    ----------
    kind : str
        Name of the mechanism.
    on : str
        What it changes: "data" for every feature of every record before the client part sees it, or a quantity of
        replies (:meth:`raydr.federation.Reply.quantities`).
    """

    if TYPE_CHECKING:  # declared by each mechanism, in the order in which it is written
        kind: str
        on: str

    @property
    @abstractmethod
    def words(self) -> str:
        """A phrase for people, such as ``Gaussian noise of level 0.1 on distances``."""

    @property
    @abstractmethod
    def deviation(self) -> float:
        """Root mean square of the change of a value, in units of the quantity; the server uses it."""

    @abstractmethod
    def cover(self, quantity: Quantity, stream: np.random.Generator) -> Float64Array:
        """Return the protected values of a quantity; ``stream`` is the client's own for this mechanism."""

    def limited(self, rows: FloatArray) -> Float64Array:
        """Return the records (rows, features) as a mechanism on data covers them: float64, clipped if set."""
        return rows.astype(np.float64)

    @property
    def record_sensitivity(self) -> float:
        """L2 distance by which one record can move the :meth:`limited` rows; infinite without a clip norm."""
        return math.inf

    @property
    def cut(self) -> float | None:
        """Clip norm of the records; None without one."""
        return None

    @property
    def for_good(self) -> bool:
        """Whether records carry the noise from the start, for every request."""
        return False

    @property
    def by_level(self) -> bool:
        """Whether the noise is set relative to the data, whose spread the server must learn first."""
        return math.isfinite(self.deviation)

    @property
    def shared(self) -> bool:
        """Whether only the sum of all clients' replies is covered, to which each adds a share of the noise."""
        return False

    @property
    def protects(self) -> Unit:
        """The unit of its claims."""
        return "record"

    relation: Relation = "zero-out"

    def parted(self, share: float, sensitivity: float) -> Self:
        """Return the mechanism for a release that spends ``share`` times one release of ``sensitivity``.

        Without a claim there is no budget to spend, and nothing changes.
        """
        return self

    def in_round(self, done: int) -> Self:
        """Return the mechanism for the round after ``done`` rounds, if its strength depends on the round."""
        return self

    def calibrated(self, releases: float, delta: float) -> Self:
        """Return the mechanism calibrated for this many releases, if it is set by their total cost at ``delta``.

        A release that spends only a part of what the others spend counts as that part.
        """
        return self

    def claim(
        self, sensitivity: float, share: float = 1.0, *, values: int = 0, resolution: float = 0.0
    ) -> Claim | None:
        """Return the claim for a reply with this sensitivity; None for no claim.

        Parameters
        ----------
        sensitivity, share, resolution : float
            See :class:`Quantity`.
        values : int
            Number of values that leave together.
        """
        return None

    def reach(self, largest: Bound, sensitivity: float) -> Bound:
        """Return the largest absolute value that may leave if no larger value than ``largest`` came in.

        Parameters
        ----------
        largest : float or array
            Largest absolute value of the covered values.
        sensitivity : float
            Sensitivity of a client with a single record, which is the largest possible.
        """
        return math.inf


def moved_mean(mechanism: Mechanism | None, sensitivity: float, rows: int) -> float:
    """Return the sensitivity of a client's mean over ``rows`` vectors with length at most ``sensitivity``.

    The unit is one row, or the whole client if the mechanism protects clients. A mean is rounded once, from an exact
    sum, by at most 2^-53 of its length. Two means are rounded by twice that.
    """
    if mechanism is not None and mechanism.protects == "client":
        return sensitivity * (1.0 + 2.0**-50)
    return sensitivity * (1.0 / rows + 2.0**-50)


def silent(mechanism: Mechanism) -> Mechanism:
    """Return the same mechanism without noise, as a reference for audits and tests."""
    return _silent_kind(type(mechanism)).model_construct(**dict(mechanism))


@cache
def _silent_kind(kind: type[Mechanism]) -> type[Mechanism]:
    def cover(self: Mechanism, quantity: Quantity, stream: np.random.Generator) -> Float64Array:
        return quantity.values

    return type(f"Silent{kind.__name__}", (kind,), {"__module__": __name__, "cover": cover})


MECHANISMS = Kinds("mechanisms", "raydr.privacy")
"""Every mechanism, by its ``kind``."""

mechanism = MECHANISMS
"""Decorator that registers a mechanism."""


def mechanism_of(content: Mapping[str, Any]) -> Mechanism:
    """Return the mechanism with these plain values, as read from a ledger.

    Raises
    ------
    ValueError
        If the kind is unknown or the values do not fit.
    """
    kind = content.get("kind") if isinstance(content, Mapping) else None
    known = MECHANISMS.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise ValueError(
            f"unknown protection kind {kind!r}: this version of raydr knows only {', '.join(MECHANISMS)}. Read it"
            " with the version of raydr that wrote it"
        )
    found = known.model_validate(content)
    if not isinstance(found, Mechanism):
        raise TypeError(f"{known.__name__} is registered as a mechanism, but does not derive from Mechanism")
    return found


@dataclass(frozen=True)
class Coverage:
    """A mechanism and the fraction of the clients that apply it.

    Attributes
    ----------
    mechanism : Mechanism
        The mechanism that they apply.
    clients : float
        Fraction of the clients that apply it, drawn from the seed; the others apply nothing.
    """

    mechanism: Mechanism
    clients: float = 1.0

    def count(self, clients: int) -> int:
        """Return how many of ``clients`` clients apply the mechanism.

        Raises
        ------
        ScenarioError
            If none does, so that no noise would be added.
        """
        covered = round(self.clients * clients)
        if not covered:
            raise ScenarioError(
                f"privacy.noise.clients is {self.clients:g}, which selects none of the {clients} clients, so no"
                f" noise would be added. Set it to at least {1 / clients:.2g}, or leave privacy.noise out."
            )
        return covered

    def of_each(self, clients: int, rng: np.random.Generator) -> tuple[Mechanism | None, ...]:
        """Return the mechanism of each client or None; ``rng`` draws who applies it.

        >>> from raydr.privacy.gaussian import GaussianNoise
        >>> noise = GaussianNoise(on="data", level=0.5)
        >>> [found and found.level for found in Coverage(noise, 0.5).of_each(4, np.random.default_rng(0))]
        [None, None, 0.5, 0.5]
        """
        drawn = set(rng.choice(clients, self.count(clients), replace=False).tolist())
        return tuple(self.mechanism if client in drawn else None for client in range(clients))
