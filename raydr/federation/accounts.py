"""The accountant at the boundary: check the cost of a call before it is sent, and charge it once.

A call is one release, even if clients are asked again within one start of a run: their noise has the same numbers. The
release is recorded before the call is sent (:mod:`raydr.federation.releases`), so that a resumed run counts it. If a
resumed run makes the same request to the same clients and gets a bit-identical answer, that is the same release.
Otherwise it is another release and is charged too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, sqrt
from typing import Any

import numpy as np

from raydr.errors import ScenarioError
from raydr.federation.messages import Request, declared_ranges
from raydr.federation.noise_streams import digest
from raydr.federation.releases import Released
from raydr.federation.ring import resolution
from raydr.federation.wire import Call, Sharing, SumCall, Weighting, weight_of
from raydr.privacy.accounting import Budget, Charge, require_affordable
from raydr.privacy.ledger import RECORDS, Granularity, Ledger
from raydr.privacy.mechanism import Claim, Mechanism
from raydr.privacy.shares import colluders_of, shares_of_whole


@dataclass(frozen=True)
class Due:
    """The cost of a call if clients answer it.

    Attributes
    ----------
    charge : Charge or None
        Charge of the least protected client; None without a claim or cost.
    sharing : Sharing or None
        How clients share the noise of a sum; None if each client covers its own reply.
    of_sum : float
        Noise multiplier of as many shares as make the whole noise.
    secure : bool
        Whether the server, too, sees only the sum.
    name : str
        Name of the release.
    """

    charge: Charge | None = None
    sharing: Sharing | None = None
    of_sum: float = inf
    secure: bool = False
    name: str = ""

    def if_answered(self, shares: int) -> Charge | None:
        """Return the charge if this many clients add a share; a share does not protect against its own client."""
        charge, sharing = self.charge, self.sharing
        if charge is None or sharing is None:
            return charge

        def without(known: int) -> float:
            # The record's own client does not reveal its share, so one share is always left.
            return self.of_sum * sqrt(max(1, shares - known) / sharing.clients)

        everybody, own = without(0), without(1)
        if not self.secure:
            return replace(charge, client=own, outsider=everybody)
        left = without(sharing.colluding) * charge.sensitivity
        return replace(charge, deviation=left, server=everybody, client=own, outsider=everybody)


@dataclass(kw_only=True)
class Accounts:
    """The releases of a run and its budget.

    Attributes
    ----------
    budget : Budget
        Budget of the run.
    records : Mechanism or None
        Noise that all records carry from the start.
    secure : bool
        Whether the server sees only the sum of summed replies.
    released : dict of name to Released
        All charged releases of the run, including those of earlier starts.
    write_down : callable
        Stores a release, and returns once it is stored.
    """

    budget: Budget
    records: Mechanism | None = None
    secure: bool = False
    released: dict[str, Released] = field(default_factory=dict)
    write_down: Callable[[Released], None] = lambda release: None
    _covered: set[tuple[str, int]] = field(default_factory=set, repr=False)
    _records_charged: bool = field(default=False, repr=False)

    @property
    def charges(self) -> dict[Charge, int]:
        """Charges of all releases, with their counts."""
        return dict(Counter(release.charge for release in self.released.values()))

    def afford(self, call: Call, sizes: Sequence[int], ledger: Ledger) -> Due:
        """Charge and record a call to clients with ``sizes`` rows, and return its cost.

        Raises
        ------
        ScenarioError
            If the call would release unprotected data and the run is strict.
        BudgetError
            If it would exceed the budget.
        """
        kind, records = type(call.request).reply, self.records
        if type(call.request).sets_state and call.request.reads_classes:
            self.records = None  # rows that depend on classes reveal more than noisy rows
        if kind.public or kind.stays or not call.clients:
            return Due()
        claims = [
            claim_of(call, request, rows, records)
            for request, rows in requests_with_rows(call, sizes)
            if rows
        ]
        mechanism = call.request_for(call.clients[0]).covering(records)
        if mechanism is None or None in claims or not claims:  # clients without rows reveal nothing
            if claims:
                self._refuse_bare(kind.granularity, kind.what)
            return Due()
        worst = min((claim for claim in claims if claim is not None), key=lambda claim: claim.multiplier)
        if mechanism.on == "data":
            # Noisy records are drawn once in a run. Everything computed from them is post-processing.
            charge = Charge(
                kind=RECORDS,
                deviation=worst.deviation,
                sensitivity=worst.sensitivity,
                relation=mechanism.relation,
            )
            due = Due(charge, name=RECORDS)
        else:
            if (kind.__name__, call.round) in self._covered:
                raise TypeError(
                    f"{kind.__name__} is requested twice in round {call.round}: the same noise would cover both"
                    " replies"
                )
            self._covered.add((kind.__name__, call.round))
            name = digest(
                kind.__name__, call.round, call.clients, call.request, getattr(call, "sharing", None)
            )
            due = replace(_due(call, mechanism, worst, self.secure), name=name)
        # The least noise that may be left, with the fewest clients that the call accepts.
        least = due.if_answered(due.sharing.clients + due.sharing.colluding if due.sharing else 1)
        if least is not None and due.name not in self.released:
            where = f"round {call.round}" if call.in_rounds else "the next release"
            require_affordable(ledger.charges, least, self.budget, f"{kind.__name__} in {where}")
            self._release(Released(due.name, least), ledger)
        return due

    def settle(self, due: Due, ledger: Ledger, answered: int, answer: Callable[[], str]) -> Charge | None:
        """Charge the final cost of a call and return the charge; noisy records are charged only once.

        ``answer`` returns a digest of the replies.
        """
        charge = due.if_answered(answered)
        if charge is None or not answered:
            return None
        if charge.kind == RECORDS:
            first, self._records_charged = not self._records_charged, True
            return charge if first else None
        before, came = self.released[due.name], answer()
        if before.answer not in ("", came):
            self._release(Released(digest(due.name, came), charge, came), ledger)
        elif not before.answer:
            self._release(Released(due.name, charge, came), ledger)
        return charge

    def _release(self, release: Released, ledger: Ledger) -> None:
        """Charge a release in place of an earlier one with the same name, and record it."""
        before = self.released.get(release.name)
        self.write_down(release)
        self.released[release.name] = release
        if before is not None:
            ledger.charge(before.charge, -1)
        ledger.charge(release.charge)

    def _refuse_bare(self, granularity: Granularity, what: str) -> None:
        strict = self.budget.strict
        if not strict or (strict == "sums" and granularity is Granularity.PER_RECORD):
            return
        raise ScenarioError(
            "privacy.strict allows only messages under noise with a claimed epsilon, and this message has none:"
            f" {what}. Cover it with privacy.noise, choose settings that need no data (data.scale none, data.missing"
            " drop, no data.harmonize, no data.metric of gower or hamming, method.gamma, method.bounds), or leave"
            " privacy.strict out."
        )


def _due(call: Call, mechanism: Mechanism, worst: Claim, secure: bool) -> Due:
    """Return the cost of a reply whose least protected client has claim ``worst``."""
    name, request = type(call.request).reply.__name__, call.request_for(call.clients[0])
    charge = Charge(
        kind=name,
        deviation=worst.deviation,
        sensitivity=worst.sensitivity,
        unit=mechanism.protects,
        relation=mechanism.relation,
        mechanism=mechanism,
    )
    if not isinstance(call, SumCall) or call.sharing is None:
        return Due(charge)
    # The claim of the sum: how far a record moves it, and the noise that covers it.
    whole = mechanism.claim(call.sharing.sensitivity, **_rounding(call, request)) or worst
    if secure:
        charge = replace(charge, deviation=whole.deviation, sensitivity=whole.sensitivity)
    return Due(charge, call.sharing, whole.multiplier, secure)


def requests_with_rows(call: Call, sizes: Sequence[int]) -> list[tuple[Request[Any], int]]:
    """Return each client's request and row count, once for clients with the same pair."""
    if call.request_for(call.clients[0]) is call.request:
        return [(call.request, rows) for rows in sorted({sizes[client] for client in call.clients})]
    return [(call.request_for(client), sizes[client]) for client in call.clients]


