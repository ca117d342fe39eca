"""Differential privacy accounting: the charges of a run's releases, and their epsilon.

A charge records one Gaussian release by its noise multiplier. That is the deviation of the noise divided by the L2
sensitivity: the distance by which one record can move the release. Gaussian releases compose exactly, even if a later
release depends on an earlier one. Releases with multipliers z_i cost the same as one release with multiplier (sum 1 /
z_i^2)^-1/2 (Dong, Roth & Su 2022). The analytic Gaussian mechanism gives the epsilon of that release at delta (Balle &
Wang 2018).

The PLD and RDP accountants of dp-accounting receive the same events, one for each release, and the relation between
neighbouring data. Their epsilon must not be lower. A record belongs to one client. So the releases of different
clients in one call are one event: that of the least protected client.

A charge states its unit (a record or a whole client) and its relation. Epsilons of different units cannot be converted
exactly, so charges of both are not added up.

Each adversary has its own epsilon, because clients know their own shares of the noise on a sum. The server together
with the colluding clients sees everything that any other adversary sees. Its epsilon is the run's epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from raydr.errors import RunError, ScenarioError
from raydr.plain import short_number

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from raydr.privacy.mechanism import Mechanism, Relation, Unit

Adversary = Literal["server", "client", "colluders", "outsider"]
"""The observer:

- The server.
- One client, which knows its own share of the noise.
- The server together with all clients that may collude.
- An outsider, who sees sums and results computed from them.
"""

ADVERSARIES: tuple[Adversary, ...] = get_args(Adversary)


class BudgetError(RunError):
    """A release that would take a run past ``privacy.epsilon_max``. It was not requested."""


class UnitError(RunError):
    """Charges with different units or relations, which have no common epsilon."""


@dataclass(frozen=True)
class Budget:
    """The privacy budget of a run.

    Attributes
    ----------
    delta : float
        Delta at which epsilon is stated.
    epsilon_max : float or None
        Largest total epsilon of the releases; None for no limit.
    strict : bool or "sums"
        Whether unprotected messages are refused: all of them, or, for "sums", only sums.
    colluding : float
        Fraction of the clients in a sum that may reveal their shares of its noise; at least one client may.
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
        Name of the message type. "records" is noise on data; everything computed from the noisy data is
        post-processing.
    deviation, sensitivity : float
        Deviation of the noise, and sensitivity of what it covers. Both are those of the least protected client, as
        seen by the server and the clients that may collude with it.
    unit : {"record", "client"}
        Unit whose data move the release by at most ``sensitivity``.
    relation : {"zero-out", "replace-one"}
        How neighbouring data differ in that record or client.
    mechanism : Mechanism or None
        Mechanism on the messages that the charge pays for.
    server, client, outsider : float or None
        Noise multiplier as this adversary sees it; None if it equals ``multiplier``.
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
        """Noise multiplier as the strongest adversary sees it; infinite if no record can move the release."""
        return self.deviation / self.sensitivity if self.sensitivity else math.inf

    def seen_by(self, adversary: Adversary) -> float:
        """Return the noise multiplier as one adversary sees it."""
        found = None if adversary == "colluders" else getattr(self, adversary)
        return self.multiplier if found is None else float(found)


Charges = Mapping[Charge, int]
"""How often each release was made."""


def composed_multiplier(charges: Charges, adversary: Adversary = "colluders") -> float:
    """Return the multiplier of the one Gaussian release that costs as much as all; infinite for none.

    Raises
    ------
    UnitError
        If they differ in unit or relation.

    >>> composed_multiplier({Charge(kind="Step", deviation=10.0, sensitivity=1.0): 100})
    1.0
    """
    unit_of(charges)
    relation_of(charges)
    spent = math.fsum(count / charge.seen_by(adversary) ** 2 for charge, count in charges.items())
    return 1.0 / math.sqrt(spent) if spent else math.inf


def unit_of(charges: Charges) -> Unit | None:
    """Return the common unit of these charges; None for no charge.

    Raises
    ------
    UnitError
        If some protect records and others protect clients.

    >>> unit_of({Charge(kind="Change", deviation=1.0, sensitivity=1.0, unit="client"): 3})
    'client'
    """
    units = {charge.unit: charge.kind for charge in charges}
    if len(units) > 1:
        raise UnitError(
            f"Cannot add up the costs of {units['record']} (charged per record) and {units['client']} (charged per"
            " client). Use noise with one privacy.noise.unit for all releases."
        )
    return next(iter(units), None)


def relation_of(charges: Charges) -> Relation | None:
    """Return the common relation of these charges; None for no charge.

    Raises
    ------
    UnitError
        If their relations differ.
    """
    relations = {charge.relation: charge.kind for charge in charges}
    if len(relations) > 1:
        (one, first), (other, second) = sorted(relations.items())
        raise UnitError(
            f"Cannot add up the costs of {second} (relation {other}) and {first} (relation {one}). Use noise with"
            " one relation for all releases."
        )
    return next(iter(relations), None)


