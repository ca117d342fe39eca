"""Privacy mechanisms: what a client's host does to data or replies before they cross the boundary.

A mechanism is one frozen value at every place where it is spoken of: a section of the scenario, what the server tells
a client, what the client's host applies, and what the ledger says protected a message. It is added by one file:
settings registered by :func:`mechanism`.
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
from raydr.settings import Settings

Unit: TypeAlias = Literal["record", "client"]
"""The unit of a claim: one record, or a client with all of its records."""

Relation: TypeAlias = Literal["zero-out", "replace-one"]
"""The relation of neighbouring data, in the place of one record (or client): nothing, which adds zero to every sum, as
dp-accounting's REPLACE_SPECIAL has it; or any other. How many rows each client has is public in both."""

MOST_DELTA = 0.1
"""A mechanism that publishes one record in ten as it is has this delta, at any epsilon."""


def _small(delta: float) -> float:
    if delta >= MOST_DELTA:
        raise ValueError(
            f"delta {delta:g} is the chance that the claim does not hold, so it must be less than {MOST_DELTA:g}:"
            " choose one below 1 / rows, such as 1e-5"
        )
    return delta


Delta: TypeAlias = Annotated[float, Field(gt=0), AfterValidator(_small)]
"""At which an epsilon is told, in a scenario."""

Bound: TypeAlias = "float | FloatArray"
"""Largest absolute value that one client may send in a field: one number, or one for each entry."""


@dataclass(frozen=True)
class Quantity:
    """Values of which a mechanism may change each.

    Attributes
    ----------
    values : float64 array
        As they are.
    unit : float or array that broadcasts with ``values``
        In which a mechanism measures what it does to them, where it is told by how many of these.
    sensitivity : float
        How far one record can move all values that leave together, in L2; infinite where nothing bounds it.
    share : float
        Deviation that this client's noise is to have, as a part of the whole: 1 where each client's answer is to be
        covered by itself, less where only a sum is.
    resolution : float
        Of the ring in which the values will be added, 0 where none will: finer digits are lost.
    """

    values: Float64Array
    unit: float | Float64Array = 1.0
    sensitivity: float = math.inf
    share: float = 1.0
    resolution: float = 0.0


@dataclass(frozen=True)
class Claim:
    """What a mechanism promises for one answer, by the Gaussian mechanism's two numbers.

    Attributes
    ----------
    deviation : float
        Standard deviation of the noise.
    sensitivity : float
        How far one record can move what is covered, in L2, under the mechanism's own relation.
    """

    deviation: float
    sensitivity: float

    @property
    def multiplier(self) -> float:
        """Deviation over sensitivity: all that an accountant needs."""
        return self.deviation / self.sensitivity if self.sensitivity else math.inf


class Mechanism(Settings, ABC):
    """What a client's host does to what the client part is shown, or to what it answers.

    Attributes
    ----------
    kind : str
        Name of the mechanism.
    on : str
        What it changes: "data" for every feature of every record before the client part sees it, or something that
        replies have quantities of (:meth:`raydr.federation.Reply.quantities`).
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
        """Root mean square of what it changes a value by, in units of the quantity: what a server reckons with."""

    @abstractmethod
    def cover(self, quantity: Quantity, stream: np.random.Generator) -> Float64Array:
        """Return the values of a quantity as they may be seen; ``stream`` is the client's own for this mechanism."""

    def limited(self, rows: FloatArray) -> Float64Array:
        """Records (rows, features) as a mechanism on data covers them: in double precision, cut where it says so."""
        return rows.astype(np.float64)

    @property
    def record_sensitivity(self) -> float:
        """How far one record can move :meth:`limited` rows, in L2; infinite where nothing cuts them."""
        return math.inf

    @property
    def cut(self) -> float | None:
        """Norm to which records are cut, where it says so."""
        return None

    @property
    def for_good(self) -> bool:
        """Whether records are to carry it from the start, whatever is asked of them."""
        return False

    @property
    def by_level(self) -> bool:
        """Whether it is told in units of the data, which the server has to learn first."""
        return math.isfinite(self.deviation)

    @property
    def shared(self) -> bool:
        """Whether only the sum of all clients' answers is covered, to which each adds its share."""
        return False

    @property
    def protects(self) -> Unit:
        """Whose data its claims are about."""
        return "record"

    relation: Relation = "zero-out"

    def parted(self, share: float, sensitivity: float) -> Self:
        """Return the same for a release that is to spend so many times what one of ``sensitivity`` spends under it.

        Where it claims nothing there is nothing to spend, and nothing changes.
        """
        return self

    def in_round(self, done: int) -> Self:
        """Return the same for the round after ``done`` others, where its strength depends on it."""
        return self

    def calibrated(self, releases: float, delta: float) -> Self:
        """Return the same, fit for so many releases where it is told by what all of them may cost at ``delta``.

        One that spends only a part of what the others do counts as that part.
        """
        return self

    def claim(
        self, sensitivity: float, share: float = 1.0, *, values: int = 0, resolution: float = 0.0
    ) -> Claim | None:
        """Return what it promises for an answer that one record moves so far; None for nothing.

        Parameters
        ----------
        sensitivity, share, resolution : float
            See :class:`Quantity`.
        values : int
            How many values leave together.
        """
        return None

    def reach(self, largest: Bound, sensitivity: float) -> Bound:
        """Largest absolute value that may leave, where nothing larger than ``largest`` came in.

        Parameters
        ----------
        largest : float or array
            Largest absolute value that is covered.
        sensitivity : float
            Of a client with a single record, the most that there is.
        """
        return math.inf


