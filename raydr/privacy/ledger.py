"""The ledger: every kind of message that crossed the boundary between a client and the server.

The federation writes the ledger at this boundary, so a method cannot send anything that the ledger does not see. The
ledger records what happened. Accountants and attacks work out what it costs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import PlainValidator, TypeAdapter

from raydr.privacy.accounting import Charge, epsilon_of
from raydr.privacy.mechanism import Mechanism, mechanism_of

Direction = Literal["up", "down", "simulation-only"]


class Granularity(StrEnum):
    """The smallest unit of data that a message describes."""

    PER_RECORD = "per-record"
    PER_CLIENT = "per-client"
    AGGREGATE = "aggregate"


class Public(StrEnum):
    """Why a message costs no privacy: neighbouring data agree on it, or the server cannot read it."""

    SHAPES = "shapes"
    EMPTY = "empty"
    RANDOM = "random"
    SEALED = "sealed"
    APART = "apart"


class RecordContent(StrEnum):
    """The content of a per-record message about each record."""

    VALUES = "values"
    """The record itself."""
    DISTANCES = "distances"
    """Its distances to points that the server knows."""
    PROJECTIONS = "projections"
    """Its coordinates along axes that the server knows."""
    PLACES = "places"
    """Its position on the map."""


@dataclass(kw_only=True, frozen=True)
class DeterminedRecords:
    """How far per-record messages and their requests determine the records, by linear equations alone.

    Attributes
    ----------
    records : int
        Records that the messages describe.
    exact : int
        Records that are determined in every feature, up to a thousandth of their distance from the middle.
    dimensions, features : int
        Dimensions in which each record is determined, and features in all.
    points : int
        Points to which distances are sent, or axes of projections.
    among : bool
        Whether the distances between a client's own records are sent too.
    """

    records: int
    exact: int
    dimensions: int
    features: int
    points: int
    among: bool = False

    def __add__(self, other: DeterminedRecords) -> DeterminedRecords:
        """Return the value for the records of both."""
        return DeterminedRecords(
            records=self.records + other.records,
            exact=self.exact + other.exact,
            dimensions=max(self.dimensions, other.dimensions),
            features=max(self.features, other.features),
            points=max(self.points, other.points),
            among=self.among or other.among,
        )


OTHER_CLIENTS = "the other clients; the server forwards it sealed"
"""Readers of messages that the server cannot read."""


@dataclass(kw_only=True, frozen=True)
class Entry:
    """All messages of one kind, in one direction, under one protection.

    Attributes
    ----------
    kind : str
        Name of the message type.
    what : str
        Its content in one sentence.
    direction : {"up", "down", "simulation-only"}
        From a client, to a client, or a message that exists only in a simulation.
    granularity : Granularity
        Smallest unit of data that the messages describe.
    seen_by : str
        Who can read the messages.
    count, bytes : int
        Messages of all clients together, and their length in the wire format (:mod:`raydr.federation.codec`).
    protection : Mechanism or None
        Mechanism that the clients' hosts applied before sending; None if there was none.
    epsilon, delta : float or None
        Differential privacy claimed for the messages; None without a claim.
    public : Public or None
        Why they cost no privacy; None if they do cost privacy.
    keyed : bool
        Whether they describe rows under an isometry key, which no accountant counts as protection.
    secure : bool
        Whether the server learnt only their sum, by secure aggregation.
    tells : RecordContent or None
        What they reveal about each record; None if they are not per record or their type does not state it.
    fixed : DeterminedRecords or None
        How far the messages determine the records; None if their type does not state it.
    """

    kind: str
    what: str
    direction: Direction
    granularity: Granularity
    seen_by: str
    count: int
    bytes: int
    protection: Annotated[Mechanism, PlainValidator(mechanism_of)] | None = None
    epsilon: float | None = None
    delta: float | None = None
    public: Public | None = None
    keyed: bool = False
    secure: bool = False
    tells: RecordContent | None = None
    fixed: DeterminedRecords | None = None

    @property
    def reaches_server(self) -> bool:
        """Whether the server can read it."""
        return self.direction == "up" and self.seen_by != OTHER_CLIENTS

    @property
    def exposes_records(self) -> bool:
        """Whether each record's own values left its client without a claim.

        Noise alone is no claim; ``protection.words`` states its amount.
        """
        return self.direction == "up" and self.granularity == Granularity.PER_RECORD and self.epsilon is None

    def determines(self, rows: int) -> bool:
        """Return whether the server can compute all of this many records exactly."""
        known = self.reaches_server and self.protection is None
        return known and self.fixed is not None and self.fixed.exact >= rows

    def as_dict(self) -> dict[str, Any]:
        """Return the entry as the plain values of ``ledger.json``; :func:`read_entries` reads them back."""
        return {
            name: value.model_dump(mode="json")
            if isinstance(value, Mechanism)
            else asdict(value)
            if isinstance(value, DeterminedRecords)
            else value
            for name, value in vars(self).items()
        }


@dataclass
class Ledger:
    """Ledger entries and charges, in the order in which each kind was first seen."""

    entries: dict[tuple[str, str, str, str, Mechanism | None], Entry] = field(default_factory=dict)
    charges: dict[Charge, int] = field(default_factory=dict)

    def record(self, entry: Entry) -> None:
        """Add messages; entries that differ only in count and bytes are merged."""
        key = (entry.kind, entry.direction, entry.granularity, entry.seen_by, entry.protection)
        before = self.entries.get(key)
        if before is not None:
            entry = replace(before, count=before.count + entry.count, bytes=before.bytes + entry.bytes)
        self.entries[key] = entry

    def fix(self, kind: str, protection: Mechanism | None, fixed: DeterminedRecords) -> None:
        """Add how far one call's messages determine the records; the most revealing call is kept."""
        for key, entry in self.entries.items():
            if (entry.kind, entry.direction, entry.protection) == (kind, "up", protection) and (
                entry.fixed is None or (fixed.exact, fixed.records) > (entry.fixed.exact, entry.fixed.records)
            ):
                self.entries[key] = replace(entry, fixed=fixed)

    def charge(self, charge: Charge, count: int = 1) -> None:
        """Add releases under a mechanism with a claim; a negative count removes them."""
        total = self.charges.get(charge, 0) + count
        if total:
            self.charges[charge] = total
        else:
            self.charges.pop(charge, None)

    def costs(self, kind: str) -> dict[Charge, int]:
        """Return the releases of one kind."""
        return {charge: count for charge, count in self.charges.items() if charge.kind == kind}

    def costs_of(self, entry: Entry) -> dict[Charge, int]:
        """Return the releases that paid for an entry's messages; none if no claim covers them."""
        if entry.direction != "up" or entry.protection is None:
            return {}
        kind = paid_as(entry)
        costs = self.costs(kind)
        if kind != entry.kind:
            return costs
        return {charge: count for charge, count in costs.items() if charge.mechanism == entry.protection}

    def settled(self, delta: float) -> Ledger:
        """Return the ledger with the epsilon at ``delta`` of each entry that a claim covers."""
        entries = {}
        for key, entry in self.entries.items():
            costs = self.costs_of(entry)
            if costs:
                entry = replace(entry, epsilon=epsilon_of(costs, delta), delta=delta)
            entries[key] = entry
        return Ledger(entries, dict(self.charges))

    def bytes(self, direction: Direction) -> int:
        """Return the length of all messages in one direction."""
        return sum(entry.bytes for entry in self.entries.values() if entry.direction == direction)

    def as_list(self) -> list[dict[str, Any]]:
        """Return the entries as the plain dictionaries of ``ledger.json``."""
        return [entry.as_dict() for entry in self.entries.values()]


RECORDS = "records"
"""Kind of the charge for noise on data, made once for everything computed from the noisy records."""


def paid_as(entry: Entry) -> str:
    """Return the kind of the charge that pays for an entry's messages."""
    return RECORDS if entry.protection is not None and entry.protection.on == "data" else entry.kind


def read_entries(described: list[dict[str, Any]]) -> tuple[Entry, ...]:
    """Return the entries that :meth:`Ledger.as_list` wrote."""
    entries: tuple[Entry, ...] = _adapter().validate_python(described)
    return entries


@cache
def _adapter() -> Any:
    return TypeAdapter(tuple[Entry, ...])