def gaussian_epsilon(multiplier: float, delta: float) -> float:
    """Return the epsilon of one Gaussian release at ``delta``, by the analytic Gaussian mechanism.

    >>> round(gaussian_epsilon(3.7304, 1e-5), 3)
    1.0
    """
    if multiplier == math.inf:
        return 0.0
    from dp_accounting import get_epsilon_gaussian

    with np.errstate(all="ignore"):  # the search evaluates log(0) on its way
        return float(get_epsilon_gaussian(multiplier, delta))


def gaussian_delta(multiplier: float, epsilon: float) -> float:
    """Return the exact delta of Gaussian noise at an epsilon (Balle & Wang 2018, theorem 8).

    ``multiplier`` is the deviation of the noise divided by the L2 sensitivity; 0 for no noise.

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
    """Return the least multiplier at which this many Gaussian releases are (epsilon, delta)-DP in total."""
    from dp_accounting import get_sigma_gaussian

    with np.errstate(all="ignore"):
        return math.sqrt(releases) * float(get_sigma_gaussian(epsilon, delta))


def epsilon_of(charges: Charges, delta: float, adversary: Adversary = "colluders") -> float:
    """Return the exact epsilon of all releases together.

    >>> epsilon_of({}, 1e-5)
    0.0
    """
    return gaussian_epsilon(composed_multiplier(charges, adversary), delta)


def dp_event(charges: Charges) -> DpEvent:
    """Return the releases as a dp-accounting event, one Gaussian event each, for the strongest adversary."""
    unit_of(charges)
    from dp_accounting import ComposedDpEvent, GaussianDpEvent, SelfComposedDpEvent

    return ComposedDpEvent(
        tuple(  # for an event with a hash
            SelfComposedDpEvent(GaussianDpEvent(charge.multiplier), count)
            for charge, count in charges.items()
            if math.isfinite(charge.multiplier)
        )
    )


_WIDEST_PLD = 50.0
"""Largest epsilon for the PLD accountant. Beyond it, its grid of 1e-4 steps takes too much memory."""


def accountant_epsilons(charges: Charges, delta: float) -> dict[str, float]:
    """Return the epsilons of dp-accounting's ``pld`` and ``rdp`` accountants.

    Neither is below the exact epsilon, apart from rounding. The accountants receive the relation and refuse events
    that they cannot account for under it. Above an epsilon of 50, which is no meaningful privacy, ``pld`` is left out.
    """
    names = ("rdp", "pld") if epsilon_of(charges, delta) < _WIDEST_PLD else ("rdp",)
    event, relation = dp_event(charges), relation_of(charges) or "zero-out"
    return {name: _accounted(name, event, relation, delta) for name in names}


@lru_cache(maxsize=256)  # up to a second each, and many runs of a sweep make the same releases
def _accounted(name: str, event: DpEvent, relation: Relation, delta: float) -> float:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    accountant = {"pld": PLDAccountant, "rdp": RdpAccountant}[name]
    neighbours = {
        "zero-out": NeighboringRelation.REPLACE_SPECIAL,
        "replace-one": NeighboringRelation.REPLACE_ONE,
    }[relation]
    return float(accountant(neighboring_relation=neighbours).compose(event).get_epsilon(delta))


def require_affordable(spent: Charges, charge: Charge, budget: Budget, what: str) -> None:
    """Raise if one more release would exceed the budget; ``what`` names the release.

    Raises
    ------
    ScenarioError
        If it is the first release, so that nothing has been released yet.
    BudgetError
        If there were earlier releases.
    """
    if budget.epsilon_max is None:
        return
    epsilon = epsilon_of({**spent, charge: spent.get(charge, 0) + 1}, budget.delta)
    if epsilon > budget.epsilon_max * (1.0 + 1e-9):
        message = (
            f"{what} would raise the run's epsilon to {epsilon:.4g} at delta {short_number(budget.delta)}, above"
            f" privacy.epsilon_max ({budget.epsilon_max:g}). The request was not sent. Add more noise, use fewer"
            " rounds, or raise privacy.epsilon_max."
        )
        raise BudgetError(message) if spent else ScenarioError(message)


def require_planned(planned: float, budget: Budget) -> None:
    """Raise ScenarioError if the planned epsilon of the noise exceeds the budget, before the run starts."""
    if budget.epsilon_max is not None and planned > budget.epsilon_max * (1.0 + 1e-9):
        raise ScenarioError(
            f"privacy.noise would cost epsilon {planned:.4g} at delta {short_number(budget.delta)}, above"
            f" privacy.epsilon_max ({budget.epsilon_max:g}). Add more noise, use fewer rounds, or raise"
            " privacy.epsilon_max."
        )
