"""What a run's releases cost in differential privacy: charges are recorded, and read here.

A charge is one Gaussian release, by its noise multiplier: deviation over the L2 distance by which one record can move
what is released. Gaussian releases compose exactly, also where a later one depends on an earlier: those of multipliers
z_i cost what one of multiplier (sum 1 / z_i^2)^-1/2 costs, and of that the analytic Gaussian mechanism gives epsilon at
delta (Balle & Wang 2018; composition: Dong, Roth & Su 2022). The PLD and RDP accountants of dp-accounting are given the
same events, one for each release, and the relation between neighbouring data, and must not say less. A record is one
client's, so what different clients release in one call is one event: that of the client least protected.

A charge says what it hides, a record or a whole client, and under which relation. Epsilons of the one say nothing of
the other that would be exact, so charges of both are not added up.

Every adversary has an epsilon of its own, because clients know their own shares of the noise on a sum. The server
together with the clients that may collude sees all that any other adversary sees: its epsilon is the run's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from raydr.errors import RunError, ScenarioError

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from raydr.privacy.mechanism import Mechanism, Relation, Unit

Adversary = Literal["server", "client", "colluders", "outsider"]
"""Who looks: the server; one client, which knows its own share of the noise; the server together with all clients that
may collude; or an outsider, who sees sums and what is made of them."""

ADVERSARIES: tuple[Adversary, ...] = get_args(Adversary)


class BudgetError(RunError):
    """A release that would take a run past ``privacy.epsilon_max``; it was not made."""


class UnitError(RunError):
    """Charges of different units of privacy, or of different relations, which have no common epsilon."""


@dataclass(frozen=True)
class Budget:
    """What a run may cost.

    Attributes
    ----------
    delta : float
        At which epsilon is told.
    epsilon_max : float or None
        Most that the releases may come to together; None for no bound.
    strict : bool or "sums"
        Whether nothing may leave that no mechanism with a claim covers: nothing at all, or, for "sums", no sum.
    colluding : float
        Part of the clients in a sum that may tell their shares of its noise; at least one client may.
    """

    delta: float = 1e-5
    epsilon_max: float | None = None
    strict: bool | Literal["sums"] = False
    colluding: float = 0.2


@dataclass(kw_only=True, frozen=True)
class Charge:
    """One Gaussian release.

    Attributes
    ----------
    kind : str
        Name of the message type; "records" for noise on data, of which all that follows is post-processing.
    deviation, sensitivity : float
        Of the noise, and of what it covers, of the client least protected, as the server and the clients that may
        collude with it see them.
    unit : {"record", "client"}
        Whose data move what is released by ``sensitivity`` at most.
    relation : {"zero-out", "replace-one"}
        What neighbouring data have in that record's or client's place.
    mechanism : Mechanism or None
        What covers the messages that it pays for.
    server, client, outsider : float or None
        Noise multiplier as each of these sees it alone; None where it is ``multiplier``.
    """

    kind: str
    deviation: float
    sensitivity: float
    unit: Unit = "record"
    relation: Relation = "zero-out"
    mechanism: Mechanism | None = None
    server: float | None = None
    client: float | None = None
    outsider: float | None = None

    @property
    def multiplier(self) -> float:
        """Noise multiplier as the strongest adversary sees it; infinite for what no record can move."""
        return self.deviation / self.sensitivity if self.sensitivity else math.inf

    def seen_by(self, adversary: Adversary) -> float:
        """Noise multiplier for one adversary."""
        found = None if adversary == "colluders" else getattr(self, adversary)
        return self.multiplier if found is None else float(found)


Charges = Mapping[Charge, int]
"""How often each release was made."""


def composed_multiplier(charges: Charges, adversary: Adversary = "colluders") -> float:
    """Multiplier of the one Gaussian release that costs as much as all of these; infinite for none.

    Raises
    ------
    UnitError
        If they are not of one unit and one relation.

    >>> composed_multiplier({Charge("Step", 10.0, 1.0): 100})
    1.0
    """
    unit_of(charges)
    relation_of(charges)
    spent = math.fsum(count / charge.seen_by(adversary) ** 2 for charge, count in charges.items())
    return 1.0 / math.sqrt(spent) if spent else math.inf


def unit_of(charges: Charges) -> Unit | None:
    """Return what all of these hide; None for no charge.

    Raises
    ------
    UnitError
        If some of them hide records and others clients.

    >>> unit_of({Charge("Change", 1.0, 1.0, "client"): 3})
    'client'
    """
    units = {charge.unit: charge.kind for charge in charges}
    if len(units) > 1:
        raise UnitError(
            f"{units['record']} is charged by record and {units['client']} by client, and what they cost cannot be"
            " added up: cover all releases by noise of one privacy.noise.unit."
        )
    return next(iter(units), None)


def relation_of(charges: Charges) -> Relation | None:
    """Return the relation between neighbouring data that all of these are charged for; None for no charge.

    Raises
    ------
    UnitError
        If they are charged for different relations.
    """
    relations = {charge.relation: charge.kind for charge in charges}
    if len(relations) > 1:
        (one, first), (other, second) = sorted(relations.items())
        raise UnitError(
            f"{second} is charged for {other} and {first} for {one}, and their costs cannot be added up: cover all"
            " releases by noise of one relation."
        )
    return next(iter(relations), None)


def gaussian_epsilon(multiplier: float, delta: float) -> float:
    """Epsilon of one Gaussian release at ``delta``, by the analytic Gaussian mechanism.

    >>> round(gaussian_epsilon(3.7304, 1e-5), 3)
    1.0
    """
    from dp_accounting import get_epsilon_gaussian

    with np.errstate(all="ignore"):  # its search passes where logarithms of 0 are taken
        return float(get_epsilon_gaussian(multiplier, delta))


def gaussian_delta(multiplier: float, epsilon: float) -> float:
    """The delta of Gaussian noise at an epsilon, exactly (Balle & Wang 2018, theorem 8).

    ``multiplier`` is the deviation of the noise in units of the L2 sensitivity; 0 for no noise.

    Examples
    --------
    >>> round(gaussian_delta(3.73, 1.0), 7)
    1e-05
    """
    from scipy.special import log_ndtr, ndtr

    if multiplier == 0:
        return 1.0
    half, rest = 0.5 / multiplier, epsilon * multiplier
    # The exponent is at most log(1/2).
    return float(ndtr(half - rest) - math.exp(epsilon + float(log_ndtr(-half - rest))))


def gaussian_multiplier(epsilon: float, delta: float, releases: float = 1) -> float:
    """Least multiplier at which so many Gaussian releases together are (epsilon, delta)-differentially private."""
    from dp_accounting import get_sigma_gaussian

    with np.errstate(all="ignore"):
        return math.sqrt(releases) * float(get_sigma_gaussian(epsilon, delta))


def epsilon_of(charges: Charges, delta: float, adversary: Adversary = "colluders") -> float:
    """Epsilon of all releases together, exactly.

    >>> epsilon_of({}, 1e-5)
    0.0
    """
    return gaussian_epsilon(composed_multiplier(charges, adversary), delta)


def dp_event(charges: Charges) -> DpEvent:
    """Return the releases as dp-accounting has them, one Gaussian event each, as the strongest adversary sees them."""
    unit_of(charges)
    from dp_accounting import ComposedDpEvent, GaussianDpEvent, SelfComposedDpEvent

    return ComposedDpEvent(
        [
            SelfComposedDpEvent(GaussianDpEvent(charge.multiplier), count)
            for charge, count in charges.items()
            if math.isfinite(charge.multiplier)
        ]
    )


_WIDEST_PLD = 50.0
"""Epsilon past which a privacy loss distribution in steps of 1e-4 is not worth its memory."""


def accountant_epsilons(charges: Charges, delta: float) -> dict[str, float]:
    """Epsilon by dp-accounting's ``pld`` and ``rdp`` accountants; neither is below the exact one but by rounding.

    They are told the relation, and refuse an event that they cannot account for under it. Past an epsilon of 50, where
    no one would call it privacy, without ``pld``.
    """
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    relation = {
        "zero-out": NeighboringRelation.REPLACE_SPECIAL,
        "replace-one": NeighboringRelation.REPLACE_ONE,
    }[relation_of(charges) or "zero-out"]
    accountants = {"rdp": RdpAccountant(neighboring_relation=relation)}
    if epsilon_of(charges, delta) < _WIDEST_PLD:
        accountants["pld"] = PLDAccountant(neighboring_relation=relation)
    event = dp_event(charges)
    return {
        name: float(accountant.compose(event).get_epsilon(delta)) for name, accountant in accountants.items()
    }


def require_affordable(spent: Charges, charge: Charge, budget: Budget, what: str) -> None:
    """Raise if one more release would pass the budget; ``what`` names it.

    Raises
    ------
    ScenarioError
        If it is the first, so that nothing has been released.
    BudgetError
        If it is not.
    """
    if budget.epsilon_max is None:
        return
    epsilon = epsilon_of({**spent, charge: spent.get(charge, 0) + 1}, budget.delta)
    if epsilon > budget.epsilon_max * (1.0 + 1e-9):
        message = (
            f"{what} would take the run to epsilon {epsilon:.4g} at delta {budget.delta:g}, and privacy.epsilon_max is"
            f" {budget.epsilon_max:g}, so it was not asked for: give more noise or fewer rounds, or raise epsilon_max."
        )
        raise BudgetError(message) if spent else ScenarioError(message)


def require_planned(planned: float, budget: Budget) -> None:
    """Raise ScenarioError if noise that is to come to ``planned`` passes the budget; before anything is asked."""
    if budget.epsilon_max is not None and planned > budget.epsilon_max * (1.0 + 1e-9):
        raise ScenarioError(
            f"privacy.noise would come to epsilon {planned:.4g} at delta {budget.delta:g}, and privacy.epsilon_max is"
            f" {budget.epsilon_max:g}: give more noise or fewer rounds, or raise epsilon_max."
        )
