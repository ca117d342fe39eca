"""What a run cost in privacy, for ``privacy.json``: made of the ledger alone, by the accountant.

>>> statement(Ledger(), Budget()).epsilon
0.0
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from raydr.privacy.accounting import Budget, accountant_epsilons, composed_multiplier, epsilon_of, unit_of
from raydr.privacy.ledger import Entry, Granularity, Ledger, Public, paid_as


@dataclass(frozen=True, kw_only=True)
class Release:
    """One kind of message that left the clients, and what it cost.

    Attributes
    ----------
    kind, what, granularity, seen_by : str
        As the ledger has them.
    messages : int
        Of all clients together.
    public : Public or None
        Why it costs nothing; None where it costs something.
    mechanism : str or None
        What covers it, in words.
    releases : int
        How many of a client's answers the accountant charges; 0 where nothing is claimed, or noise on data pays.
    deviation, sensitivity, multiplier : float or None
        Of the noise of the client least protected, in the first of the releases; None where nothing is claimed.
    epsilon : float or None
        Of these releases alone; None where it is infinite.
    share : float or None
        Part of what all charged releases spend together, in squares of inverse multipliers.
    """

    kind: str
    what: str
    granularity: str
    seen_by: str
    messages: int
    public: Public | None
    mechanism: str | None
    releases: int
    deviation: float | None
    sensitivity: float | None
    multiplier: float | None
    epsilon: float | None
    share: float | None


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What a run cost.

    Attributes
    ----------
    epsilon : float or None
        Of the whole run, against the server as it is, for one ``unit``; None where it is infinite.
    delta : float
        At which epsilon is told.
    infinite : tuple of str
        Why it is infinite: a sentence for each reason; empty where it is not.
    epsilon_accounted : float
        Of all releases under noise with a claim, against the server; what ``privacy.epsilon_max`` bounds.
    epsilon_of_sums : float
        Of the same, against those who see sums alone: the clients, and the server under secure aggregation.
    accountants : mapping of name to float
        ``epsilon_accounted`` by dp-accounting's own accountants.
    adjacency : str or None
        Which data are neighbours: "add-remove" or "replace-one"; None where nothing is charged.
    unit : {"record", "client"} or None
        Whose presence the charged releases hide; None where nothing is charged.
    secure_aggregation : bool
        Whether each client's summand is hidden from the server.
    strict : bool or str
        ``privacy.strict``.
    epsilon_max : float or None
        ``privacy.epsilon_max``.
    releases : tuple of Release
        Every kind of message that left a client.
    """

    epsilon: float | None
    delta: float
    infinite: tuple[str, ...]
    epsilon_accounted: float
    epsilon_of_sums: float
    accountants: Mapping[str, float]
    adjacency: str | None
    unit: Literal["record", "client"] | None = None
    secure_aggregation: bool
    strict: bool | str
    epsilon_max: float | None
    releases: tuple[Release, ...]


def statement(ledger: Ledger, budget: Budget) -> Statement:
    """Return what a ledger's releases cost; entries that other noise covers, or none, make epsilon infinite."""
    up = [entry for entry in ledger.entries.values() if entry.direction == "up"]
    accounted = epsilon_of(ledger.charges, budget.delta)
    reasons = tuple(dict.fromkeys(reason(entry) for entry in up if bare(entry, ledger)))
    adjacencies = {getattr(entry.protection, "adjacency", None) for entry in up if _claims(entry, ledger)}
    return Statement(
        epsilon=None if reasons else accounted,
        delta=budget.delta,
        infinite=reasons,
        epsilon_accounted=accounted,
        epsilon_of_sums=epsilon_of(ledger.charges, budget.delta, "sums"),
        accountants=accountant_epsilons(ledger.charges, budget.delta) if ledger.charges else {},
        adjacency=next(iter(adjacencies), None),
        unit=unit_of(ledger.charges),
        secure_aggregation=any(entry.secure for entry in up),
        strict=budget.strict,
        epsilon_max=budget.epsilon_max,
        releases=tuple(_release(entry, ledger, budget.delta) for entry in up),
    )


def _claims(entry: Entry, ledger: Ledger) -> bool:
    return bool(ledger.costs_of(entry))


def bare(entry: Entry, ledger: Ledger) -> bool:
    """Whether nothing with a claim covers what left a client, and it is not public."""
    return entry.direction == "up" and not entry.public and not _claims(entry, ledger)


def reason(entry: Entry) -> str:
    """Why such an entry makes epsilon infinite."""
    covered = (
        f" under {entry.protection.words}, which claims nothing" if entry.protection else " in the clear"
    )
    if entry.granularity == Granularity.PER_RECORD:
        return (
            f"{entry.kind} leaves the client{covered}, for each record ({entry.what}), so no run that posts it is"
            " differentially private as a whole"
        )
    return f"{entry.kind} leaves the client{covered}: {entry.what}"


def _release(entry: Entry, ledger: Ledger, delta: float) -> Release:
    costs = ledger.costs_of(entry)
    first = next(iter(costs), None)
    whole = composed_multiplier(ledger.charges)
    return Release(
        kind=entry.kind,
        what=entry.what,
        granularity=entry.granularity,
        seen_by=entry.seen_by,
        messages=entry.count,
        public=entry.public,
        mechanism=entry.protection.words if entry.protection is not None else None,
        releases=sum(costs.values()) if paid_as(entry) == entry.kind else 0,
        deviation=first.deviation if first else None,
        sensitivity=first.sensitivity if first else None,
        multiplier=first.multiplier if first else None,
        epsilon=epsilon_of(costs, delta) if costs else (0.0 if entry.public else None),
        share=(whole / composed_multiplier(costs)) ** 2 if costs else None,
    )
