"""The privacy cost of a run for ``privacy.json``, computed from the ledger alone.

>>> statement(Ledger(), Budget()).epsilon
0.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from raydr.plain import short_number
from raydr.privacy.accounting import (
    ADVERSARIES,
    Adversary,
    Budget,
    accountant_epsilons,
    composed_multiplier,
    epsilon_of,
    relation_of,
    unit_of,
)
from raydr.privacy.composition import RunCost
from raydr.privacy.ledger import Entry, Granularity, Ledger, Public, paid_as
from raydr.privacy.mechanism import Relation, Unit
from raydr.privacy.policy import AppliedPolicy

STEERED = "SteerRows"
"""Kind of the message after which rows contain the label."""


@dataclass(frozen=True, kw_only=True)
class ReleaseSummary:
    """One kind of message that left the clients, and its cost.

    Attributes
    ----------
    kind, what, granularity, seen_by : str
        See :class:`raydr.privacy.ledger.Entry`.
    messages : int
        Messages of all clients together.
    public : Public or None
        Why it costs no privacy; None if it does.
    mechanism : str or None
        The mechanism in words.
    releases : int
        Charged releases of a client; 0 without a claim, or if noise on data pays.
    deviation, sensitivity, multiplier : float or None
        Values of the least protected client in the first release; None without a claim.
    epsilon : float or None
        Epsilon of these releases alone; None if it is infinite.
    share : float or None
        Fraction of the total spending of all charged releases, in squares of inverse multipliers.
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
class Against:
    """The cost of a run against one adversary.

    Attributes
    ----------
    epsilon : float or None
        Epsilon of the whole run; None if it is infinite, for the reasons in :attr:`Statement.infinite`.
    accounted : float
        Epsilon of all releases with a claim.
    knows : str
        What the adversary sees of them, and which noise it can remove.
    """

    epsilon: float | None
    accounted: float
    knows: str


@dataclass(frozen=True, kw_only=True)
class Statement:
    """The privacy cost of a run.

    Attributes
    ----------
    epsilon : float or None
        Epsilon of the whole run against the strongest adversary, for one ``unit``; None if it is infinite.
    delta : float
        Delta at which epsilon is stated.
    infinite : tuple of str
        Why epsilon is infinite, one sentence for each reason; empty if it is finite.
    epsilon_accounted : float
        Epsilon of all releases with a claim, against the strongest adversary. ``privacy.epsilon_max`` limits it.
    epsilon_by_adversary : mapping of name to Against
        Cost against the server, one curious client, the server together with all clients that may collude (the
        strongest), and an outsider.
    accountants : mapping of name to float
        ``epsilon_accounted`` as computed by dp-accounting's accountants.
    relation : {"zero-out", "replace-one"} or None
        How neighbouring data differ in one ``unit``; None if nothing is charged.
    unit : {"record", "client"} or None
        Unit of the charged releases; None if nothing is charged.
    notices : tuple of str
        Notices on what weakens the claim.
    secure_aggregation : bool
        Whether each client's summand is hidden from the server.
    strict : bool or str
        ``privacy.strict``.
    epsilon_max : float or None
        ``privacy.epsilon_max``.
    releases : tuple of ReleaseSummary
        Every kind of message that left a client.
    policies : tuple of AppliedPolicy
        Policy of each site; empty if no site has one.
    """

    epsilon: float | None
    delta: float
    infinite: tuple[str, ...]
    epsilon_accounted: float
    epsilon_by_adversary: Mapping[Adversary, Against]
    accountants: Mapping[str, float]
    relation: Relation | None
    unit: Unit | None = None
    notices: tuple[str, ...] = ()
    secure_aggregation: bool
    strict: bool | str
    epsilon_max: float | None
    releases: tuple[ReleaseSummary, ...]
    policies: tuple[AppliedPolicy, ...] = ()

    @property
    def cost(self) -> RunCost:
        """The cost for :func:`raydr.privacy.composition.composed`."""
        return RunCost(self.epsilon, self.epsilon_accounted, self.delta, self.unit, self.relation)


