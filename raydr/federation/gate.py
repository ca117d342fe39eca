"""The gate of one client: what its site's policy allows to leave, by the declarations of the messages.

The gate believes nothing that the server states. The rows, the granularity, the noise and its cost come from the
request's type, which raydr or an installed extension defines, and from the client's own rows. It remembers what it has
let through: releases, counts up to bounds, and sums under a mask. A process that is started again has this memory only
if its host wrote it down (:meth:`Gate.noted`). The record of all runs outlives it (:mod:`raydr.privacy.site_budget`):
the gate charges each reply there before it leaves.
"""

from __future__ import annotations

import getpass
import math
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np

from raydr.errors import RaydrError
from raydr.federation.accounts import claim_of
from raydr.federation.client import Client
from raydr.federation.enrolment import Enrol
from raydr.federation.masks import named
from raydr.federation.messages import Cells, RefusedRequestError, Reply, Request
from raydr.federation.noise_streams import digest
from raydr.federation.wire import Call, SumCall
from raydr.privacy.accounting import BudgetError, Charge, epsilon_of
from raydr.privacy.ledger import RECORDS, Granularity, Public
from raydr.privacy.mechanism import MECHANISMS, Claim, Mechanism, Relation
from raydr.privacy.policy import Message, Policy, Refusal, SitePolicy
from raydr.privacy.site_budget import RELATIONS, SiteBudget, SiteRelease, squares_of_charges
from raydr.registry import extension_packages

_METHODS = "raydr.methods."
_COMMON = frozenset(_METHODS + name for name in ("fidelity", "joining", "novelty_by_axes"))
"""Modules of requests that every method may send."""


_CHARGED = "kind", "deviation", "sensitivity", "unit", "relation"
"""Fields of a charge that the gate sets."""


class RefusedByPolicyError(RefusedRequestError):
    """The policy of a site does not allow what a request asks for."""