def claim_of(call: Call, request: Request[Any], rows: int, records: Mechanism | None = None) -> Claim | None:
    """Return the claim of a mechanism for the reply of one client with ``rows`` rows, as the server sees it."""
    mechanism = request.covering(records)
    if mechanism is None:
        return None
    if mechanism.on == "data":
        return mechanism.claim(mechanism.record_sensitivity)
    sensitivity, rounding = request.claimed_sensitivity(rows), _rounding(call, request)
    if not (isinstance(call, SumCall) and mechanism.shared):
        return mechanism.claim(sensitivity, **rounding)
    if call.sharing is None:
        return None
    share = 1.0 / (weight_of(rows, call.weighting) * sqrt(call.sharing.clients))
    noise = mechanism.claim(call.sharing.sensitivity, share, **rounding)
    own = mechanism.claim(sensitivity, **rounding)
    return Claim(noise.deviation, own.sensitivity) if noise is not None and own is not None else None


def _rounding(call: Call, request: Request[Any]) -> dict[str, Any]:
    """Return how many values leave together, and the resolution of their ring."""
    kind = type(request).reply
    ranges = declared_ranges(kind, request, 0)
    shapes = [ranges[name] for name in kind.covers]
    finest = 0.0
    if isinstance(call, SumCall):
        finest = max((resolution(each.largest, call.total_weight, each.bits) for each in shapes), default=0.0)
    return {"values": sum(int(np.prod(declared.shape)) for declared in shapes), "resolution": finest}


def sharing_of(
    request: Request[Any],
    sizes: Mapping[int, int],
    weighting: Weighting,
    colluding: float,
    lost: int = 0,
    start: str = "",
) -> Sharing | None:
    """Return how clients with these sizes share the noise of their weighted sum; None if each covers its own.

    There is enough noise without ``lost`` shares and without those of the fraction ``colluding`` of the clients, or of
    one client. If clients may be lost, another ``start`` of the run is another sum, because it may lose other clients.
    """
    mechanism: Mechanism | None = request.mechanism
    if mechanism is None or not mechanism.shared:
        return None
    weights = {rows: weight_of(rows, weighting) for rows in set(sizes.values())}
    moved = max(
        (weight * request.claimed_sensitivity(rows) for rows, weight in weights.items() if weight),
        default=0.0,
    )
    shares = sum(1 for rows in sizes.values() if weights[rows])
    return Sharing(
        shares_of_whole(shares, colluding, lost),
        moved,
        colluders_of(shares, colluding),
        digest(tuple(sizes), lost, start if lost else ""),
    )