def moved_mean(mechanism: Mechanism | None, sensitivity: float, rows: int) -> float:
    """How far what a mechanism protects moves a client's mean over so many rows, of vectors no longer than this.

    A record is one of the rows, and a client all of them. A mean is rounded once, from a sum that is exact, by at most
    2^-53 of its length; two means by twice that.
    """
    if mechanism is not None and mechanism.protects == "client":
        return sensitivity * (1.0 + 2.0**-50)
    return sensitivity * (1.0 / rows + 2.0**-50)


def silent(mechanism: Mechanism) -> Mechanism:
    """Return the same mechanism without its noise: what audits and tests hold noisy values against."""
    return _silent_kind(type(mechanism)).model_construct(**dict(mechanism))


@cache
def _silent_kind(kind: type[Mechanism]) -> type[Mechanism]:
    def cover(self: Mechanism, quantity: Quantity, stream: np.random.Generator) -> Float64Array:
        return quantity.values

    return type(f"Silent{kind.__name__}", (kind,), {"__module__": __name__, "cover": cover})


MECHANISMS = Kinds("mechanisms", "raydr.privacy")
"""Every mechanism by its ``kind``."""

mechanism = MECHANISMS
"""Decorator that registers a mechanism."""


def mechanism_of(content: Mapping[str, Any]) -> Mechanism:
    """Return the mechanism of which these are the plain values, as a ledger has them.

    Raises
    ------
    ValueError
        If there is none of that kind, or it has other values.
    """
    kind = content.get("kind") if isinstance(content, Mapping) else None
    known = MECHANISMS.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise ValueError(
            f"a protection is of kind {kind!r}, and this raydr knows only {', '.join(MECHANISMS)}: read it with a raydr"
            " that knows it"
        )
    found = known.model_validate(content)
    if not isinstance(found, Mechanism):
        raise TypeError(f"{known.__name__} is registered as a mechanism, and is none")
    return found


@dataclass(frozen=True)
class Coverage:
    """A mechanism, and which clients apply it.

    Attributes
    ----------
    mechanism : Mechanism
        What they apply.
    clients : float
        Part of the clients that do, drawn by the seed; the others do nothing.
    """

    mechanism: Mechanism
    clients: float = 1.0

    def count(self, clients: int) -> int:
        """How many of so many clients apply it.

        Raises
        ------
        ScenarioError
            If that is none: noise that nobody adds is no noise.
        """
        covered = round(self.clients * clients)
        if not covered:
            raise ScenarioError(
                f"privacy.noise.clients is {self.clients:g}, which of {clients} clients is none, so no noise would be"
                f" added: choose at least {1 / clients:.2g}, or leave privacy.noise out."
            )
        return covered

    def of_each(self, clients: int, rng: np.random.Generator) -> tuple[Mechanism | None, ...]:
        """Mechanism of each client; ``rng`` draws who applies it.

        >>> from raydr.privacy.gaussian import GaussianNoise
        >>> noise = GaussianNoise(on="data", level=0.5)
        >>> [found and found.level for found in Coverage(noise, 0.5).of_each(4, np.random.default_rng(0))]
        [None, None, 0.5, 0.5]
        """
        drawn = set(rng.choice(clients, self.count(clients), replace=False).tolist())
        return tuple(self.mechanism if client in drawn else None for client in range(clients))