@dataclass
class Gate:
    """The memory of one client's host for its site's policy.

    Attributes
    ----------
    site : SitePolicy
        The policy.
    keeps_record : bool
        Whether replies are charged in the site's record of all runs. An audit's repetition with other rows is not.
    """

    site: SitePolicy = field(default_factory=SitePolicy)
    keeps_record: bool = True
    _budgets: tuple[tuple[Policy, SiteBudget], ...] = field(init=False, repr=False)
    _charges: dict[Charge, int] = field(default_factory=dict, repr=False)
    _released: set[str] = field(default_factory=set, repr=False)
    _bounds: dict[str, list[set[int]]] = field(default_factory=dict, repr=False)
    _masked: dict[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._budgets = self.site.budgets if self.keeps_record else ()

    def noted(self) -> dict[str, Any]:
        """Return what the gate remembers, as lists and mappings of text and numbers."""
        return {
            "charges": [
                [*map(partial(getattr, charge), _CHARGED), times] for charge, times in self._charges.items()
            ],
            "released": sorted(self._released),
            "bounds": {name: [sorted(kept) for kept in features] for name, features in self._bounds.items()},
            "masked": dict(self._masked),
        }

    def recall(self, notes: Mapping[str, Any]) -> None:
        """Remember what the gate of an earlier process of the same client and run has noted."""
        self._charges = {
            Charge(**dict(zip(_CHARGED, charge, strict=True))): times for *charge, times in notes["charges"]
        }
        self._released = set(notes["released"])
        self._bounds = {name: [set(kept) for kept in features] for name, features in notes["bounds"].items()}
        self._masked = dict(notes["masked"])

    @property
    def is_open(self) -> bool:
        """Whether no policy restricts or records anything."""
        return not (self.site.rules or self._budgets)

    def admit(self, call: Call, request: Request[Any], client: Client, state: int = 0) -> None:
        """Check a request before the client computes, and charge its cost.

        ``state`` is the number of the last call that set the client's state.

        Raises
        ------
        RefusedByPolicyError
            If the policy does not allow the reply.
        """
        if self.is_open:
            return
        if isinstance(request, Enrol) and request.declared:
            self._require_affordable(dict(zip(RELATIONS, request.declared[0], strict=True)), client.run)
        rows, records = client.rows.shape[0], client.covered_by
        message = message_of(call, request, rows, records)
        self._require(self.asked(message, call, request, records, state), message)

    def asked(
        self, message: Message, call: Call, request: Request[Any], records: Mechanism | None, state: int = 0
    ) -> Refusal | None:
        """Return why the policy does not allow a message; if it does, charge its cost and return None."""
        refusal = self.site.refusal(message) or self._refusal_of_mask(call, request)
        if refusal is not None or message.public or message.stays or not message.rows:
            return refusal
        return self._charged(call, request, records, message, state)

    def release(self, reply: Reply, call: Call, request: Request[Any], client: Client) -> Reply:
        """Return a reply as it may leave: with a check of the numbers of records that it tells.

        Also charge it in the site's record of all runs.

        Raises
        ------
        RefusedByPolicyError
            If a number is smaller than the policy allows and its type cannot merge cells, or if the reply costs more
            than is left for all runs.
        """
        if self.site.least_count < 2 and not self._budgets:
            return reply
        message = message_of(call, request, client.rows.shape[0], client.covered_by)
        if message.stays:
            return reply
        if self.site.least_count > 1 and not message.claimed:
            reply = reply.merged(request, self.site.least_count)
            self._require_counts(reply, request, client, message)
        if self._budgets and message.rows and not message.public:
            self._record(release_of(reply, call, request, client, message), message)
        return reply

    def _require_counts(self, reply: Reply, request: Request[Any], client: Client, message: Message) -> None:
        for place, cells in enumerate(reply.cells(request, client)):
            smallest = self._smallest(f"{message.kind} {place}", cells)
            self._require(self.site.first(Policy.refusal_of_count, smallest), message)
            self._remember(f"{message.kind} {place}", cells)

    def _record(self, release: SiteRelease, message: Message) -> None:
        """Charge a release in the site's records of all runs."""
        for policy, budget in self._budgets:
            try:
                budget.charge(release)
            except BudgetError as error:
                refusal = replace(policy.refusal_of_all_runs(str(error)), policy=policy.name)
                self._require(refusal, message)
            except RaydrError as error:
                raise RefusedByPolicyError(str(error)) from error

    @property
    def charges(self) -> dict[Charge, int]:
        """Releases of this run that have a claim, if a policy limits epsilon."""
        return self._charges

    @property
    def cost(self) -> tuple[float, float]:
        """Cost of all that the gate let through, as :class:`raydr.federation.enrolment.Enrol` declares it."""
        squares = squares_of_charges(self._charges)
        return squares.get("zero-out", 0.0), squares.get("replace-one", 0.0)

    def _require_affordable(self, declared: Mapping[Relation, float], run: str) -> None:
        """Refuse a run whose declared cost is more than is left for all runs, before anything leaves."""
        for policy, budget in self._budgets:
            limit = policy.epsilon_in_all
            if limit is None:
                continue
            spent, after = budget.spent_with(run, declared)
            if after > limit * (1.0 + 1e-9):
                why = f"its runs so far cost epsilon {spent:.4g}, and with the declared total of this one {after:.4g}"
                refusal = replace(policy.refusal_of_all_runs(why), policy=policy.name)
                raise RefusedByPolicyError(self.site.sentence(refusal, "this run"))

    def refusal_of_all_runs(self, site: SitePolicy) -> Refusal | None:
        """Return why what the gate let through so far does not fit the budget of a site; it is not charged."""
        for policy, budget in site.budgets:
            limit = policy.epsilon_in_all
            if limit is None:
                continue
            spent, after = budget.spent(), budget.spent(self._charges)
            if after > limit * (1.0 + 1e-9):
                why = f"its runs so far cost epsilon {spent:.4g}, and with this one {after:.4g}"
                return replace(policy.refusal_of_all_runs(why), policy=policy.name)
        return None

    def _require(self, refusal: Refusal | None, message: Message) -> None:
        if refusal is not None:
            raise RefusedByPolicyError(self.site.sentence(refusal, message.described))

    def _refusal_of_mask(self, call: Call, request: Request[Any]) -> Refusal | None:
        """Return a refusal if a mask is asked for twice: the difference of two sums under it has no mask."""
        if not (isinstance(call, SumCall) and call.masks is not None):
            return None
        label, content = digest(call.masks.label), digest(request, call.weighting, call.total_weight)
        if self._masked.setdefault(label, content) == content:
            return None
        return Refusal(
            "aggregate: in-secure-sum",
            "another sum had the same mask, and the difference of both has none",
            self.site.name,
        )

    def _charged(
        self, call: Call, request: Request[Any], records: Mechanism | None, message: Message, state: int
    ) -> Refusal | None:
        """Add the cost of a reply to the run's cost; return a refusal if that is more than the policy allows."""
        if all(policy.epsilon is policy.epsilon_in_all is None for policy in self.site.policies):
            return None
        mechanism = request.covering(records)
        claim = own_claim(call, request, message.rows, records) if message.known else None
        if mechanism is None or claim is None:
            return self.site.first(Policy.refusal_without_noise)
        on_data = mechanism.on == "data"
        sharing = call.sharing if isinstance(call, SumCall) else None
        name = RECORDS if on_data else digest(message.kind, call.number, call.round, request, sharing, state)
        if name in self._released:  # the same noise again
            return None
        charge = Charge(
            kind=RECORDS if on_data else message.kind,
            deviation=claim.deviation,
            sensitivity=claim.sensitivity,
            unit=mechanism.protects,
            relation=mechanism.relation,
        )
        charges = {**self._charges, charge: self._charges.get(charge, 0) + 1}

        def over(policy: Policy) -> Refusal | None:
            if policy.epsilon is None:
                return None
            return policy.refusal_of_epsilon(epsilon_of(charges, policy.delta))

        refusal = self.site.first(over)
        if refusal is None:
            self._charges = charges
            self._released.add(name)
        return refusal

    def _smallest(self, name: str, cells: Cells) -> float:
        """Return the smallest number of records, above 0, that a reply tells together with earlier ones; else 0."""
        if cells.of is None:
            there = cells.counts[cells.counts > 0]
            return float(there.min()) if there.size else 0.0
        found = [np.diff(sorted(bounds)) for bounds in self._together(name, cells)]
        return float(min((gaps.min() for gaps in found if gaps.size), default=0))

    def _together(self, name: str, cells: Cells) -> list[set[int]]:
        """Return for each feature the numbers of records up to all bounds that were asked for so far."""
        assert cells.of is not None
        before = self._bounds.get(name) or [set() for _ in cells.of]
        return [
            kept | {0, int(whole)} | {int(count) for count in counts}
            for kept, whole, counts in zip(before, cells.of, cells.counts, strict=True)
        ]

    def _remember(self, name: str, cells: Cells) -> None:
        if cells.of is not None:
            self._bounds[name] = self._together(name, cells)


def message_of(call: Call, request: Request[Any], rows: int, records: Mechanism | None) -> Message:
    """Return the declaration of the reply of a client with ``rows`` rows, whose records carry ``records``."""
    kind = type(request).reply
    sums = isinstance(call, SumCall)
    granularity, public = kind.granularity, is_public(kind)
    if granularity is Granularity.AGGREGATE and not (sums or public):
        granularity = Granularity.PER_CLIENT  # the server reads each reply
    known = is_installed(type(request)) and is_installed(kind)
    claim = own_claim(call, request, rows, records) if known and rows and not public else None
    module = type(request).__module__
    return Message(
        kind=kind.__name__,
        what=kind.what,
        granularity=granularity,
        rows=rows,
        module=module,
        method=module not in _COMMON and (module.startswith(_METHODS) or not module.startswith("raydr.")),
        known=known and _is_registered(request.mechanism),
        public=public,
        stays=kind.stays,
        claimed=claim is not None,
        secure_sites=sites_of(call),
        extreme=kind.extreme,
        splits=kind.splits,
        counts=kind.cells is not Reply.cells and kind.merged is Reply.merged,
    )


def release_of(
    reply: Reply, call: Call, request: Request[Any], client: Client, message: Message
) -> SiteRelease:
    """Return a reply as the site's record of all runs has it; without a claim its deviation is 0.

    The same noisy records, and the same bytes, are the same release, also in another run.
    """
    mechanism = request.covering(client.covered_by)
    claim = own_claim(call, request, message.rows, client.covered_by) if message.known else None
    if mechanism is None or claim is None:
        mechanism, claim = None, Claim(0.0, math.inf)
    on_data = mechanism is not None and mechanism.on == "data"
    sharing = call.sharing if isinstance(call, SumCall) else None
    shared = mechanism is not None and mechanism.shared and sharing is not None
    return SiteRelease(
        release=digest(RECORDS, client.secret.commitment, mechanism)
        if on_data
        else digest(message.kind, reply),
        run=client.run,
        asked_by=_user(),
        kind=RECORDS if on_data else message.kind,
        what="records under noise, and what is computed from them" if on_data else message.what,
        mechanism=mechanism.words if mechanism is not None else "",
        deviation=claim.deviation,
        sensitivity=claim.sensitivity,
        share=1.0 / math.sqrt(sharing.clients) if shared and sharing is not None else 1.0,
        unit=mechanism.protects if mechanism is not None else "record",
        relation=mechanism.relation if mechanism is not None else "zero-out",
    )


@cache
def _user() -> str:
    """Return the user and the machine of this process."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # a user without a name
        return f"{os.getuid() if hasattr(os, 'getuid') else '?'}@{socket.gethostname()}"


def own_claim(call: Call, request: Request[Any], rows: int, records: Mechanism | None) -> Claim | None:
    """Return the claim of the noise on one client's reply, with no more shares of other clients than are added.

    A share of the noise on a sum counts alone if the sum is not secure.
    """
    mechanism = request.covering(records)
    if not _is_registered(mechanism):
        return None
    sharing = call.sharing if isinstance(call, SumCall) else None
    if sharing is not None and (sharing.clients < 1 or not sharing.sensitivity > 0):
        return None
    claim = claim_of(call, request, max(1, rows), records)
    if claim is None or mechanism is None or not (mechanism.shared and sharing is not None):
        return claim
    shares = min(sharing.clients, max(1, sites_of(call)))
    return Claim(claim.deviation * math.sqrt(shares), claim.sensitivity)


def sites_of(call: Call) -> int:
    """Return the number of sites in a secure sum; 0 if the call is none."""
    masks = call.masks if isinstance(call, SumCall) else None
    return 0 if masks is None else min(len(named(masks.shared)), len(np.unique(masks.keys, axis=0)))


def is_public(kind: type[Reply]) -> bool:
    """Return whether a reply depends on no value of a record, or on rows that are known anyway.

    What clients seal for each other counts as public only if it holds no data. The site cannot check who opens it.
    """
    if kind.public is Public.SEALED:
        return kind.__module__.startswith("raydr.federation.")
    return kind.public is not None


def is_installed(kind: type) -> bool:
    """Return whether raydr or an installed extension defines a class."""
    if kind.__module__.partition(".")[0] not in {"raydr", *extension_packages()}:
        return False
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is kind


def _is_registered(mechanism: Mechanism | None) -> bool:
    return mechanism is None or MECHANISMS.get(mechanism.kind) is type(mechanism)