def statement(ledger: Ledger, budget: Budget, sizes: Sequence[int] = ()) -> Statement:
    """Return the privacy cost of a ledger's releases.

    Entries without a claim make epsilon infinite, unless they are public.

    Parameters
    ----------
    ledger : Ledger
        Ledger of the run.
    budget : Budget
        Budget with the delta and the colluding fraction of the clients.
    sizes : sequence of int
        Rows of each client, if they are known.
    """
    up = [entry for entry in ledger.entries.values() if entry.direction == "up"]
    accounted = epsilon_of(ledger.charges, budget.delta)
    reasons = tuple(dict.fromkeys(reason(entry) for entry in up if bare(entry, ledger)))
    secure = any(entry.secure for entry in up)
    return Statement(
        epsilon=None if reasons else accounted,
        delta=budget.delta,
        infinite=reasons,
        epsilon_accounted=accounted,
        epsilon_by_adversary={
            adversary: _against(adversary, ledger, budget, secure, finite=not reasons)
            for adversary in ADVERSARIES
        },
        accountants=accountant_epsilons(ledger.charges, budget.delta) if ledger.charges else {},
        relation=relation_of(ledger.charges),
        unit=unit_of(ledger.charges),
        notices=tuple(_notices(ledger, budget, sizes)),
        secure_aggregation=secure,
        strict=budget.strict,
        epsilon_max=budget.epsilon_max,
        releases=tuple(_release(entry, ledger, budget.delta) for entry in up),
    )


def _against(adversary: Adversary, ledger: Ledger, budget: Budget, secure: bool, *, finite: bool) -> Against:
    accounted = epsilon_of(ledger.charges, budget.delta, adversary)
    seen = "sums over clients" if secure else "each client's upload"
    part = f"{budget.colluding:g} of the clients in each sum (at least one)"
    knows = {
        "server": seen,
        "client": "sums over clients, and its own share of their noise",
        "colluders": f"{seen}, and the noise shares of {part}",
        "outsider": "the published results of sums over clients",
    }
    return Against(epsilon=accounted if finite else None, accounted=accounted, knows=knows[adversary])


def _notices(ledger: Ledger, budget: Budget, sizes: Sequence[int]) -> Iterator[str]:
    """Yield a notice if labels take part, and if delta would allow publishing a whole record or client."""
    if any(entry.kind == STEERED for entry in ledger.entries.values()):
        yield (
            "The label takes part in distances (data.target_weight): every message about records depends on their"
            " labels too, and a record's guarantee, if it has one, covers both."
        )
    unit = unit_of(ledger.charges)
    count = sum(1 for rows in sizes if rows) if unit == "client" else sum(sizes)
    if unit is not None and budget.delta * count > 1.0:
        yield (
            f"delta {short_number(budget.delta)} is more than 1 / {count:,} {unit}s. A mechanism that publishes one"
            f" {unit} unchanged would also satisfy it. Set privacy.delta below {1.0 / count:.2g}."
        )


def _claims(entry: Entry, ledger: Ledger) -> bool:
    return bool(ledger.costs_of(entry))


def bare(entry: Entry, ledger: Ledger) -> bool:
    """Return whether an upload is neither public nor covered by a claim."""
    return entry.direction == "up" and not entry.public and not _claims(entry, ledger)


def reason(entry: Entry) -> str:
    """Return why such an entry makes epsilon infinite."""
    covered = (
        f" under {entry.protection.words} (claims no epsilon)" if entry.protection else " without protection"
    )
    if entry.granularity == Granularity.PER_RECORD:
        return (
            f"{entry.kind} leaves the client{covered} for each record ({entry.what}), so a run that posts it is not"
            " differentially private as a whole"
        )
    return f"{entry.kind} leaves the client{covered}: {entry.what}"


def _release(entry: Entry, ledger: Ledger, delta: float) -> ReleaseSummary:
    costs = ledger.costs_of(entry)
    first = next(iter(costs), None)
    whole = composed_multiplier(ledger.charges)
    return ReleaseSummary(
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
